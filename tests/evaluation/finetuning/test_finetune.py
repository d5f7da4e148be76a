"""Fine-tuning that keeps its model: the numbers of the protocols, a classifier that gives them again, and bad input."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from random_entries import made
from torch import nn

import evaluation
from evaluation.datasets import Split, open_split
from evaluation.finetuning.finetune import Finetuned, finetune
from evaluation.finetuning.options import Options, plan_steps
from evaluation.results.measures import measure
from evaluation.tuning import trials
from evaluation.tuning.classifier import predict
from evaluation.tuning.pixels import Pixels, Pool
from sslkit import load
from sslkit.errors import UserError
from sslkit.runtime.context import Runtime
from sslkit.zoo import ZooEntry

TRAIN, TEST = (open_split("digits", split) for split in ("train", "test"))
QUICK = {"steps": 6, "grid": {"lr": [0.01, 0.001], "optimizer": "adamw"}, "extend": False, "batch_size": 16}
HOW = {"progress": False, "device": "cpu"}


def few(n: int = 120, classes: int = 3) -> dict[str, Split]:
    """Digits below some number."""
    return {
        name: split.take(np.flatnonzero(split.y < classes)[:n]) for name, split in (("train", TRAIN), ("test", TEST))
    }


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    return made(tmp_path, "a", "nowhere")


@pytest.fixture
def call(entry: Path, tmp_path: Path) -> Callable[..., Finetuned]:
    def call_it(data: Any, **options: Any) -> Finetuned:
        how = {"out": tmp_path / "out", "cache": tmp_path / "cache", **HOW}
        return finetune(entry, data, **{**({} if options.get("head") == "linear" else QUICK), **how, **options})

    return call_it


def outputs(kept: ZooEntry, split: Split) -> np.ndarray:
    """What the kept model says of a split."""
    kept = ZooEntry.load(kept.folder)
    model = load(kept)
    pixels = Pixels(Pool([model.clean(split.images)]), np.arange(len(split)), torch.device("cpu"))
    return predict(nn.Sequential(kept.backbone(), kept.classifier().layers), model, pixels, "float32").numpy()


def accuracy(kept: ZooEntry, split: Split) -> float:
    names = [kept.classifier().classes.index(split.classes[label]) for label in split.y]
    return measure(outputs(kept, split), np.array(names), "top1")[0].value


def test_a_network_has_the_numbers_of_the_protocol_and_its_model_gives_them_again(
    call: Callable[..., Finetuned], entry: Path, tmp_path: Path
) -> None:
    data = few()
    tuned = call(data)
    protocol = evaluation.fine_tune(entry, data, **QUICK | {"crop": [0.5, 1.0]}, **HOW, out=tmp_path / "protocol")
    assert tuned.result.value == protocol.value and tuned.result.interval == protocol.interval
    assert tuned.result.model == tuned.entry.folder.name and tuned.result.details["grid"] == protocol.details["grid"]
    assert accuracy(tuned.entry, data["test"]) == protocol.value
    card = tuned.entry.card
    measured, scores, y = card["classifier"]["measured"], outputs(tuned.entry, data["test"]), data["test"].y
    assert measured["value"] == protocol.value and measured["n"] == len(data["test"])
    assert card["classifier"]["classes"] == list(data["train"].classes) and card["epochs"] == 0.8
    exact = torch.nn.functional.cross_entropy(torch.from_numpy(scores), torch.from_numpy(y)).item()
    assert tuned.calibration.loss[1] == pytest.approx(exact, rel=1e-5)
    assert not list((tmp_path / "out").glob(".fine_tune-*"))  # neither checkpoints nor weights are left


def test_a_call_that_failed_at_its_end_goes_on_and_one_that_ended_does_nothing_again(
    call: Callable[..., Finetuned], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, runs = few(), tmp_path / "out" / "fine_tune.jsonl"
    with monkeypatch.context() as broken, pytest.raises(UserError, match="disk full"):
        broken.setattr("evaluation.finetuning.finetune.keep_model", _fail)
        call(data)
    recorded = runs.read_text()
    trained: list[int] = []
    tune = trials.train_classifier
    monkeypatch.setattr(trials, "train_classifier", lambda *a, **k: trained.append(1) or tune(*a, **k))
    first = call(data)
    again = call(data)
    assert runs.read_text() == recorded and not trained
    assert again.entry.folder == first.entry.folder and str(again.calibration) == str(first.calibration)
    (first.entry.folder / "card.json").unlink()
    anew = call(data)  # the runs are recorded, and the weights are made again
    assert trained == [1] and anew.result.value == first.result.value
    assert accuracy(anew.entry, data["test"]) == first.result.value


def _fail(*_: object, **__: object) -> None:
    raise UserError("disk full")


def test_a_linear_head_is_the_probe_with_its_scaling_within(call: Callable[..., Finetuned], entry: Path) -> None:
    data = few()
    tuned = call(data, head="linear")
    features = [evaluation.extract(entry, data[name], name, **HOW, cache=None) for name in ("train", "test")]
    probe = evaluation.linear_probe(*features, **HOW)
    assert (tuned.result.value, tuned.result.interval) == (probe.value, probe.interval)
    assert accuracy(tuned.entry, data["test"]) == probe.value
    assert tuned.entry.classifier().classes == tuple(TRAIN.classes[:3])
    assert [type(layer) for layer in tuned.entry.classifier().layers] == [nn.Linear]
    assert tuned.calibration.loss[1] <= tuned.calibration.loss[0] + 0.05
    torch.testing.assert_close(tuned.entry.state_dict(), ZooEntry.load(entry).state_dict())


def test_several_labels_an_image_have_a_sigmoid(call: Callable[..., Finetuned]) -> None:
    data = {name: several(split) for name, split in few(400).items()}
    for head in ("linear", "network"):
        tuned = call(data, head=head)
        assert tuned.entry.classifier().link == "sigmoid" and tuned.result.metric == "map11"
        assert tuned.decision is None and tuned.pixels.metric == "map11"
        assert 0 < tuned.calibration.error[1] < 0.5


def several(split: Split) -> Split:
    """Three yes-or-no labels, of which some do not count."""
    y = np.where(split.y[:, None] == np.arange(3), -1, 1).astype(np.int8)
    y[::7, 1] = 0
    return replace(split, y=y, classes=["no 0", "no 1", "no 2"], metric="map11")


def write_folder(folder: Path, rows: np.ndarray, copies: int = 0) -> Path:
    """Images of some rows in class folders; of the first `copies` each twice."""
    from PIL import Image

    for number, row in enumerate(rows):
        place = folder / TRAIN.classes[TRAIN.y[row]].replace("/", " ")
        place.mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray(TRAIN.images.__getitems__([int(row)])["images"][0, 0].numpy())
        for copy in range(2 if number < copies else 1):
            picture.save(place / f"{number:03}-{copy}.png")
    return folder


def test_of_data_without_test_images_a_fifth_is_held_back_and_copies_stay_together(
    call: Callable[..., Finetuned], tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "pictures", np.flatnonzero(TRAIN.y < 2)[:60], copies=30)
    tuned = call(str(folder), head="linear")
    assert "a fifth of each class" in tuned.note and tuned.result.details["in_train"] == 0
    assert 12 <= tuned.result.n <= 24 and tuned.entry.card["data"]["images"] == 90 - tuned.result.n


@pytest.mark.parametrize(
    ("rows", "said"),
    [(np.flatnonzero(TRAIN.y == 0)[:20], "has one class|no labels"), (np.arange(5), "hold|held|label|two")],
)
def test_too_little_to_learn_from_is_one_line(
    rows: np.ndarray, said: str, call: Callable[..., Finetuned], tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "pictures", rows)
    for head in ("linear", "network"):
        with pytest.raises(UserError, match=said) as error:
            call(str(folder), head=head)
        assert len(str(error.value).splitlines()) == 1
    assert not list((tmp_path / "out").glob("*/card.json"))


def test_classes_that_only_test_has_are_named(call: Callable[..., Finetuned]) -> None:
    data = {"train": few(60, 2)["train"], "test": few(60, 3)["test"]}
    for head in ("linear", "network"):
        with pytest.raises(UserError, match=TRAIN.classes[2]):
            call(data, head=head)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"head": "linear", "steps": 3, "folds": 2}, "folds, steps: only with head=network"),
        ({"budget": "soon"}, "budget=soon: give a time such as 90s"),
        ({"budget": 0}, "give a time"),
        ({"grid": "pet"}, "there is no grid 'pet'"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_anything_is_opened(
    options: dict, said: str, call: Callable[..., Finetuned]
) -> None:
    with pytest.raises(UserError, match=said):
        call("nowhere", **options)


def test_steps_are_what_the_budget_allows(entry: Path) -> None:
    model, runtime = load(entry), Runtime(device="cpu")
    given, _ = plan_steps(Options(steps=7), model, 100, runtime)
    passes, line = plan_steps(Options(budget="1000h"), model, 100, runtime)
    assert given == 7 and passes == 30 * 100 // 32 and "30 passes over 100 images" in line
    with pytest.raises(UserError, match=r"budget='1s' allows .* 20 are the fewest: give about"):
        plan_steps(Options(budget="1s", batch_size=4096), model, 10**6, runtime)


def test_what_was_asked_stands_in_the_card(call: Callable[..., Finetuned]) -> None:
    config = json.loads((call(few()).entry.folder / "card.json").read_text())["config"]
    assert config["finetune"] == {key: value for key, value in QUICK.items() if key != "batch_size"} | {
        "batch_size": 16
    }
    assert config["columns"] == {}
