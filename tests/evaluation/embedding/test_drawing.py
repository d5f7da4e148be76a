"""The map: every image has a place of its own, classes a colour; bad input is refused."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

import sslkit
from evaluation.datasets import Reading
from evaluation.embedding import drawing
from evaluation.embedding.drawing import build_legend, draw_map, map_to_plane, snap_to_grid
from evaluation.embedding.sources import open_parts
from evaluation.embedding.table import embed_parts
from evaluation.embedding.thumbnails import thumbnails
from sslkit.data.thumbnails import shorten
from sslkit.errors import UserError
from sslkit.numerics.figures import class_styles
from sslkit.runtime.context import Runtime


@pytest.fixture
def parts(clipart):
    return open_parts(clipart, None)


@pytest.fixture
def embedding(parts, net, tmp_path):
    return embed_parts(
        sslkit.load(net, image_size=16),
        parts,
        Reading(cache=tmp_path / "cache"),
        Runtime(cache=tmp_path / "cache", workers=0, progress=False),
    )


@pytest.mark.parametrize(("method", "most"), [("pca", 400), ("tsne", 10)])
def test_a_map_of_thumbnails_or_dots(method: str, most: int, parts, embedding, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(drawing, "THUMBNAILS", most)
    caption = draw_map(embedding, parts, tmp_path / "map.png", method, seed=0)
    assert caption.startswith("36 images; ") and ("Thumbnails" in caption) == (most == 400)
    with Image.open(tmp_path / "map.png") as image:
        assert image.width > 600 and len(np.unique(np.asarray(image.convert("RGB")).reshape(-1, 3), axis=0)) > 50


def test_pca_is_that_of_numpy(embedding) -> None:
    flat, said = map_to_plane(embedding.x, "pca", 0)
    z = embedding.x.astype(np.float64)
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    z -= z.mean(0)
    u, s, _ = np.linalg.svd(z, full_matrices=False)
    np.testing.assert_allclose(np.abs(flat), np.abs(u[:, :2] * s[:2]), atol=1e-5)
    assert f"{100 * np.square(s[:2]).sum() / np.square(s).sum():.0f} %" in said


def test_no_two_thumbnails_share_a_cell() -> None:
    flat = np.concatenate([np.zeros((30, 2)), np.random.default_rng(0).normal(size=(70, 2))])
    cells, side = snap_to_grid(flat)
    assert len(np.unique(cells, axis=0)) == 100 and cells.min() >= 0 and cells.max() < side


def test_the_largest_classes_are_named(embedding) -> None:
    label, names, styles = build_legend(embedding)
    assert names == ["animals (12)", "food (12)", "tools (12)"]
    assert styles == class_styles(embedding.classes), "those of every other picture of the data set"
    np.testing.assert_array_equal(label, embedding.y)
    many = replace(embedding, y=np.arange(36) % 30, classes=[f"c{n:02d}" for n in range(30)])
    label, names, styles = build_legend(many)
    assert len(names) == len(set(styles)) == 21 and names[-1] == "10 other classes (10)"
    assert np.bincount(label).tolist() == [2] * 6 + [1] * 14 + [10]
    assert build_legend(replace(embedding, y=np.full(36, -1)))[1] == []


def test_a_thumbnail_is_the_whole_image(parts, embedding, clipart) -> None:
    (picture,) = thumbnails(parts, embedding.paths, [17], 48)
    with Image.open(clipart / embedding.paths[17]) as image:
        np.testing.assert_array_equal(picture, np.asarray(image.convert("RGB")))
    assert shorten("a/very/long/name.png", 9) == "…name.png" and shorten("short.png", 9) == "short.png"
    assert shorten("a\udcff.png", 9) == "a?.png"


def test_what_has_no_map_is_an_error(parts, embedding, tmp_path) -> None:
    few = replace(embedding, x=embedding.x[:3], paths=embedding.paths[:3])
    with pytest.raises(UserError, match="at least 4 images, not 3"):
        draw_map(few, parts, tmp_path / "map.png", seed=0)
    with pytest.raises(UserError, match="are equal"):
        draw_map(replace(embedding, x=np.ones_like(embedding.x)), parts, tmp_path / "map.png", "pca", seed=0)
