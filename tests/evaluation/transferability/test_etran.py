"""ETran: its two parts, and their sum over a zoo."""

import math

import numpy as np
import pytest

import evaluation
from evaluation.transferability import etran
from sslkit.errors import UserError


def task(n: int = 130, d: int = 7, c: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % c)
    return 0.4 * (rng.normal(size=(c, d))[y] + rng.normal(size=(n, d))), y


def test_one_model_has_only_parts() -> None:
    x, y = task()
    found = evaluation.evaluate_metric("etran", x, y, variant="official", percent=5.0, energy_weight=0.3)
    assert math.isnan(found.score)
    assert found.parts["classification"] == evaluation.score("etran_classification", x, y, variant="official")
    assert found.parts["energy"] == evaluation.score("etran_energy", x, y, percent=5.0)
    assert found.parts["energy_weight"] == 0.3
    with pytest.raises(UserError, match="only over a zoo"):
        evaluation.score("etran", x, y)


def test_a_zoo_has_scores() -> None:
    values = [(0.5, 10.0), (0.9, -2.0), (0.7, 4.0)]
    parts = [{"classification": c, "energy": e, "energy_weight": 0.15} for c, e in values]
    expected = [0.15, 0.85, 0.85 * 0.5 + 0.15 * 0.5]
    assert np.allclose(etran.over_zoo(parts), expected)
    same = [{**part, "energy": 1.0} for part in parts]
    assert np.allclose(etran.over_zoo(same), [0, 0.85, 0.425])
    assert etran.over_zoo(parts[:1]) == [0]


def test_models_with_different_weights_are_no_zoo() -> None:
    parts = [{"classification": 1.0, "energy": 1.0, "energy_weight": w} for w in (0.1, 0.2)]
    with pytest.raises(UserError, match="different energy_weight"):
        etran.over_zoo(parts)


@pytest.mark.parametrize(
    ("options", "said"), [({"variant": "lda"}, "paper or official"), ({"energy_weight": 2.0}, "at most 1, got 2")]
)
def test_options_that_make_no_sense_are_errors(options: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        evaluation.evaluate_metric("etran", *task(), **options)


def test_parts_that_are_equal_but_for_rounding_are_not_stretched() -> None:
    assert etran.minmax([0.3, 0.3 * (1 + 1e-14), 0.3]) == [0.0, 0.0, 0.0]
    assert etran.minmax([0.3, 0.6, 0.45]) == pytest.approx([0, 1, 0.5])
