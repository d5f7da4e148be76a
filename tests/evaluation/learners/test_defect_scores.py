"""AUROC and AUPRO against scikit-learn and loops in float64; distances against all pairs."""

import itertools
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from scipy.ndimage import label
from sklearn.metrics import roc_auc_score

from evaluation.learners import defect_scores
from evaluation.learners.defect_scores import LIMIT, aupro, auroc, nearest_distance


def by_loop(scores: list[np.ndarray], masks: list[np.ndarray], limit: float) -> float:
    """AUPRO, one threshold after the other, as the area of trapezoids up to the limit."""
    parts = [label(mask, np.ones((3, 3))) for mask in masks]
    curve = [(0.0, 0.0)]
    for level in sorted({float(value) for score in scores for value in score.ravel()}, reverse=True):
        wrong, normal, overlaps = 0, 0, []
        for score, mask, (numbered, count) in zip(scores, masks, parts, strict=True):
            above = score >= level
            wrong, normal = wrong + int((above & ~mask).sum()), normal + int((~mask).sum())
            overlaps += [float(above[numbered == part].mean()) for part in range(1, count + 1)]
        curve.append((wrong / normal, float(np.mean(overlaps))))
    area = 0.0
    for (left, low), (right, high) in itertools.pairwise(curve):
        if left >= limit or right == left:
            continue
        end = min(right, limit)
        top = low + (high - low) * (end - left) / (right - left)
        area += (end - left) * (low + top) / 2
    return area / limit


def maps(seed: int, digits: int | None) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Five maps with defects of several parts, two of which touch at a corner; the fifth has none."""
    rng = np.random.default_rng(seed)
    masks = [np.zeros((12, 10), bool) for _ in range(5)]
    for mask in masks[:4]:
        for _ in range(rng.integers(1, 4)):
            y, x = rng.integers(0, 8, 2)
            mask[y : y + rng.integers(1, 5), x : x + rng.integers(1, 4)] = True
    masks[0][0, 0] = masks[0][1, 1] = True
    scores = [rng.random(mask.shape) + 0.6 * mask * rng.random() for mask in masks]
    return (scores if digits is None else [score.round(digits) for score in scores]), masks


@pytest.mark.parametrize("digits", [None, 1])
@pytest.mark.parametrize("limit", [LIMIT, 0.05, 1.0])
def test_the_overlap_of_regions_is_that_of_a_loop(digits: int | None, limit: float) -> None:
    for seed in range(3):
        scores, masks = maps(seed, digits)
        regions = aupro(scores, masks, limit)
        assert regions.area.mean() == pytest.approx(by_loop(scores, masks, limit), abs=1e-10)
        assert len(regions.area) == sum(label(mask, np.ones((3, 3)))[1] for mask in masks)


def test_a_perfect_map_has_all_of_the_area_and_a_flat_one_half_of_the_limit() -> None:
    _, masks = maps(0, None)
    assert aupro([mask.astype(float) for mask in masks], masks).area.mean() == pytest.approx(1)
    flat = aupro([np.zeros(mask.shape) for mask in masks], masks).estimate()
    assert flat.value == pytest.approx(LIMIT / 2) and "4 images with defects" in flat.kind
    with pytest.raises(ValueError, match="defective pixels"):
        aupro([np.zeros((3, 3))], [np.zeros((3, 3), bool)])
    one = aupro([np.arange(9.0).reshape(3, 3)], [np.arange(9).reshape(3, 3) > 6]).estimate()
    assert one.interval is None and one.kind == "no interval, defects in one image"


@pytest.mark.parametrize("digits", [None, 1])
def test_auroc_is_that_of_scikit_learn_with_the_interval_of_delong(digits: int | None) -> None:
    rng = np.random.default_rng(0)
    is_defect = rng.random(90) < 0.3
    score = rng.standard_normal(90) + is_defect
    score = score if digits is None else score.round(digits)
    estimate, by_image = auroc(score, is_defect)
    assert estimate.value == pytest.approx(roc_auc_score(is_defect, score), abs=1e-12)
    assert by_image.mean() == pytest.approx(estimate.value, abs=1e-12)
    wins = (score[is_defect][:, None] > score[~is_defect]) + 0.5 * (score[is_defect][:, None] == score[~is_defect])
    variance = wins.mean(1).var() / is_defect.sum() + wins.mean(0).var() / (~is_defect).sum()
    assert np.square(by_image - estimate.value).sum() / 90**2 == pytest.approx(variance, abs=1e-12)
    low, high = estimate.interval
    assert low < estimate.value < high < 1


def test_images_that_are_all_told_apart_leave_room_as_of_the_smaller_kind() -> None:
    estimate, _ = auroc(np.array([0.0, 1, 2, 3, 4, 9, 8, 7]), np.array([False] * 5 + [True] * 3))
    assert estimate.value == 1 and estimate.interval[0] < 0.4 and estimate.interval[1] == 1


def test_the_nearest_distance_is_that_of_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    query, bank = (rng.standard_normal((n, 12)).astype(np.float32) for n in (31, 45))
    query[3] = 0
    unit = [
        rows / np.maximum(np.linalg.norm(rows.astype(float), axis=1, keepdims=True), 1e-30) for rows in (query, bank)
    ]
    expected = (1 - unit[0] @ unit[1].T).min(1)
    monkeypatch.setattr(defect_scores, "BLOCK", 120)  # ten rows at a time
    assert np.abs(nearest_distance(query, bank) - expected).max() < 1e-6 and expected[3] == 1


def test_of_a_bank_on_the_disk_a_block_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((40_000, 32)).astype(np.float32)
    np.save(tmp_path / "bank.npy", rows)
    bank = np.load(tmp_path / "bank.npy", mmap_mode="r")
    whole = nearest_distance(rows[:50] + 1, rows)
    monkeypatch.setattr(defect_scores, "BLOCK", 2**15)
    tracemalloc.start()
    blocks = nearest_distance(rows[:50] + 1, bank)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    np.testing.assert_allclose(blocks, whole, atol=1e-6)
    assert peak < rows.nbytes / 5
