"""ETran's two parts against loops, and their sum over a zoo."""

import math

import numpy as np
import pytest

import evaluation
from evaluation.transferability import etran, etran_energy
from sslkit import open_images
from sslkit.errors import UserError


def task(n: int = 130, d: int = 7, c: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % c)
    return 0.4 * (rng.normal(size=(c, d))[y] + rng.normal(size=(n, d))), y


def energy_loop(x: np.ndarray, percent: float, largest: bool = False) -> float:
    energies = sorted((math.log(sum(math.exp(value) for value in row)) for row in x), reverse=largest)
    k = max(1, int(percent * 10) * len(x) // 1000)
    return sum(energies[:k]) / k


def official_loop(x: np.ndarray, y: np.ndarray) -> float:
    total = 0.0
    for row, label in zip(x, y, strict=True):
        logits = []
        for c in range(y.max() + 1):
            mean = x[y == c].mean(0)
            logits.append(row @ mean - mean @ mean / 2 + np.log((y == c).mean()))
        total += np.exp(logits[label] - max(logits)) / np.exp(np.array(logits) - max(logits)).sum()
    return total / len(x)


@pytest.mark.parametrize(("n", "percent"), [(130, 0.5), (1000, 0.5), (600, 10.0), (130, 100.0), (250, 0.1)])
@pytest.mark.parametrize("tail", ["bot", "top"])
def test_energy_is_the_loop(n: int, percent: float, tail: str) -> None:
    x, y = task(n)
    value = evaluation.score("etran_energy", x, y, percent=percent, tail=tail)
    assert np.isclose(value, energy_loop(x, percent, tail == "top"), rtol=1e-12)


def test_at_least_one_image_counts() -> None:
    assert [etran_energy.tail_size(n, 0.5) for n in (10, 199, 200, 5000)] == [1, 1, 1, 25]


def test_energy_is_of_the_features_own_columns_also_where_these_are_many() -> None:
    x, y = task(20, 90)
    assert np.isclose(evaluation.score("etran_energy", x, y), energy_loop(x, 0.5), rtol=1e-12)
    assert np.isclose(evaluation.score("etran_energy", x + 1e3, y), energy_loop(x, 0.5) + 1e3, rtol=1e-12)


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


def test_order_and_names_of_labels_do_not_matter() -> None:
    x, y = task()
    order = np.random.default_rng(1).permutation(len(y))
    for name in ("etran_classification", "etran_classification(variant=official)", "etran_energy"):
        value = evaluation.score(name, x, y)
        assert np.isclose(evaluation.score(name, x[order], y[order]), value, rtol=1e-10)
        assert np.isclose(evaluation.score(name, x, [f"k{9 - label}" for label in y]), value, rtol=1e-10)


def test_on_digits_the_input_stays_and_the_bits_repeat() -> None:
    images = open_images("digits")
    x, y = images.pixels[:300, 0].reshape(300, -1) / np.float32(255), np.asarray(images.labels[:300])
    before = x.copy()
    for variant in ("paper", "official"):
        values = [evaluation.score("etran_classification", x, y, variant=variant) for _ in range(2)]
        assert values[0] == values[1] and (x == before).all()
        shuffled = np.random.default_rng(0).permutation(y)
        assert evaluation.score("etran_classification", x, shuffled, variant=variant) < values[0]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("etran(variant=lda)", "paper or official"),
        ("etran_energy(percent=0)", "percent=0"),
        ("etran_energy(tail=left)", "bot or top"),
        ("etran(energy_weight=2)", "energy_weight=2"),
    ],
)
def test_options_that_do_not_exist_are_errors(name: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        evaluation.evaluate_metric(name, *task())
