"""PED's reference: card, task, a data set, a file; each gives the numbers that it names, and faults are one line."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from random_entries import CLOTHES, made

import evaluation
import sslkit
from evaluation.datasets import Reading, open_split
from evaluation.ranking.inputs.candidates import draw_images
from evaluation.ranking.inputs.references import open_reference, write_reference
from sslkit.data.published import imagenet
from sslkit.errors import UserError
from sslkit.runtime.context import Runtime

HOW = {"cache": "cache", "progress": False, "workers": 0}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    x, y = CLOTHES.pixels[:300, 0], CLOTHES.labels[:300]
    np.savez(tmp_path / "task.npz", x_train=x[:200], y_train=y[:200], x_test=x[200:], y_test=y[200:])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ranked(models: list[Path], reference: object) -> evaluation.Ranking:
    zoo = [str(one) for one in models]
    return evaluation.rank(zoo, "task.npz", ["ped+logme"], reference=reference, bootstrap=0, max_images=60, **HOW)


def features(model: Path, split: str) -> np.ndarray:
    return np.asarray(evaluation.extract(model, "task.npz", split, **HOW).x, dtype=np.float64)


def test_a_data_set_gives_the_statistics_of_its_test_images_and_a_file_the_same_score(place: Path) -> None:
    model = made(place, "byol", "task.npz")
    x = features(model, "test")
    expected = score(model, (x.mean(0), x.std(0)))
    reference = open_reference("task.npz")
    assert str(reference) == "100 images of task (test)"
    ranking = ranked([model], reference)
    assert ranking.scores[0, 0] == pytest.approx(expected, rel=1e-9) and ranking.made["reference"] == "task.npz"
    assert "PED: mean and std of 100 images of task (test)" in ranking.notes
    write_reference(reference, {"byol": None}, place / "statistics.npz")
    assert ranked([model], "statistics.npz").scores[0, 0] == pytest.approx(expected, rel=1e-9)
    mean, std = x.mean(0), x.std(0)
    np.savez(place / "plain.npz", mean=mean, std=std)
    (place / "plain.json").write_text(json.dumps({"mean": mean.tolist(), "std": std.tolist()}))
    (place / "named.json").write_text(json.dumps({"byol": {"mean": mean.tolist(), "std": std.tolist()}}))
    for file in ("plain.npz", "plain.json", "named.json"):
        assert ranked([model], file).scores[0, 0] == pytest.approx(expected, rel=1e-9)
    assert abs(expected - ranked([model], "task").scores[0, 0]) > 1e-6  # they are another reference


def test_the_published_statistics_are_of_imagenets_validation_images(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, wnid in enumerate(("n01440764", "n01443537")):
        (place / "data" / "imagenet" / "val" / wnid).mkdir(parents=True)
        for row in range(3):
            pixels = CLOTHES.pixels[3 * number + row, 0]
            Image.fromarray(pixels).save(place / "data" / "imagenet" / "val" / wnid / f"ILSVRC2012_val_{row}.JPEG")
    small = dataclasses.replace(imagenet.ENTRY, counts={"train": 9, "test": 6}, classes=2)
    monkeypatch.setattr(imagenet, "ENTRY", small)
    reference = open_reference("imagenet")
    assert str(reference) == "6 images of imagenet (test)" and reference.notes() == (
        f"PED: mean and std of {reference}",
    )
    model = sslkit.load(made(place, "byol", "task.npz"))
    mean, std = reference.statistics_of("byol", model, Reading(), Runtime(**HOW))
    x = np.asarray(evaluation.extract(model, open_split("imagenet", "val", root="data"), "test", **HOW).x, np.float64)
    np.testing.assert_allclose([mean, std], [x.mean(0), x.std(0)], rtol=1e-12)


def test_statistics_are_of_what_is_asked_now(place: Path) -> None:
    reference, model = open_reference("task.npz"), sslkit.load(made(place, "byol", "task.npz"))
    for how in (HOW, {**HOW, "resize": 40}, HOW):
        reading = Reading(resize=how.get("resize"))
        mean, std = reference.statistics_of("byol", model, reading, Runtime(**HOW))
        x = np.asarray(evaluation.extract(model, "task.npz", "test", **how).x, np.float64)
        np.testing.assert_allclose([mean, std], [x.mean(0), x.std(0)], rtol=1e-12)


def score(model: Path, reference: object) -> float:
    task = evaluation.extract(model, draw_images(open_split("task.npz", "train"), 60, 0), "train", **HOW)
    return evaluation.score("ped+logme", task, reference=reference)


def test_card_and_task(place: Path) -> None:
    model = made(place, "byol", "task.npz")
    with pytest.warns(UserWarning, match="no reference"):
        expected = score(model, None)
    for asked in ("task", "card"):  # this card has none
        ranking = ranked([model], asked)
        assert ranking.scores[0, 0] == pytest.approx(expected, rel=1e-9)
        assert any("PED takes those of the task's own images" in note for note in ranking.notes)
    assert ranking.made["reference"] == "card"


def test_a_model_that_the_file_lacks_has_no_ped_and_the_other_has(place: Path) -> None:
    models = [made(place, name, "task.npz") for name in ("one", "two")]
    x = features(models[0], "test")
    np.savez(place / "some.npz", **{"one/mean": x.mean(0), "one/std": x.std(0)})
    ranking = ranked(models, "some.npz")
    assert np.isfinite(ranking.scores[0, 0]) and np.isnan(ranking.scores[1, 0])
    note = "no PED: reference=some.npz has no statistics of this model, only of one (two)"
    assert note in ranking.notes
    np.savez(place / "narrow.npz", mean=np.zeros(3), std=np.ones(3))
    with pytest.raises(UserError, match="has 3 means, this model 128 features"):
        open_reference("narrow.npz").statistics_of("one", sslkit.load(models[0]), Reading(), Runtime())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"mean": [0.0, 1.0], "std": [1.0]}, "must be"),
        ({"mean": [0.0], "std": [-1.0]}, "std not below 0"),
        ({"mean": [0.0]}, "cannot be read as means and stds"),
        ({"one": {"mean": [[0.0]], "std": [[1.0]]}}, "mean and std of one"),
        ({"one": 7}, "cannot be read as means and stds"),
        ([1], "cannot be read as means and stds"),
        ({}, "has no means and stds"),
        ({"mean": ["a"], "std": ["b"]}, "no kind of real number"),
    ],
)
def test_files_that_are_no_statistics(place: Path, content: object, said: str) -> None:
    (place / "file.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=said):
        open_reference("file.json")


def test_words_that_are_nothing(place: Path) -> None:
    for asked in ("nowhere.npz", "nowhere", "imagenet"):
        with pytest.raises(UserError):
            open_reference(asked)
    (place / "half.npz").write_bytes((place / "task.npz").read_bytes()[:99])
    (place / "empty.npz").write_bytes(b"")
    for file in ("half.npz", "empty.npz"):
        with pytest.raises(UserError, match="cannot be read"):
            open_reference(file)


def test_options_that_no_metric_reads_are_refused(place: Path) -> None:
    model = str(made(place, "byol", "task.npz"))
    with pytest.raises(UserError, match=r"reference=task\.npz is for ped: metrics=\[ped\+logme\]"):
        evaluation.rank([model], "task.npz", ["logme"], reference="task.npz")
    with pytest.raises(UserError, match=r"source=labels is for leep and nce: metrics=\[leep,nce\]"):
        evaluation.rank([model], "task.npz", ["logme"], source="labels")
