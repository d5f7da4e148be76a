"""Protocols as evaluators of a training."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from photographs import write_jpegs

import evaluation
import sslkit
from evaluation.features import extraction
from evaluation.judging.evaluators import as_measure, of_run
from evaluation.results.statistics import Estimate
from sslkit.data.sources.named import open_images
from sslkit.errors import UserError

ROOT = Path(__file__).parents[3]
SMALL = ["method=simclr", "backbone=narrow_resnet", "batch_size=16", "epochs=2", "eval.k=3", "eval.tsne=0", "workers=0"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two small sets, both with labels."""
    monkeypatch.chdir(tmp_path)
    for name, start in (("a", 0), ("b", 200)):
        arrays = {}
        for split, n in (("train", 48), ("test", 24)):
            batch = open_images("digits", split=split).__getitems__(list(range(start, start + n)))
            arrays |= {f"x_{split}": batch["images"][:, 0].numpy(), f"y_{split}": batch["label"].numpy() % 4}
        np.savez(tmp_path / f"{name}.npz", **arrays)
    return tmp_path


def settings(**more: object) -> dict:
    small = dict(word.split("=") for word in SMALL if "." not in word)
    numbers = {name: int(value) if value.isdigit() else value for name, value in small.items()}
    return {**numbers, "data": "a.npz", "eval": {"k": 3, "tsne": 0}, "progress": False, "name": "run", **more}


def test_a_run_is_measured_as_its_entry_is_evaluated_and_features_are_extracted_once(place, monkeypatch) -> None:
    runs = []
    run = extraction._run
    monkeypatch.setattr(extraction, "_run", lambda job, *more: (runs.append(job.split.name), run(job, *more)))
    judges = evaluation.evaluators(["knn", "linear"], ["a.npz", "b.npz"], options={"knn": {"k": 3}}, cache=None)
    assert [judge.name for judge in judges] == ["knn/a.npz", "linear/a.npz", "knn/b.npz", "linear/b.npz"]
    entry = sslkit.pretrain(settings(epochs=1), evaluators=judges)
    assert runs == 2 * ["a", "a", "b", "b"], "train and test, at the start and at the end"
    after = entry.card["evaluators"]["after"]
    for result in evaluation.evaluate(
        entry, ["a.npz", "b.npz"], ["knn", "linear"], options={"knn": {"k": 3}}, cache=None
    ):
        number = after[f"{result.protocol}/{result.data}.npz"][result.metric]
        assert number["value"] == pytest.approx(result.value, abs=1e-12)
        assert [number["low"], number["high"]] == pytest.approx(list(result.interval), abs=1e-12)


def test_the_words_of_a_command_name_them(place) -> None:
    config = settings(eval={"k": 3, "tsne": 0, "protocols": ["knn", "retrieval"]})
    assert [judge.name for judge in of_run(config)] == ["knn", "retrieval"]
    config["eval"] |= {"data": ["a.npz", "b.npz"], "protocols": "knn", "protocol_options": {"knn": {"k": 5}}}
    judges = of_run(config)
    assert [judge.name for judge in judges] == ["knn/a.npz", "knn/b.npz"] and judges[0].task.options.k == 5


FAULTS = {
    "protocol": ({"protocols": ["knnn"]}, "there is no protocol 'knnn': did you mean 'knn'"),
    "option": ({"protocols": ["knn"], "protocol_options": {"knn": {"kk": 3}}}, "kk"),
    "option of another": (
        {"protocols": ["knn"], "protocol_options": {"lidr": {"q": 3}}},
        "there is no protocol 'lidr'",
    ),
    "data": ({"protocols": ["knn"], "data": "nowhere"}, "eval.protocols: knn/nowhere: "),
    "no labels": ({"protocols": ["knn"], "data": "bare.npz"}, "eval.protocols: knn/bare.npz: bare has no labels"),
    "no patches": ({"protocols": ["anomaly"], "data": "photos"}, "eval.protocols: anomaly/photos: "),
    "no masks": ({"protocols": ["linear_seg"]}, "eval.protocols: linear_seg: "),
}


@pytest.mark.parametrize("dry", [False, True])
@pytest.mark.parametrize("case", FAULTS)
def test_a_fault_is_one_line_before_the_run_computes_anything(case: str, dry: bool, place: Path) -> None:
    np.savez(place / "bare.npz", x_train=np.zeros((20, 8, 8), np.uint8), x_test=np.zeros((20, 8, 8), np.uint8))
    write_jpegs(place / "photos", 6, (8, 8))
    words, told = FAULTS[case]
    config = settings(eval={"k": 3, "tsne": 0, **words}, dry=dry)
    with pytest.raises(UserError, match=told):
        sslkit.pretrain(config, evaluators=of_run(config))
    assert not (place / "runs" / "zoo").exists()


def test_labels_that_a_run_learns_from_are_not_tested_on(place) -> None:
    for name in ("cats", "dogs"):
        write_jpegs(place / "undivided" / name, 10, (16, 16))
    config = settings(data="undivided", method="supervised", eval={"k": 3, "tsne": 0, "protocols": ["knn"]})
    with pytest.raises(UserError, match="undivided has no test images of its own, and method=supervised learns"):
        of_run(config)
    assert of_run({**config, "method": "simclr"}) and of_run({**config, "data": "a.npz"})


@pytest.mark.parametrize(("unit", "better"), [("fraction", 1), ("rank", 1), ("squared distance", -1), ("pixels", 0)])
def test_which_direction_is_better_is_that_of_the_tables(unit: str, better: int) -> None:
    measure = as_measure(Estimate(0.5, (0.4, 0.6), "a kind", 10, unit))
    assert (measure.low, measure.high, measure.better) == (0.4, 0.6, better)


def command(*words: str, cwd: Path) -> str:
    call = [sys.executable, str(ROOT / "recipes" / "train.py"), *SMALL, "progress=false", "device=cpu", *words]
    done = subprocess.run(call, capture_output=True, text=True, cwd=cwd, timeout=500)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_two_processes_are_measured_by_the_first_and_end_with_the_same_weights(place: Path) -> None:
    words = ["data=a.npz", "trainer.devices=2", "keep=best"]
    said = command(
        *words, "eval.protocols=[knn,fine_tune]", "eval.data=[a.npz,b.npz]", "eval.by=knn/b.npz", "name=measured",
        "eval.protocol_options={fine_tune:{steps:2,grid:{lr:[0.01]},extend:false,seeds:[0]}}", cwd=place,
    )  # fmt: skip
    assert said.count("before    knn/a.npz top1") == 1 and said.count("fine_tune/b.npz") == 4
    command("data=a.npz", "trainer.devices=2", "name=plain", f"epochs={2}", cwd=place)
    measured, plain = (sslkit.ZooEntry.load(place / "runs/zoo" / name) for name in ("measured", "plain"))
    assert measured.card["kept"]["by"] == "knn/b.npz"
    if measured.card["epochs"] == 2:
        theirs = plain.state_dict()
        assert all(torch.equal(value, theirs[name]) for name, value in measured.state_dict().items())
