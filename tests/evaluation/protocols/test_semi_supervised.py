"""Fine-tuning on a few labels: which labels, which rates, over several draws."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import evaluation.protocols.semi_supervised as module
from evaluation.datasets import Reading, open_split
from evaluation.datasets.base import Split
from evaluation.protocols.base import Subject
from evaluation.protocols.semi_supervised import semi_supervised
from evaluation.results.result import Result, rows_digest
from sslkit.data.arrays import ArrayImages
from sslkit.data.held_out import held_out
from sslkit.data.images import Identity, ImageOptions
from sslkit.data.subsets import label_subset, list_digest
from sslkit.errors import UserError
from sslkit.models.loading import load
from sslkit.models.model import Model
from sslkit.runtime.context import Runtime

TRAIN, TEST = open_split("digits", "train"), open_split("digits", "test")
DATA = {"train": TRAIN, "test": TEST}
QUICK = {"epochs": 6, "batch_size": 32, "draws": 2, "lrs": (0.3, 0.01), "head_lrs": (0.3,), "crop": (0.6, 1.0)}
QUICK |= {"mirror": False, "progress": False, "device": "cpu"}


def model() -> Model:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        convolution = torch.nn.Conv2d(1, 6, 3, bias=False)
        layers = [convolution, torch.nn.BatchNorm2d(6), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(2)]
        return load(torch.nn.Sequential(*layers, torch.nn.Flatten()), image_size=8, in_chans=1)


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "semi_supervised.jsonl").read_text().splitlines()]


def numbers(result: Result) -> dict:
    return {k: v for k, v in json.loads(result.to_json()).items() if k not in ("date", "seconds")}


def some(split: Split, rows: np.ndarray) -> Split:
    identity = Identity("digits", labels=split.y[rows], classes=list(split.classes))
    images = ArrayImages(split.images.pixels[rows], identity, ImageOptions(split=split.split))
    return replace(split, images=images, y=split.y[rows], ids=split.ids[rows])


def named(rows: np.ndarray) -> str:
    """The digest of some training rows, in the order of their names."""
    rows = rows[np.argsort(TRAIN.ids[rows].astype(str))]
    return rows_digest(TRAIN.ids[rows].astype(str), TRAIN.y[rows])


def test_each_draw_chooses_on_a_tenth_of_its_labels_and_learns_from_all_of_them(tmp_path: Path) -> None:
    result = semi_supervised(model(), DATA, fraction=0.1, out=tmp_path, **QUICK)
    records = lines(tmp_path)
    assert [(r["stage"], r["draw"], r["lr"]) for r in records[:4]] == [
        ("select", draw, lr) for draw in (0, 1) for lr in (0.3, 0.01)
    ]
    assert len(records) == 6 and all(r["weight_decay"] == 0 and r["head_lr"] == 0.3 for r in records)
    for draw in (0, 1):
        rows = label_subset(TRAIN.y, TRAIN.ids, TRAIN.classes, 0.1, draw)
        held = rows[held_out(TRAIN.y[rows], TRAIN.ids[rows], 0.1, seed=draw)]
        select, test = records[2 * draw], records[4 + draw]
        assert len(rows) == 143 and 10 <= len(held) <= 20
        assert (select["learn"], select["judge"]) == (named(np.setdiff1d(rows, held)), named(held))
        assert test["stage"] == "test" and test["learn"] == named(rows) and test["n"] == len(TEST)
        assert select["steps"] == 6 * ((143 - len(held)) // 32) and test["steps"] == 6 * (143 // 32)
        told = result.details["draws"][draw]
        assert told["images"] == 143 and sorted(told["per_class"].values()) == [14] * 7 + [15] * 3
        assert result.digests[f"draw {draw}"] == list_digest(TRAIN.ids[rows])
        best = max(records[2 * draw : 2 * draw + 2], key=lambda r: (r["value"], -r["loss"]))
        assert told["chosen"]["lr"] == best["lr"] == test["lr"]
    assert {r["seed"] for r in records} == {0}


def test_the_interval_is_that_of_the_draws(tmp_path: Path) -> None:
    from scipy.stats import t

    result = semi_supervised(model(), DATA, fraction=0.1, out=tmp_path, **{**QUICK, "draws": 3})
    values = [record["value"] for record in lines(tmp_path) if record["stage"] == "test"]
    std = np.std(values, ddof=1)
    assert std > 0 and result.details["std"] == pytest.approx(std) and result.kind == "t over 3 label draws"
    half = t.ppf(0.975, 2) * std / 3**0.5
    assert result.interval == pytest.approx((np.mean(values) - half, np.mean(values) + half))
    assert result.outcomes.tolist() == values == [result.others[f"draw {d}"].value for d in range(3)]
    assert result.value == pytest.approx(np.mean(values)) and result.value > 0.2


def test_a_second_call_does_nothing_and_more_draws_add_only_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = semi_supervised(model(), DATA, fraction=8, out=tmp_path, **QUICK)
    semi_supervised(model(), DATA, fraction=8, out=tmp_path, **{**QUICK, "draws": 3})
    assert len(lines(tmp_path)) == 9
    monkeypatch.setattr("evaluation.tuning.trials.train_classifier", lambda *a, **k: pytest.fail("trained again"))
    assert numbers(semi_supervised(model(), DATA, fraction=8, out=tmp_path, **QUICK)) == numbers(first)


def test_a_number_of_labels_of_each_class(tmp_path: Path) -> None:
    result = semi_supervised(model(), DATA, fraction=4, out=tmp_path, **{**QUICK, "draws": 1})
    assert set(result.details["draws"][0]["per_class"].values()) == {4} and result.details["batch"] == 32
    assert result.kind == "wilson over images" and result.outcomes.dtype == bool
    fewer = semi_supervised(model(), DATA, fraction=2, out=tmp_path, **{**QUICK, "draws": 1})
    assert fewer.details["batch"] == 20  # all of them
    assert lines(tmp_path)[-1]["steps"] == 6


def test_the_order_of_the_rows_is_of_no_account() -> None:
    rng = np.random.default_rng(0)
    shuffled = {name: some(split, rng.permutation(len(split))) for name, split in DATA.items()}
    a, b = (semi_supervised(model(), data, fraction=8, **QUICK) for data in (DATA, shuffled))
    assert a.value == b.value and rounded(a.details) == rounded(b.details)


def rounded(details: dict) -> dict:
    """Numbers to five places: the loss of a torch before 2.13 depends on the place in memory in its last one."""
    return json.loads(json.dumps(details), parse_float=lambda text: round(float(text), 5))


def test_choosing_on_test_takes_one_pair_for_all_draws_and_is_leaky(tmp_path: Path) -> None:
    result = semi_supervised(model(), DATA, fraction=8, select="test", out=tmp_path, **QUICK)
    records = lines(tmp_path)
    assert {record["stage"] for record in records} == {"test"} and len(records) == 4
    means = [np.mean([r["value"] for r in records if r["lr"] == lr]) for lr in QUICK["lrs"]]
    assert result.leaky and result.value == pytest.approx(max(means))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fraction": 0.0}, "fraction"),
        ({"fraction": 1.5}, "fraction"),
        ({"fraction": 0.001}, "fewer than one"),
        ({"fraction": 1}, "fraction=1 "),
        ({"fraction": 5000}, r"asks for 5000 images of each class, but class '0' has 14\d"),
        ({"fraction": 0.007}, "no class has 2"),
        ({"draws": 0}, "draws must be .*, at least 1 .*, got 0"),
        ({"draws": 2.5}, "draws"),
        ({"epochs": 0}, "epochs must be .*, at least 1 .*, got 0"),
        ({"batch_size": 0}, "batch_size must be .*, at least 2 .*, got 0"),
        ({"batch_size": 1}, "batch_size must be .*, at least 2 .*, got 1"),
        ({"seed": -1}, "seed must be .*, at least 0 .*, got -1"),
        ({"lrs": ()}, "lrs"),
        ({"lrs": (0.1, -1.0)}, "lrs must be .*, above 0, .*-1"),
        ({"head_lrs": (0.0,)}, "head_lrs must be .*, above 0, .*0.0"),
        ({"select": "val"}, "select"),
    ],
)
def test_bad_options_are_one_clear_error(options: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        semi_supervised(model(), DATA, **{**QUICK, "fraction": 0.1, **options})


def test_too_few_labels_to_hold_any_out_are_said_before_other_protocols_run() -> None:
    with pytest.raises(UserError, match=r"fraction=0\.007 no class keeps 2 labels"):
        module.open(Subject(model(), "digits"), module.Options(fraction=0.007))


@pytest.mark.parametrize("select", ["held_out", "test"])
def test_one_pair_of_rates_is_not_chosen_and_the_seed_is_told(select: str) -> None:
    options = {**QUICK, "lrs": (0.3,), "draws": np.int64(1), "epochs": np.int64(6), "seed": np.int64(7)}
    result = semi_supervised(model(), DATA, fraction=np.int64(4), select=select, **options)
    assert result.recipe == "4 labels of each class, 6 epochs, one setting, nothing chosen" and not result.leaky
    told = json.loads(result.to_json())
    assert told["details"]["seed"] == 7 and told["seeds"] == [0]


def test_counts_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr("evaluation.protocols.base.open_splits", lambda data, reading: asked.append(reading.counts))
    monkeypatch.setattr(module, "open_task", lambda model, splits, reading: None)
    monkeypatch.setattr(module, "tune_draws", lambda *_: None)
    for how in ({}, {"counts": "warn"}):
        module.run(Subject(model(), "digits", Reading(**how)), module.Options(), Runtime())
    assert asked == ["raise", "warn"]


def test_several_labels_an_image_are_refused() -> None:
    several = {name: replace(split, y=np.ones((len(split), 3), np.int8)) for name, split in DATA.items()}
    with pytest.raises(UserError, match="several labels"):
        semi_supervised(model(), several, **QUICK)
