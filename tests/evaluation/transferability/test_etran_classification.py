"""ETran's classification part: the nearest mean by a loop, and the first stage of SFDA."""

import math

import numpy as np
import pytest

import evaluation
from sslkit import open_images
from sslkit.errors import UserError


def task(n: int = 130, d: int = 7, c: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % c)
    return 0.4 * (rng.normal(size=(c, d))[y] + rng.normal(size=(n, d))), y


def official_loop(x: np.ndarray, y: np.ndarray) -> float:
    total = 0.0
    for row, label in zip(x, y, strict=True):
        logits = []
        for c in range(y.max() + 1):
            mean = x[y == c].mean(0)
            logits.append(row @ mean - mean @ mean / 2 + np.log((y == c).mean()))
        total += np.exp(logits[label] - max(logits)) / np.exp(np.array(logits) - max(logits)).sum()
    return total / len(x)


@pytest.mark.parametrize("d", [7, 200])
def test_the_official_variant_is_the_nearest_mean(d: int) -> None:
    x, y = task(d=d)
    assert np.isclose(
        evaluation.score("etran_classification", x, y, variant="official"), official_loop(x, y), rtol=1e-10
    )


def test_the_official_variant_does_not_depend_on_an_offset() -> None:
    x, y = task()
    values = [evaluation.score("etran_classification", x + c, y, variant="official") for c in (0, 1e3)]
    assert np.isclose(*values, rtol=1e-9)


def test_the_paper_variant_is_the_first_stage_of_sfda() -> None:
    x, y = task()
    found = evaluation.evaluate_metric("etran_classification", x, y)
    assert found.score == evaluation.evaluate_metric("sfda", x, y).diagnostics["first_stage"]
    assert math.isclose(float(found.details.terms.mean()), found.score)
    assert found.score != evaluation.score("etran_classification", x, y, variant="official")


def test_on_digits_the_input_stays_and_the_bits_repeat() -> None:
    images = open_images("digits")
    x, y = images.pixels[:300, 0].reshape(300, -1) / np.float32(255), np.asarray(images.labels[:300])
    before = x.copy()
    for variant in ("paper", "official"):
        values = [evaluation.score("etran_classification", x, y, variant=variant) for _ in range(2)]
        assert values[0] == values[1] and (x == before).all()
        shuffled = np.random.default_rng(0).permutation(y)
        assert evaluation.score("etran_classification", x, shuffled, variant=variant) < values[0]


@pytest.mark.parametrize("variant", ["paper", "official"])
def test_order_and_names_of_labels_do_not_matter(variant: str) -> None:
    x, y = task()
    order = np.random.default_rng(1).permutation(len(y))
    value = evaluation.score("etran_classification", x, y, variant=variant)
    assert np.isclose(evaluation.score("etran_classification", x[order], y[order], variant=variant), value, rtol=1e-10)
    names = [f"k{9 - label}" for label in y]
    assert np.isclose(evaluation.score("etran_classification", x, names, variant=variant), value, rtol=1e-10)


def test_variants_that_do_not_exist_are_errors() -> None:
    with pytest.raises(UserError, match="paper or official"):
        evaluation.evaluate_metric("etran_classification", *task(), variant="lda")
