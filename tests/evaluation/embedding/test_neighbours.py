"""Nearest neighbours against all pairs in numpy."""

import csv

import numpy as np
import pytest

from evaluation.embedding import neighbours as search
from evaluation.embedding.neighbours import check_k, nearest, write_neighbours
from sslkit.errors import UserError


def brute_force(x: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    unit = x.astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    cosine = unit @ unit.T
    np.fill_diagonal(cosine, -np.inf)
    rows = np.argsort(-cosine, axis=1, kind="stable")[:, :k]
    return rows, np.take_along_axis(cosine, rows, 1)


@pytest.fixture
def x(generator) -> np.ndarray:
    rng = np.random.default_rng(0)
    return (rng.normal(size=(30, 16))[rng.integers(0, 30, 600)] + rng.normal(size=(600, 16))).astype(np.float32)


@pytest.mark.parametrize("k", [1, 7, 599])
def test_exact_neighbours_are_those_of_all_pairs(k: int, x: np.ndarray, monkeypatch) -> None:
    monkeypatch.setattr(search, "QUERIES", 128)
    found = nearest(x, k, search="exact")
    rows, cosines = brute_force(x, k)
    if k < 599:  # among all 179,700 cosines some differ by less than rounding
        np.testing.assert_array_equal(found.indices, rows)
    assert (np.sort(found.indices, axis=1) == np.sort(rows, axis=1)).all()
    np.testing.assert_allclose(found.similarities, cosines, atol=1e-6)
    assert found.recall == 1 and found.similarities.dtype == np.float32


def test_equal_images_come_in_the_order_of_their_rows(x: np.ndarray) -> None:
    copies = x[[5, 9, 5, 9, 5, 9, 5]]
    assert nearest(copies, 3, search="exact").indices[[0, 2, 4, 6]].tolist() == [
        [2, 4, 6],
        [0, 4, 6],
        [0, 2, 6],
        [0, 2, 4],
    ]


@pytest.mark.parametrize("kind", ["hnsw", "ivf"])
def test_an_approximate_search_is_near_and_repeats(kind: str, x: np.ndarray) -> None:
    first, again = nearest(x, 5, kind), nearest(x, 5, kind)
    np.testing.assert_array_equal(first.indices, again.indices)
    np.testing.assert_array_equal(first.similarities, again.similarities)
    rows, _ = brute_force(x, 5)
    share = np.mean([len({*a} & {*b}) / 5 for a, b in zip(first.indices, rows, strict=True)])
    assert share > 0.95 and abs(first.recall - share) < 0.03
    assert (first.indices != np.arange(len(x))[:, None]).all() and (np.diff(first.similarities) <= 0).all()


def test_rows_with_too_few_candidates_are_searched_exactly(x: np.ndarray, monkeypatch) -> None:
    monkeypatch.setattr(search, "PROBES", 1)
    found = nearest(x, 200, "ivf")
    few = found.indices[0]
    assert len(set(few)) == 200 and np.isfinite(found.similarities).all()


@pytest.mark.parametrize(
    ("k", "n", "said"), [(5, 1, "1 image, so each has 0 others"), (3, 3, "below"), (0, 9, "at least 1")]
)
def test_k_must_leave_others(k: int, n: int, said: str) -> None:
    with pytest.raises(UserError, match=said):
        check_k(k, n)


def test_the_files_name_the_images(x: np.ndarray, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(search, "CSV_ROWS", 3)
    paths, found = [f"{row}.png" for row in range(9)], nearest(x[:9], 2, search="exact")
    write_neighbours(found, paths, tmp_path / "n.npz", tmp_path / "n.csv")
    with np.load(tmp_path / "n.npz", allow_pickle=False) as file:
        np.testing.assert_array_equal(file["indices"], found.indices)
        np.testing.assert_array_equal(file["similarities"], found.similarities)
    with (tmp_path / "n.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["image"] for row in rows] == ["0.png"] * 2 + ["4.png"] * 2 + ["8.png"] * 2
    assert [row["neighbour"] for row in rows[:2]] == [paths[one] for one in found.indices[0]]


def test_a_name_is_no_formula_and_a_negative_cosine_is_a_number(tmp_path) -> None:
    found = nearest(np.array([[1, 0], [-1, 0.5]], np.float32), 1, search="exact")
    write_neighbours(found, ["=cls/a.png", "b.png"], tmp_path / "n.npz", tmp_path / "n.csv")
    rows = (tmp_path / "n.csv").read_text().splitlines()[1:]
    assert rows == ["'=cls/a.png,1,b.png,-0.8944", "b.png,1,'=cls/a.png,-0.8944"]
