"""Scores of rankings against the rules of revisited Oxford and of mAP at R, written a second time as loops."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from evaluation.learners import rankings
from evaluation.learners.rankings import (
    average_precision,
    first_answers,
    hit,
    precision_at_k,
    precision_at_r,
    rank_gallery,
    trapezoid,
)

MEANS = {"map": average_precision, "map_at_r": precision_at_r}
KS = (1, 5, 10)


def by_rule(order: Sequence[int], right: Sequence[int], junk: Sequence[int], ks: Sequence[int] = KS) -> list[float]:
    """Average precision and precision at k of one query by the rule of revisited Oxford: a ranking without junk.

    The curve is joined by straight lines; before the first image precision is 1. Precision at k ends at the last
    answer, where that comes before k.
    """
    kept = [row for row in order if row not in set(junk)]
    places = [place for place, row in enumerate(kept) if row in set(right)]
    area = 0.0
    for number, place in enumerate(places):
        left = number / place if place else 1.0
        area += (left + (number + 1) / (place + 1)) / (2 * len(right))
    at = []
    for k in ks:
        until = min(places[-1] + 1, k)
        at.append(sum(place < until for place in places) / until)
    return [area, *at]


def at_r(order: Sequence[int], right: Sequence[int]) -> float:
    total, seen = 0.0, 0
    for place, row in enumerate(order[: len(right)], 1):
        if row in right:
            seen += 1
            total += seen / place
    return total / len(right)


def instances(y: np.ndarray) -> Callable[[int], tuple[np.ndarray, np.ndarray]]:
    def answers(query: int) -> tuple[np.ndarray, np.ndarray]:
        same = np.flatnonzero(y == y[query])
        return same[same != query], np.array([query])

    return answers


@pytest.fixture(scope="module")
def labelled() -> tuple[np.ndarray, np.ndarray]:
    """60 rows of nine instances, one of which has a single row and one two."""
    rng = np.random.default_rng(0)
    y = np.concatenate([[0], [1, 1], rng.integers(2, 9, 57)])
    return (np.eye(9)[y] + rng.standard_normal((60, 9))).astype(np.float32), y


def cosines(x: np.ndarray, bank: np.ndarray) -> np.ndarray:
    x, bank = (rows.astype(float) / np.linalg.norm(rows.astype(float), axis=1, keepdims=True) for rows in (x, bank))
    return x @ bank.T


def test_rankings_with_junk_are_scored_by_the_rules_of_revisited_oxford() -> None:
    rng = np.random.default_rng(1)
    queries, gallery = (rng.standard_normal((n, 12)).astype(np.float32) for n in (25, 70))
    kinds = [np.split(rng.permutation(70)[:30], [a, a + b]) for a, b in rng.integers(1, 12, (25, 2))]
    scores = {"map": trapezoid, **{f"p{k}": partial(precision_at_k, k) for k in KS}}
    ranked = rank_gallery(queries, gallery, lambda query: (kinds[query][0], kinds[query][2]), scores)
    for query, cosine in enumerate(cosines(queries, gallery)):
        right, _, junk = kinds[query]
        expected = by_rule(np.argsort(-cosine).tolist(), right.tolist(), junk.tolist())
        assert np.abs(np.array(expected) - [ranked.values[name][query] for name in scores]).max() < 1e-12


def test_recall_average_precision_and_that_at_r(labelled: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = labelled
    scores = MEANS | {f"r{k}": partial(hit, k) for k in (*KS, 59)}
    values = rank_gallery(x, x, instances(y), scores).values
    assert np.isnan(values["map"][0]) and not np.isnan(values["map"][1:]).any(), "an instance of one row has no answer"
    for query, cosine in enumerate(cosines(x, x)):
        others, right = np.delete(np.arange(60), query), np.delete(y == y[query], query)
        if not right.any():
            continue
        cosine = np.delete(cosine, query)
        order = others[np.argsort(-cosine)].tolist()
        answers = set(others[right].tolist())
        assert abs(values["map"][query] - average_precision_score(right, cosine)) < 1e-12
        assert abs(values["map_at_r"][query] - at_r(order, answers)) < 1e-12
        for k in (*KS, 59):
            assert values[f"r{k}"][query] == bool(answers & set(order[:k]))
    assert (values["r59"][1:] == 1).all(), "all that are searched"


def test_one_answer_is_one_over_its_rank(labelled: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = labelled
    values = rank_gallery(x, x, instances(y), MEANS).values
    rank = 1 + int((np.delete(cosines(x, x)[1], [1, 2]) > cosines(x, x)[1, 2]).sum())
    assert values["map"][1] == pytest.approx(1 / rank) and values["map_at_r"][1] == (rank == 1)


def test_without_each_image_is_what_is_left_of_it(labelled: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = labelled
    ranked = rank_gallery(x, x, instances(y), MEANS, tuple(MEANS))
    for row in range(len(x)):
        keep = np.arange(len(x)) != row
        left = rank_gallery(x[keep], x[keep], instances(y[keep]), MEANS).values
        for name in MEANS:
            assert abs(np.nanmean(left[name]) - ranked.without[name][row]) < 1e-12


def test_blocks_change_nothing(labelled: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = labelled
    whole = rank_gallery(x, x, instances(y), MEANS).values
    monkeypatch.setattr(rankings, "BLOCK", 130)  # two queries, and 14 rows of the gallery
    parts = rank_gallery(x, x, instances(y), MEANS).values
    assert all(np.allclose(whole[name], parts[name], rtol=0, atol=1e-12, equal_nan=True) for name in MEANS)


def test_of_equal_images_the_wrong_ones_come_first_in_any_order() -> None:
    """A network that gives all images one feature has the least value, and copies tie in spite of rounding."""
    y = np.array([0, 0, 0, 1, 1, 1, 1])
    same = np.full((7, 3), 0.7, np.float32)
    for order in (np.arange(7), np.arange(7)[::-1]):
        values = rank_gallery(same, same, instances(y[order]), MEANS).values["map"]
        of_zero = (1 / 5 + 2 / 6) / 2  # four wrong images, then two answers
        assert np.allclose(values[y[order] == 0], of_zero) and np.allclose(
            values[y[order] == 1], np.mean([1 / 4, 2 / 5, 3 / 6])
        )
    x = np.random.default_rng(2).standard_normal((1, 50)).astype(np.float32)
    near = np.concatenate([x, x * np.float32(3.1), x * np.float32(0.7), -x])
    assert rank_gallery(near, near, instances(np.array([0, 0, 1, 1])), MEANS).values["map"][0] == 0.5


def test_the_first_answers_leave_out_what_does_not_count(labelled: tuple[np.ndarray, np.ndarray]) -> None:
    x, _ = labelled
    order = np.argsort(-cosines(x, x)[4])
    assert first_answers(x[4][None], x, np.array([4, order[1]]), 5).tolist() == order[2:7].tolist()
    assert len(first_answers(x[4][None], x, np.arange(57), 5)) == 3, "no more than there are"
