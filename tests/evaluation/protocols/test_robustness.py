"""A probe on further sets of the same classes: names are matched, classes that one lacks are left out and said."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.metrics import log_loss

import evaluation
from evaluation.judging.summary import evaluate_models
from evaluation.learners.calibration import softmax
from evaluation.protocols import linear
from sslkit.errors import UserError
from sslkit.runtime.context import Runtime

COLOURS = {"red": (200, 40, 40), "green": (40, 200, 40), "blue": (40, 40, 200), "Grey Thing": (120, 120, 120)}
MODEL, QUICK = "pixels", {"cache": None, "workers": 0, "progress": False}


def write(folder: Path, classes: dict[str, str], count: int, noise: float, seed: int) -> None:
    """Images of one colour and noise. classes: the folder of each colour."""
    rng = np.random.default_rng(seed)
    for colour, name in classes.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            pixels = np.clip(COLOURS[colour] + noise * rng.standard_normal((16, 16, 3)), 0, 255).astype(np.uint8)
            turn = rng.random() < noise / 400
            Image.fromarray(pixels[..., ::-1].copy() if turn else pixels).save(
                folder / name / f"{seed}-{number:03}.png"
            )


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Photos of four classes; sketches of two of them, in other spelling, and one of their own."""
    monkeypatch.chdir(tmp_path)
    same = {name: name for name in COLOURS}
    write(tmp_path / "photos" / "train", same, 20, 60, 1)
    write(tmp_path / "photos" / "test", same, 12, 60, 2)
    write(tmp_path / "sketches", {"green": "GREEN", "red": "zebra", "Grey Thing": "grey_thing"}, 15, 150, 3)
    return tmp_path


def measure(**options: object) -> list[evaluation.Result]:
    return evaluation.robustness(MODEL, "photos", **options, **QUICK)


def test_a_further_set_is_told_within_the_classes_that_it_shares(place: Path) -> None:
    home, sketches = measure(sets=["sketches"])
    train, test = (evaluation.extract(MODEL, "photos", split, **QUICK) for split in ("train", "test"))
    other = evaluation.extract(MODEL, "sketches", "all", **QUICK)
    alone = evaluation.linear_probe(train, test, progress=False)
    assert (home.value, home.interval, home.n) == (alone.value, alone.interval, 48)
    _, fitted = linear.fit_classifier(train, test, linear.Options(), Runtime(progress=False))
    assert fitted.classes == ("Grey Thing", "blue", "green", "red")
    names = [other.classes[label].lower().replace("_", " ") for label in other.y]
    rows = [row for row, name in enumerate(names) if name != "zebra"]
    y = np.array([["grey thing", "green"].index(names[row]) for row in rows])
    scores = fitted.layers(torch.from_numpy(np.array(other.x[rows]))).detach().double().numpy()[:, [0, 2]]
    right = scores.argmax(1) == y
    assert sketches.value == pytest.approx(right.mean()) and sketches.n == 30 and sketches.data == "sketches"
    probabilities = softmax(scores)
    assert sketches.others["nll"].value == pytest.approx(log_loss(y, probabilities, labels=[0, 1]), abs=1e-6)
    scaled = softmax(fitted.beta * scores)
    assert sketches.others["nll_scaled"].value == pytest.approx(log_loss(y, scaled, labels=[0, 1]), abs=1e-6)
    assert sketches.details["temperature"] == pytest.approx(1 / fitted.beta)
    there = np.isin(test.y, [train.classes.index("green"), train.classes.index("Grey Thing")])
    at_home = fitted.layers(torch.from_numpy(np.array(test.x[there]))).detach().numpy()[:, [0, 2]]
    home_right = at_home.argmax(1) == (test.y[there] == train.classes.index("green"))
    assert sketches.others["drop"].value == pytest.approx(home_right.mean() - right.mean())
    low, high = sketches.others["drop"].interval
    assert low < sketches.others["drop"].value < high and "drop" not in home.others


def test_the_command_prints_one_table_and_what_is_left_out_and_writes_the_classes(place: Path, capsys) -> None:
    options = {"robustness": {"sets": ["sketches"], "worst": 3}}
    evaluate_models(MODEL, None, "photos", ["robustness"], options=options, out="out", **QUICK)
    said = " ".join(capsys.readouterr().out.split())
    assert "sketches (all): 2 of 4 classes; without blue, red; not learned and left out: zebra" in said
    for column in ("accuracy", "drop", "loss", "Brier (0", "calibration"):
        assert column in said.partition("[1] linear probe of photos")[2]
    assert "at temperature" in said and "15 bins of equally many images" in said
    (path,) = place.glob("out/*/robustness-photos.csv")
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert {row["data"] for row in rows} == {"test", "sketches"} or {row["data"] for row in rows} == {
        "photos",
        "sketches",
    }
    home = {row["class"]: row for row in rows if row["data"] != "sketches"}
    assert set(home) == set(COLOURS) and all(row["images"] == "12" for row in home.values())
    accuracies = [float(row["accuracy"]) for row in rows if row["data"] == "sketches"]
    assert accuracies == sorted(accuracies) and len(accuracies) == 2
    assert all(float(row["low"]) <= float(row["accuracy"]) <= float(row["high"]) for row in rows)
    assert all((int(row["times"]) > 0) == (float(row["accuracy"]) < 1) for row in rows)
    assert len(list(path.parent.glob("robustness-photos*.png"))) == len({r["data"] for r in rows if int(r["times"])})


def test_images_of_train_make_a_set_leaky(place: Path) -> None:
    for name in COLOURS:
        (place / "again" / name).mkdir(parents=True)
        for path in list((place / "photos" / "train" / name).iterdir())[:5]:
            (place / "again" / name / f"copy-{path.name}").write_bytes(path.read_bytes())
    home, again = measure(sets=["again"])
    assert again.leaky and again.details["in_train"] == 20 and not home.leaky


def test_groups_of_images_widen_the_intervals(place: Path) -> None:
    lines = ["path,label,split,patient"]
    for split, count in (("train", 20), ("test", 12)):
        for name in COLOURS:
            for number, path in enumerate(sorted((place / "photos" / split / name).iterdir())[:count]):
                lines.append(f"{path.relative_to(place)},{name},{split},{split}-{name}-{number // 4}")
    (place / "table.csv").write_text("\n".join(lines))
    (plain,) = evaluation.robustness(MODEL, "table.csv", **QUICK)
    (grouped,) = evaluation.robustness(MODEL, "table.csv", columns={"group": "patient"}, **QUICK)
    assert "12 groups" in grouped.others["nll"].kind and "images" in plain.others["nll"].kind
    assert grouped.value == plain.value or grouped.details["chosen_by"] == "held-out train"


FAULTS = {
    "twice": (["sketches", "sketches"], "sketches is given twice"),
    "itself": (["photos"], "photos is given twice, or is the data itself"),
    "one class": (["one"], "one has one class of photos, red: give one with two"),
    "none": (["strange"], "train and test have no class in common"),
    "not there": (["nowhere"], "nowhere"),
    "no labels": (["bare"], "bare has no labels"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_fault_is_one_line_before_features_are_extracted(case: str, place: Path, monkeypatch) -> None:
    write(place / "one", {"red": "red", "blue": "x"}, 3, 10, 4)
    write(place / "strange", {"red": "x", "blue": "y"}, 3, 10, 5)
    write(place / "bare", {"red": ""}, 6, 10, 6)
    monkeypatch.setattr("evaluation.features.extraction._run", None)
    sets, told = FAULTS[case]
    with pytest.raises(UserError, match=told):
        measure(sets=sets)
