"""Fine-tuning on numbers: the ink of a digit, measured in its pixels, so that the truth is known."""

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from random_entries import made
from sklearn.metrics import r2_score

import evaluation
import sslkit
from evaluation.datasets import Split, open_split
from evaluation.finetuning.finetune import Finetuned, finetune
from evaluation.finetuning.output import lines
from evaluation.results.numbers import MAE, RMSE
from sslkit import UserError
from sslkit.zoo.classifier import IDENTITY

TRAIN, TEST = (open_split("digits", split) for split in ("train", "test"))
QUICK = {"steps": 8, "grid": {"lr": [0.01, 0.001], "optimizer": "adamw"}, "extend": False, "batch_size": 16}
HOW = {"progress": False, "device": "cpu"}
NUMBERS = {"label": "ink", "label_kind": "number"}


def ink(split: Split, unit: float = 100.0, start: float = 1000.0) -> Split:
    """The split with the mean grey of each image, in some unit from some start."""
    grey = np.array([split.images[row]["images"].float().mean().item() / 255 for row in range(len(split))])
    return replace(split, y=start + unit * grey, classes=["ink"], metric="r2")


@pytest.fixture(scope="module")
def data() -> dict[str, Split]:
    return {"train": ink(TRAIN.take(np.arange(90))), "test": ink(TEST.take(np.arange(40)))}


@pytest.fixture
def call(tmp_path: Path) -> Callable[..., Finetuned]:
    entry = made(tmp_path, "a", "nowhere")

    def call_it(data: Any, out: str = "out", **options: Any) -> Finetuned:
        how = {"out": tmp_path / out, "cache": tmp_path / "cache", **HOW}
        return finetune(entry, data, **{**({} if options.get("head") == "linear" else QUICK), **how, **options})

    return call_it


def predicted(tuned: Finetuned, split: Split) -> np.ndarray:
    return sslkit.load(tuned.entry.folder).predict(split.images).values[:, 0]


@pytest.mark.parametrize("head", ["linear", "network"])
def test_the_kept_model_gives_the_measured_numbers_in_their_unit(
    head: str, call: Callable[..., Finetuned], data: dict[str, Split]
) -> None:
    tuned, y = call(data, head=head), data["test"].y
    numbers = predicted(tuned, data["test"])
    assert tuned.result.value == pytest.approx(r2_score(y, numbers), abs=1e-3)
    assert tuned.result.others[MAE].value == pytest.approx(np.abs(numbers - y).mean(), abs=0.02)
    assert tuned.result.others[RMSE].unit == "ink" and tuned.result.n == 40
    classifier = sslkit.load(tuned.entry.folder).classifier
    assert classifier.link == IDENTITY and classifier.classes == ("ink",) and tuned.calibration is None
    errors = np.sort(np.abs(numbers - y))
    assert classifier.half_widths[0] == pytest.approx(errors[36], abs=0.02)  # the 37th of 40: 0.9 of 41
    said = "\n".join(lines(tuned))
    assert all(word in said for word in ("the mean", "raw pixels", "split conformal", "mean absolute error", " ink"))
    assert tuned.pixels.value > 0.99 and tuned.decision.taken == ""  # ink is the mean of the pixels


def test_a_resumed_call_says_the_same(call: Callable[..., Finetuned], data: dict[str, Split]) -> None:
    first, again = call(data), call(data)
    assert lines(first) == lines(again)
    np.testing.assert_array_equal(first.result.outcomes, again.result.outcomes)


def test_the_unit_of_the_numbers_changes_nothing_but_the_unit(
    call: Callable[..., Finetuned], data: dict[str, Split]
) -> None:
    scaled = {name: replace(split, y=(split.y - 1000) / 7) for name, split in data.items()}
    for head in ("linear", "network"):
        tuned, other = call(data, head=head), call(scaled, out="other", head=head)
        assert other.result.value == pytest.approx(tuned.result.value, abs=1e-3)
        expected = (predicted(tuned, data["test"]) - 1000) / 7
        np.testing.assert_allclose(predicted(other, data["test"]), expected, atol=5e-3)


def write(folder: Path, values: list[Any]) -> Path:
    """Digits with a table of their ink."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = ["path,ink,digit"]
    for row, value in enumerate(values):
        Image.fromarray(TRAIN.images[row]["images"][0].numpy()).save(folder / f"{row:03}.png")
        rows.append(f"{row:03}.png,{value},{int(TRAIN.y[row]) % 2}")
    (folder / "list.csv").write_text("\n".join(rows))
    return folder / "list.csv"


@pytest.mark.filterwarnings("ignore")
def test_from_a_table_to_predictions_with_their_ends(call: Callable[..., Finetuned], tmp_path: Path) -> None:
    values: list[Any] = [f"{value:.4f}" for value in ink(TRAIN.take(np.arange(60))).y]
    values[7] = ""
    tuned = call(write(tmp_path / "pictures", values), head="linear", columns=NUMBERS)
    assert tuned.note == "test: a fifth, held out by name"
    assert tuned.result.n + tuned.entry.card["data"]["images"] == 59
    done = sslkit.predict(tuned.entry.folder, tmp_path / "pictures", out=tmp_path / "numbers.csv", **HOW)
    rows = list(csv.DictReader((tmp_path / "numbers.csv").open()))
    assert list(rows[0]) == ["path", "ink", "ink_low", "ink_high"] and len(rows) == 60
    (half,) = sslkit.load(tuned.entry.folder).classifier.half_widths
    for row in rows:
        assert float(row["ink_high"]) - float(row["ink"]) == pytest.approx(half, abs=1e-3)
    assert "numbers   ink: mean 10" in str(done) and done.sheet.exists()
    numbers = [float(row["ink"]) for row in rows]
    assert done.numbers["ink"] == pytest.approx((np.mean(numbers), min(numbers), max(numbers)), rel=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1.5] * 20, "ink: it is 1.5 for all of 20 images"),
        ([0.5, 1.5, 2.5, 3.5, 4.5], "with a number, and at least 10 are needed"),
        ([*np.arange(0.5, 20), "dark"], r"020\.png: the label 'dark' is no finite number"),
        ([*np.arange(0.5, 20), "inf"], r"020\.png: the label 'inf' is no finite number"),
    ],
)
def test_bad_numbers_are_one_line_before_any_training(
    values: list[Any], said: str, call: Callable[..., Finetuned], tmp_path: Path
) -> None:
    table = write(tmp_path / "pictures", values)
    with pytest.raises(UserError, match=said) as error:
        call(table, columns=NUMBERS)
    assert len(str(error.value).splitlines()) == 1
    assert not list((tmp_path / "out").glob("*"))


def test_rounding_to_bfloat16_is_refused(call: Callable[..., Finetuned], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="precision=bfloat16 rounds numbers"):
        call(tmp_path, columns=NUMBERS, precision="bfloat16")


@pytest.mark.filterwarnings("ignore")
def test_what_needs_classes_says_so_and_names_the_command(
    call: Callable[..., Finetuned], data: dict[str, Split], tmp_path: Path
) -> None:
    entry, table = tmp_path / "a", write(tmp_path / "pictures", list(np.arange(0.5, 30)))
    how = {**HOW, "cache": None}
    calls = [
        lambda: evaluation.evaluate(entry, table, columns=NUMBERS, **how),
        lambda: evaluation.rank([entry], table, columns=NUMBERS, **how),
        lambda: evaluation.fine_tune(entry, data, steps=2, grid={"lr": [0.01]}, **how),
        lambda: evaluation.extract(entry, data["train"], "all", **how),
    ]
    for refused in calls:
        with pytest.raises(UserError, match=r"finetune and solve learn numbers|is open as its split"):
            refused()
