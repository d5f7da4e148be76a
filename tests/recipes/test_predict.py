"""predict: a table and a sheet of every image, from any source, in a few lines of text."""

import csv
from pathlib import Path

import numpy as np
import pytest
from kept_detectors import detecting
from PIL import Image
from random_entries import classifying, made

import sslkit
from sslkit.errors import UserError
from sslkit.models import predict as predicting
from sslkit.zoo.classifier import IDENTITY, SIGMOID

QUICK = {"workers": 0, "device": "cpu", "progress": False, "cache": None}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model, forty pictures and a damaged file."""
    monkeypatch.chdir(tmp_path)
    classifying(Path())
    Path("photos").mkdir()
    for number, pixels in enumerate(sslkit.open_images("digits").pixels[:40, 0]):
        Image.fromarray(pixels).save(f"photos/{number:02}.png")
    Path("photos/damaged.png").write_bytes(b"no picture")
    return tmp_path


def table(path: str) -> list[dict[str, str]]:
    with Path(path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_command_writes_a_row_for_each_image_and_tells_it_in_a_paragraph(place: Path, typed) -> None:
    done = typed("predict", "checkpoint=a", "data=photos", "workers=0", "device=cpu", cwd=place)
    assert done.returncode == 0, done.stderr
    rows = table("predictions.csv")
    expected = sslkit.load("a").predict("photos")
    assert [row["path"] for row in rows] == list(expected.ids) and len(rows) == 40
    assert [row["class"].removeprefix("'") for row in rows] == expected.labels
    values = np.array([[float(row[name]) for name in ("cat", "dog", "'=cow")] for row in rows])
    np.testing.assert_allclose(values, expected.values, atol=1e-6)
    np.testing.assert_allclose([float(row["probability"]) for row in rows], expected.values.max(1), atol=1e-6)
    for told in (
        "predicted 40 images: predictions.csv",
        "classes   ",
        "sure      mean",
        "left out  1 image",
        "next      ",
    ):
        assert told in done.stdout, done.stdout
    assert Path("predictions.png").read_bytes()[:4] == b"\x89PNG" and len(done.stdout.splitlines()) < 12


def test_the_command_writes_a_row_for_each_box(place: Path, typed) -> None:
    detecting(place / "boxes")
    how = ("data=photos", "out=boxes.csv", "workers=0", "device=cpu")
    done = typed("predict", "checkpoint=boxes", *how, cwd=place)
    assert done.returncode == 0, done.stderr
    found, rows = sslkit.load("boxes").predict("photos"), table("boxes.csv")
    assert list(rows[0]) == ["path", "class", "score", "x0", "y0", "x1", "y1"] and len(rows) == len(found.boxes)
    assert [row["path"] for row in rows] == [found.ids[image] for image in found.image]
    assert [row["class"].removeprefix("'") for row in rows] == [found.classes[label] for label in found.labels]
    values = np.array([[float(row[name]) for name in ("x0", "y0", "x1", "y1", "score")] for row in rows])
    np.testing.assert_allclose(values, np.column_stack([found.boxes, found.scores]), atol=1e-4)
    for told in (
        "predicted 40 images: boxes.csv",
        f"boxes     {len(rows):,}: ",
        "left out  1 image",
        "sheet     boxes.png",
    ):
        assert told in done.stdout, done.stdout
    assert "export" not in done.stdout and Path("boxes.png").is_file()
    assert str(found).splitlines()[0].split() == list(rows[0])


@pytest.mark.parametrize("kind", ["a list", "standard input", "an array", "shards", "one image"])
def test_the_same_images_from_another_source_have_the_same_probabilities(
    kind: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("photos/damaged.png").unlink()
    expected = sslkit.load("a").predict("photos").values
    paths = [str(path) for path in sorted(Path("photos").iterdir())]
    data: object = "-"
    if kind == "a list":
        data = "list.txt"
        Path(data).write_text("\n".join(paths))
    elif kind == "standard input":
        monkeypatch.setattr(predicting.sys, "stdin", [f"{path}\n" for path in paths])
    elif kind == "an array":
        data = np.stack([np.asarray(Image.open(path)) for path in paths])
    elif kind == "shards":
        from sslkit.data.sources.shard_writer import write_shards

        write_shards("photos", out="packed")
        data = "shards:packed"
    else:
        data, expected = paths[7], expected[7:8]
    done = sslkit.predict("a", data, out="p.csv", pictures=False, **QUICK)
    values = np.array([[float(row[name]) for name in ("cat", "dog", "'=cow")] for row in table("p.csv")])
    # torch resizes arrays and Pillow pictures: pixels differ by one gray level at most
    np.testing.assert_allclose(values, expected, atol=5e-3 if kind == "an array" else 1e-6)
    assert done.images == len(expected) and done.sheet is None and sum(done.counts.values()) == len(expected)


def test_frames_of_a_video(place: Path) -> None:
    films = pytest.importorskip("films")  # PyAV
    films.write_film(place / "film.mp4", 80)
    done = sslkit.predict("a", "frames:film.mp4", every=0.8, out="p.csv", **QUICK)
    rows = table("p.csv")
    assert [Path(row["path"]).name for row in rows] == [f"film.mp4#t={second:g}" for second in (0, 0.8, 1.6, 2.4)]
    frames = sslkit.open_images("frames:film.mp4", every=0.8, cache=None)
    pictures = np.stack([picture.numpy() for picture in frames.read_whole([0, 1, 2, 3])["images"]])
    values = np.array([[float(row[name]) for name in ("cat", "dog", "'=cow")] for row in rows])
    np.testing.assert_allclose(values, sslkit.load("a").predict(pictures).values, atol=5e-3)  # resized by torch
    assert done.sheet == Path("p.png") and done.images == 4


def test_several_classes_and_numbers(place: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow.parquet")
    classifying(place / "several", SIGMOID), classifying(place / "numbers", IDENTITY, ("age", "weight"))
    done = sslkit.predict("several/a", "photos", out="p.parquet", **QUICK)
    rows = pyarrow.read_table("p.parquet").to_pylist()
    for row in rows:
        assert row["classes"] == "|".join(name for name in ("cat", "dog", "=cow") if row[name] > 0.5)
    assert 0.5 < done.confidence <= 1 and Path("p.png").is_file()
    told = sslkit.predict("numbers/a", "photos", out="numbers.csv", **QUICK)
    assert set(table("numbers.csv")[0]) == {"path", "age", "weight"} and not told.counts
    assert told.sheet == Path("numbers.png") and told.sheet.is_file() and "numbers   weight: mean" in str(told)


def test_the_sheet_has_the_surest_and_the_least_sure(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    monkeypatch.setattr(predicting, "draw_sheet", lambda groups, path, digits: drawn.append(groups))
    sslkit.predict("a", "photos", batch_size=7, **QUICK)
    found = sslkit.load("a").predict("photos")
    order = np.argsort(-found.values.max(1), kind="stable")
    assert [cell.name for cell in drawn[0]["surest"]] == [found.ids[row] for row in order[:12]]
    assert {cell.name for cell in drawn[0]["least sure"]} == {found.ids[row] for row in order[-12:]}


def test_what_cannot_be_predicted_is_one_line(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(place, "plain", "digits")
    monkeypatch.setattr(predicting.sys, "stdin", [])
    for model, data, more, said in (
        ("plain", "photos", {}, "plain has no classifier, and so no classes"),
        ("efficientnet_lite0", "photos", {}, "has no classifier|pip install"),
        ("a", "photos", {"out": "p.txt"}, r"out=p\.txt must end with \.csv or \.parquet"),
        ("a", "-", {}, "standard input, a line each, and there is none"),
        ("a", "nothing-here", {}, "nothing-here"),
    ):
        with pytest.raises(UserError, match=said) as error:
            sslkit.predict(model, data, **more, **QUICK)
        assert "\n" not in str(error.value) and not Path("predictions.csv").exists()
