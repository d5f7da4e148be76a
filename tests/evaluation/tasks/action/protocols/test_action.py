"""Action recognition from films to a Result: one split and several, resumed, and bad input in one line each."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from motion_films import write_motion, write_motions

import evaluation
from evaluation import protocols
from evaluation.judging import run
from evaluation.protocols.base import Subject
from evaluation.results import store
from evaluation.results.records import read_records
from evaluation.results.result import Result
from evaluation.tasks.action.protocols.action import Options, action
from evaluation.tuning.checkpoint import Checkpoint
from evaluation.tuning.loop import dropout_seed
from sslkit import backbones
from sslkit.errors import UserError
from sslkit.models.loading import load
from sslkit.models.model import Model
from sslkit.runtime.context import Runtime
from sslkit.zoo import ZooEntry

QUICK = {"epochs": 1, "batch_size": 8, "stride": 2, "clips": 2, "crops": 1}
QUIET = {"workers": 0, "progress": False}


@pytest.fixture(scope="module")
def network() -> Model:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return load(backbones.build("narrow_slow", image_size=16, in_chans=3, frames=4))


@pytest.fixture(scope="module")
def motion(tmp_path_factory) -> Path:
    return write_motions(tmp_path_factory.mktemp("films") / "motion", train=4)


@pytest.fixture(scope="module")
def ucf(tmp_path_factory) -> Path:
    """Two classes of six films of six groups; split k tests groups k and k + 1."""
    root = tmp_path_factory.mktemp("films") / "UCF101"
    classes = {"Down": "down", "Right": "right"}
    for number, (name, motion) in enumerate(classes.items()):
        for group in range(1, 7):
            write_motion(root / "UCF-101" / name / f"v_{name}_g{group:02d}_c01.avi", motion, seed=10 * number + group)
    lists = root / "ucfTrainTestlist"
    lists.mkdir()
    (lists / "classInd.txt").write_text("1 Down\n2 Right\n")
    for fold in (1, 2, 3):
        tested = (fold, fold + 1)
        films = [(name, group, f"{name}/v_{name}_g{group:02d}_c01.avi") for name in classes for group in range(1, 7)]
        train = [f"{film} {1 + (name == 'Right')}" for name, group, film in films if group not in tested]
        test = [film for _, group, film in films if group in tested]
        (lists / f"trainlist0{fold}.txt").write_text("\n".join(train))
        (lists / f"testlist0{fold}.txt").write_text("\n".join(test))
    return root


@pytest.mark.parametrize(
    ("options", "precision"),
    [({"features": "once"}, "float32"), ({"protocol": "fine_tune"}, "float32"), ({}, "bfloat16")],
)
def test_a_result_says_all_that_is_needed(
    options: dict, precision: str, motion: Path, network: Model, tmp_path: Path
) -> None:
    runtime = Runtime(**QUIET, cache=tmp_path / "cache", out=tmp_path, precision=precision)
    asked, protocol = Options(**QUICK, **options), protocols.find("action")
    (result,) = protocol.run(protocol.open(Subject(network, f"video:{motion}"), asked), asked, runtime)
    assert result.protocol == "action" and result.metric == "top1" and result.n == 6 and result.data == "motion"
    assert result.kind == "wilson over images" and 0 <= result.interval[0] <= result.value <= result.interval[1] <= 1
    kind = "fine-tune, paper_ucf101" if "protocol" in options else "linear, paper_k400"
    assert result.recipe.startswith(f"{kind}, 1 of ") and result.recipe.endswith("2 clips (slowfast) x 1 crop")
    assert ("extracted once" in result.recipe) == ("features" in options) and ", 4 x 2 at 16 px, " in result.recipe
    assert set(result.digests) == {"model", "train", "test"} and result.digests["model"] == network.digest
    assert result.details["length"] == 4 and result.details["stride"] == 2 and result.details["films"] == [[8, 6]]
    assert result.outcomes.mean() == pytest.approx(result.value) and len(result.outcomes) == 6 and result.paired_on
    assert Result.from_json(result.to_json()).to_json() == result.to_json()
    store.append(tmp_path, result)
    assert store.read(tmp_path)[0].value == result.value
    assert not list(tmp_path.glob(".action-*.ckpt")), "what is finished needs no checkpoint"


def test_several_splits_are_reported_each_with_mean_and_std(ucf: Path, network: Model, tmp_path: Path) -> None:
    how = {**QUICK, **QUIET, "cache": None, "out": tmp_path, "counts": "warn"}
    with pytest.warns(UserWarning, match="instead of"):
        result = action(network, f"ucf101:{ucf}", recipe="paper_ucf101", **how)
    each = [result.others[f"split {fold}"] for fold in (1, 2, 3)]
    values = [one.value for one in each]
    assert result.value == pytest.approx(np.mean(values)) and result.details["values"] == values
    assert result.details["std"] == pytest.approx(np.std(values, ddof=1))
    assert result.kind == "t over 3 splits, which share videos" and result.n == 3
    assert all(one.kind == "wilson over images" and one.n == 4 for one in each)
    assert result.recipe.endswith("mean of splits 1, 2, 3") and result.outcomes.tolist() == values
    assert {"train 1", "test 2", "test 3"} <= set(result.digests) and "not the published set" in result.details["notes"]
    with pytest.warns(UserWarning, match="instead of"):
        alone = action(network, f"ucf101:{ucf}", recipe="slowfast_ucf101", **how)
    assert alone.recipe.endswith(", split 1") and alone.n == 4, "its first split alone"
    with pytest.warns(UserWarning, match="instead of"):
        second = action(network, f"ucf101:{ucf}", recipe="paper_ucf101", folds=[2], **how)
    assert second.value == values[1] and len(read_records(tmp_path / "action.jsonl")) == 4, "split 2 was not run again"


def test_a_stopped_evaluation_goes_on_and_ends_the_same(
    motion: Path, network: Model, tmp_path: Path, monkeypatch
) -> None:
    how = {**QUICK, **QUIET, "protocol": "fine_tune", "epochs": 3, "batch_size": 4, "cache": tmp_path / "cache"}
    expected = action(network, f"video:{motion}", **how, out=tmp_path / "whole")

    class Stopped(Exception):
        pass

    def stop(seed: int, step: int) -> int:
        if step == 3:
            raise Stopped
        return dropout_seed(seed, step)

    with monkeypatch.context() as patched, pytest.raises(Stopped):
        patched.setattr("evaluation.tasks.action.training.dropout_seed", stop)
        action(network, f"video:{motion}", **how, out=tmp_path / "cut", save_seconds=0)
    (file,) = (tmp_path / "cut").glob(".action-*.ckpt")
    content = torch.load(file, weights_only=True)
    content["hooks"]["History"]["seconds"] = 1000.0
    Checkpoint(file, content.pop("key")).save(content)
    result = action(network, f"video:{motion}", **how, out=tmp_path / "cut")
    assert result.details["losses"] == expected.details["losses"] and result.value == expected.value
    (record,), (whole,) = (read_records(tmp_path / name / "action.jsonl").values() for name in ("cut", "whole"))
    assert record["losses"] == whole["losses"] and record["right"] == whole["right"]
    assert result.seconds > 1000 > whole["seconds"], "the seconds before the stop count"
    assert not list((tmp_path / "cut").glob(".action-*.ckpt"))

    monkeypatch.setattr("evaluation.tasks.action.runs.train", lambda *_: pytest.fail("it is on record"))
    assert action(network, f"video:{motion}", **how, out=tmp_path / "cut").value == expected.value


def copied(films: Path, to: Path) -> Path:
    for path in films.rglob("*.mp4"):
        copy = to / path.relative_to(films)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    return to


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_film_that_is_overwritten_is_judged_anew(
    split: str, motion: Path, network: Model, tmp_path: Path, monkeypatch
) -> None:
    """By other content of the same size and time; what was only copied is not."""
    films = copied(motion, tmp_path / "set")
    how = {**QUICK, **QUIET, "features": "once", "cache": tmp_path / "cache", "out": tmp_path / "out"}
    first = action(network, f"video:{films}", **how)
    path = films / split / "down" / "0.mp4"
    path.touch()
    action(network, f"video:{films}", **how)
    shutil.copytree(films, tmp_path / "copy" / "set", copy_function=shutil.copyfile)
    action(network, f"video:{tmp_path / 'copy' / 'set'}", **how)
    assert len(read_records(tmp_path / "out" / "action.jsonl")) == 1
    about = path.stat()
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    again = action(network, f"video:{films}", **how)
    assert len(read_records(tmp_path / "out" / "action.jsonl")) == 2
    assert again.digests == first.digests, "which compare copies of a set"


def test_fewer_films_than_a_batch_are_said_in_the_recipe(motion: Path, network: Model, tmp_path: Path) -> None:
    how = {**QUICK, **QUIET, "features": "once", "cache": None, "out": tmp_path}
    del how["batch_size"]
    said = action(network, f"video:{motion}", **how).recipe
    assert said.startswith("linear, paper_k400, 1 of 60 epochs, batches of all 8 videos, lr 0.0625, 4 x 2 at 16 px, ")
    assert "lr 0.3" in action(network, f"video:{motion}", **how, lr=0.3).recipe


def test_results_of_other_clips_or_crops_are_no_pairs(motion: Path, network: Model, tmp_path: Path) -> None:
    how = {**QUICK, **QUIET, "features": "once", "cache": None, "out": tmp_path}
    first, same, *others = (
        action(network, f"video:{motion}", **{**how, **other})
        for other in ({}, {"lr": 0.1}, {"frames": 3}, {"stride": 1}, {"clips": 3}, {"crops": 3}, {"rule": "endpoints"})
    )
    assert first.paired_on == same.paired_on and evaluation.compare(first, same).n == 6
    assert len({one.paired_on for one in (first, *others)}) == 6
    for other in others:
        with pytest.raises(UserError, match="not known to be the same rows"):
            evaluation.compare(first, other)


def test_films_that_cannot_be_read_are_counted_and_named(motion: Path, network: Model, tmp_path: Path) -> None:
    copied(motion, tmp_path / "set")
    (tmp_path / "set" / "test" / "down" / "1.mp4").write_bytes(b"no film")
    for name in ("right/0.mp4", "down/1.mp4"):
        (tmp_path / "set" / "train" / name).write_bytes(b"no film either")
    how = {**QUICK, **QUIET, "features": "once", "cache": None, "out": tmp_path / "out"}
    said: list[str] = []
    result = action(network, f"video:{tmp_path / 'set'}", **how, say=said.append)
    assert result.n == 5 and result.details["unreadable"] == 3 and result.details["films"] == [[6, 5]]
    named = [line.partition(":")[0] for line in result.details["unreadable_films"]]
    assert named == ["test/down/1.mp4", "train/down/1.mp4", "train/right/0.mp4"], "two of the same name are two"
    assert "3 unreadable" in evaluation.table([result])
    assert said[1].startswith("2 train videos cannot be read, left out: train/") and "test/down/1.mp4: " in said[2]
    with pytest.raises(UserError, match=r"2 of 8 videos cannot be read, the first is .*train/down/1.mp4"):
        action(network, f"video:{tmp_path / 'set'}", **how, on_error="raise")


def test_it_is_one_of_the_protocols_that_evaluate_runs(motion: Path, network: Model, tmp_path: Path) -> None:
    options = {"action": {**QUICK, "features": "once"}}
    how = {**QUIET, "cache": tmp_path / "cache", "out": tmp_path / "out"}
    (result,) = run.evaluate(network, f"video:{motion}", ["action"], options=options, **how)
    (kept,) = store.read(run.results_folder(network, tmp_path / "out"))
    assert kept.to_json() == result.to_json() and "action" in protocols.names()
    assert evaluation.action_recognition is action


def test_an_entry_is_judged_on_the_films_that_it_was_pretrained_on(
    motion: Path, network: Model, tmp_path: Path
) -> None:
    card = {"backbone": {"stride": 3}, "data": {"source": f"video:{motion}"}}
    own = replace(network, entry=ZooEntry(tmp_path, card), stride=3)
    how = {"features": "once", "epochs": 1, "clips": 1, "crops": 1, **QUIET, "cache": None, "out": tmp_path}
    result = action(own, **how)
    assert result.data == "motion" and result.details["stride"] == 3, "and with its stride"
    with pytest.raises(UserError, match="Kinetics-400 cannot be opened"):
        action(own, recipe="paper_k400", **how, root=tmp_path)


@pytest.mark.nightly
def test_fine_tuning_learns_the_direction_of_a_motion(network: Model, tmp_path: Path) -> None:
    """Single frames do not tell the classes apart."""
    films = write_motions(tmp_path / "many", train=16, test=10)
    how = {**QUIET, "stride": 1, "clips": 2, "crops": 1, "cache": tmp_path / "cache", "out": tmp_path}
    how |= {"epochs": 30, "batch_size": 8, "lr": 0.02, "dropout": 0.0}
    tuned = action(network, f"video:{films}", protocol="fine_tune", **how)
    first, last = tuned.details["losses"][0]
    assert last < 0.7 * first and tuned.interval[0] > 0.5, (tuned.value, first, last)


def test_images_are_refused_in_one_line(motion: Path, network: Model, tmp_path: Path) -> None:
    how = {"cache": tmp_path / "cache", "out": tmp_path / "out", "progress": False}
    with pytest.raises(UserError, match="random:narrow_resnet takes images: give a zoo entry"):
        action("random:narrow_resnet", f"video:{motion}", image_size=8, **how)
    with pytest.raises(UserError, match="'fashion_mnist' is not a video data set"):
        action(network, "fashion_mnist", **how)
    with pytest.raises(UserError, match="'digits' is not a video data set"):
        run.evaluate("random:narrow_resnet", "digits", ["action"], image_size=8, **how)


class OneSize(torch.nn.Module):
    """Takes clips of 4 frames of 16 pixels only."""

    def __init__(self) -> None:
        super().__init__()
        self.project = torch.nn.Linear(3 * 4 * 16 * 16, 5)

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        return self.project(clips.flatten(1))


def test_a_network_of_one_size_is_refused_before_it_is_trained(motion: Path, tmp_path: Path) -> None:
    model = load(backbones.build(OneSize(), image_size=16, in_chans=3, frames=4))
    with pytest.raises(UserError, match="OneSize cannot take the test clips of 4 frames of 18 px"):
        action(model, f"video:{motion}", **QUICK, **QUIET, cache=None, out=tmp_path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"recipe": "paper_k4000"}, "did you mean 'paper_k400'"),
        ({"recipe": "paper_k400", "protocol": "fine_tune"}, "is for protocol=linear"),
        ({"features": "twice"}, "features must be live or once, got 'twice'"),
        ({"features": "once", "protocol": "fine_tune"}, "features=once is for protocol=linear"),
        ({"precision": "half"}, "precision must be float32 or bfloat16, got 'half'"),
        ({"folds": [2]}, r"folds=\[2\] must be different ones of \[1\]"),
        ({"frames": -1}, "frames must be a whole number, at least 1 .*, got -1"),
        ({"stride": 1.5}, "stride must be a whole number, .*, got 1.5"),
        ({"crops": 5}, "crops must be a whole number, at least 1 and at most 3, got 5"),
        ({"rule": "endpoint"}, "did you mean 'endpoints'"),
        ({"seed": -1}, "seed must be a whole number, at least 0 .*, got -1"),
        ({"device": "cuda"}, "torch sees no GPU"),
        ({"lr": 1e25, "protocol": "fine_tune"}, r"split 1: .* NaN or infinite .* at lr 1e\+25; give a lower lr"),
    ],
)
def test_a_mistake_is_one_line(options: dict, said: str, motion: Path, network: Model, tmp_path: Path) -> None:
    how = {**QUICK, **QUIET, "cache": None, "out": tmp_path, **options}
    with pytest.raises(UserError, match=said) as raised:
        action(network, f"video:{motion}", **how)
    assert "\n" not in str(raised.value)


def test_options_are_kept_as_json(motion: Path, network: Model, tmp_path: Path) -> None:
    action(network, f"video:{motion}", **QUICK, **QUIET, features="once", cache=None, out=tmp_path)
    (line,) = (tmp_path / "action.jsonl").read_text().splitlines()
    key = json.loads(line)
    assert key["shape"]["length"] == 4 and key["views"]["rule"] == "slowfast" and key["recipe"]["epochs"] == 1
    assert key["decoder"].startswith("pyav ")
