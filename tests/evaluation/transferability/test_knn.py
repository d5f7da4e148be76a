"""Nearest neighbours: all similarities of all others, by a loop."""

import dataclasses

import numpy as np
import pytest

import evaluation
import sslkit
from evaluation.features import as_features
from evaluation.ranking.scoring import evaluate_metric
from sslkit.errors import UserError


def draw(n: int = 70, d: int = 9, c: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.concatenate([np.arange(c), rng.integers(c, size=n - c)])
    return rng.normal(size=(c, d))[y] + rng.normal(size=(n, d)), y


def looped(x: np.ndarray, y: np.ndarray, k: int, temperature: float) -> np.ndarray:
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    right = []
    for i in range(len(x)):
        similar = {j: float(unit[i] @ unit[j]) for j in range(len(x)) if j != i}
        votes = dict.fromkeys(sorted(set(y.tolist())), 0.0)
        for j in sorted(similar, key=similar.get, reverse=True)[:k]:
            votes[int(y[j])] += np.exp(similar[j] / temperature)
        right.append(max(votes, key=votes.get) == y[i])
    return np.array(right, dtype=float)


@pytest.mark.parametrize(("k", "temperature"), [(1, 0.07), (5, 0.07), (20, 0.07), (20, 10.0)])
def test_all_others_by_a_loop(k: int, temperature: float) -> None:
    x, y = draw()
    result = evaluate_metric("knn", x, y, k=k, temperature=temperature)
    assert result.details.terms.tolist() == looped(x, y, k, temperature).tolist()
    assert result.score == float(result.details.terms.mean())


def test_the_nearest_on_real_digits() -> None:
    from sklearn.model_selection import LeaveOneOut, cross_val_predict
    from sklearn.neighbors import KNeighborsClassifier

    images = sslkit.open_images("digits", split="train")
    x, y = images.pixels[:200].reshape(200, -1).astype(np.float32), np.asarray(images.labels[:200])
    nearest = KNeighborsClassifier(1, metric="cosine", algorithm="brute")
    expected = np.mean(cross_val_predict(nearest, x, y, cv=LeaveOneOut()) == y)
    assert evaluation.score("knn", x, y, k=1) == pytest.approx(expected) and expected > 0.9


def test_what_does_not_matter() -> None:
    x, y = draw()
    before, score = x.copy(), evaluation.score("knn", x, y)
    rows, turn = np.random.default_rng(1).permutation(70), np.linalg.qr(np.random.default_rng(2).normal(size=(9, 9)))[0]
    lengths = np.random.default_rng(3).uniform(0.1, 9, size=(70, 1))
    for features, labels in [
        (x[rows], y[rows]),
        (x @ turn, y),
        (x * lengths, y),
        (np.pad(x, ((0, 0), (0, 90))), 3 * y),
    ]:
        assert evaluation.score("knn", features, labels) == score
    assert (x == before).all()


def test_few_images_have_fewer_neighbours() -> None:
    x, y = draw(n=6, d=40)
    result = evaluate_metric("knn", x, y)
    assert result.diagnostics["k"] == 5
    assert result.score == looped(x, y, 5, 0.07).mean()


def test_bad_input() -> None:
    x, y = draw()
    for options in ({"k": 0}, {"temperature": 0.0}):
        with pytest.raises(UserError, match=r"option k must be .*at least 1|option temperature must be .*above 0"):
            evaluation.score("knn", x, y, **options)


@pytest.mark.parametrize("lost", [[3], [0, 3, 11], list(range(69)), list(range(70))])
def test_rows_of_zeros_are_wrong_and_nobodys_neighbours(lost: list[int]) -> None:
    x, y = draw()
    x[lost] = 0
    kept = np.setdiff1d(np.arange(70), lost)
    result = evaluate_metric("knn", x, y, k=5)
    right = looped(x[kept], y[kept], 5, 0.07) if len(kept) > 1 else np.zeros(len(kept))
    assert result.score == pytest.approx(right.sum() / 70)
    assert any(f"{len(lost)} of 70 rows of features are all zeros" in said for said in result.warnings)


@pytest.mark.parametrize("scale", [1e60, 2.0**-200, 1e-60])
def test_scales_beyond_float32_change_no_neighbour(scale: float) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    x = rng.normal(size=(3, 8))[y] + rng.normal(size=(60, 8))
    assert evaluate_metric("knn", x * scale, y).score == evaluate_metric("knn", x, y).score


def test_copies_do_not_vote_for_each_other() -> None:
    x, y = draw()
    rng = np.random.default_rng(5)
    y = rng.permutation(y)  # features say nothing: copies would
    copied = np.concatenate([x, x[:30]]), np.concatenate([y, y[:30]])
    found = evaluate_metric("knn", *copied, k=1).details.terms
    assert found[70:].tolist() == found[:30].tolist() == looped(x, y, 1, 0.07)[:30].tolist()


def test_images_of_one_group_do_not_vote_for_each_other() -> None:
    """Three near-equal images of each object, whose class has nothing to do with them: what chance gives is right."""
    generator = np.random.default_rng(0)
    objects, y = generator.normal(size=(200, 256)), np.repeat(generator.integers(4, size=200), 3)
    x = np.repeat(objects, 3, 0) + 1e-3 * generator.normal(size=(600, 256))
    x[5] = x[4]  # a copy, too
    groups = np.repeat(np.arange(200), 3)
    given = dataclasses.replace(as_features((x, y)), groups=groups)
    for name in ("knn", "linear_probe", "itm", "lead"):
        alone, together = (evaluation.score(name, one, seed=0) for one in (as_features((x, y)), given))
        assert alone > 0.9 and together < 0.4 if name != "lead" else together < alone - 0.1, name
    with pytest.raises(UserError, match="all 600 images are of one group"):
        evaluation.score("knn", dataclasses.replace(given, groups=np.zeros(600, np.int64)))
