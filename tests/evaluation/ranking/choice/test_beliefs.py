"""Beliefs about tuned models: against numerical integration, and simulated models whose best is known."""

from dataclasses import replace

import numpy as np
import pytest

from evaluation.ranking.choice.beliefs import STEP_NOISE, Beliefs, beliefs, final_accuracies, noise_of, posterior
from evaluation.ranking.choice.rounds import Arm, Round


def arm(name: str, right: np.ndarray) -> Arm:
    right = np.atleast_2d(right).astype(bool)
    return Arm(name, (0.01,), right.mean(1), right, 1.0, 10)


def one_round(*arms: Arm) -> Round:
    return Round(arms, 10, 1, (0,))


def believed(*arms: Arm) -> Beliefs:
    found = beliefs([one_round(*arms)], 1)
    assert found is not None
    return found


def test_the_posterior_is_that_of_bayes_rule_on_a_grid() -> None:
    y, variance = np.array([0.06, -0.06]), 0.05**2
    noise = np.array([[0.004, 0.001], [0.001, 0.003]])
    found, covariance, _ = posterior(y, noise, variance)
    theta = np.linspace(-0.4, 0.4, 161)
    a, b, level = np.meshgrid(theta, theta, np.linspace(-3, 3, 201), indexing="ij")
    prior = (a**2 + b**2) / variance + level**2
    inverse, first, second = np.linalg.inv(noise), y[0] - level - a, y[1] - level - b
    apart = inverse[0, 0] * first**2 + 2 * inverse[0, 1] * first * second + inverse[1, 1] * second**2
    weights = np.exp(-(prior + apart) / 2)
    weights /= weights.sum()
    means = np.array([(weights * a).sum(), (weights * b).sum()])
    spread = (weights * (a - means[0]) * (b - means[1])).sum()
    assert found == pytest.approx(means, abs=1e-4)
    assert covariance[0, 1] == pytest.approx(spread, abs=1e-6)
    assert covariance[0, 0] == pytest.approx((weights * (a - means[0]) ** 2).sum(), rel=1e-3)


def test_the_likelihood_is_that_of_a_normal() -> None:
    from scipy.stats import multivariate_normal

    rng = np.random.default_rng(0)
    y, root = rng.normal(size=4), rng.normal(size=(4, 4))
    noise = root @ root.T
    _, _, likelihood = posterior(y, noise, 0.3)
    exact = multivariate_normal(np.zeros(4), 0.3 * np.eye(4) + noise + 1.0).logpdf(y)
    assert likelihood - exact == pytest.approx(2 * np.log(2 * np.pi))


def test_equal_models_are_a_coin_and_the_probabilities_sum_to_one() -> None:
    half = np.arange(60) % 2 == 0
    found = believed(arm("a", half), arm("b", half), arm("c", half))
    assert list(found.best.values()) == pytest.approx([1 / 3] * 3, abs=0.03)
    assert sum(found.best.values()) == pytest.approx(1)
    assert len(set(np.round(list(found.regret.values()), 9))) == 1
    assert found.order() == sorted(found.best, key=found.best.get, reverse=True), "by what is printed"


def test_a_model_that_is_far_better_on_many_images_is_sure() -> None:
    images = np.arange(2000)
    found = believed(arm("a", images < 1900), arm("b", images < 1000))
    assert found.best["a"] > 0.99 and found.order() == ["a", "b"]


def test_the_order_is_that_of_the_regrets_then_of_the_probabilities() -> None:
    assert Beliefs({"a": 0.02, "b": 0.01, "c": 0.01}, {"a": 0.4, "b": 0.2, "c": 0.4}).order() == ["c", "b", "a"]
    found = believed(*(arm(name, np.arange(60) < right) for name, right in (("a", 30), ("b", 40), ("c", 36))))
    assert found.order() == sorted(found.regret, key=found.regret.get) == ["b", "c", "a"]
    assert min(found.regret.values()) > 0


def test_images_that_both_have_right_tell_nothing_apart() -> None:
    together = noise_of([(arm("a", np.arange(200) < 100), 0), (arm("b", np.arange(200) < 110), 0)], 1)
    apart = noise_of([(arm("a", np.arange(200) < 100), 0), (arm("b", np.arange(200) >= 90), 0)], 1)
    of_difference = [noise[0, 0] + noise[1, 1] - 2 * noise[0, 1] for noise in (together, apart)]
    assert of_difference[0] < of_difference[1] / 3


def test_one_lucky_seed_is_no_certainty() -> None:
    whole, none, b = np.ones(400), np.zeros(400), np.arange(400) < 200
    alike = believed(arm("a", np.stack([b | (np.arange(400) < 268)] * 3)), arm("b", np.stack([b] * 3)))
    lucky = believed(arm("a", np.stack([whole, none, whole])), arm("b", np.stack([b] * 3)))
    assert lucky.best["a"] < alike.best["a"]


def test_dropped_models_count_with_the_gain_of_the_others() -> None:
    images = np.arange(50)
    first = Round((arm("a", images < 30), arm("b", images < 28), arm("c", images < 25)), 5, 2, (0,))
    last = one_round(arm("a", images < 40), arm("b", images < 36))
    own = {"a": (last.arms[0], 1), "b": (last.arms[1], 1), "c": (first.arms[2], 0)}
    assert final_accuracies([first, last], own) == pytest.approx([0.8, 0.72, 0.5 + 0.18])
    whole, early = noise_of(list(own.values()), 2), noise_of([(one, 1) for one, _ in own.values()], 2)
    assert whole[2, 2] - early[2, 2] == pytest.approx(STEP_NOISE**2 / 4, rel=0.02) and whole[0, 0] == early[0, 0]


def test_early_rounds_are_less_sure() -> None:
    images = np.arange(200)
    one = one_round(arm("a", images < 120), arm("b", images < 90))
    stated = [beliefs([one], planned) for planned in (1, 2, 3)]
    sure = [found.best["a"] for found in stated if found is not None]
    assert sure == sorted(sure, reverse=True) and sure[0] > sure[2] + 0.1


def test_it_is_unknown_with_several_labels_per_image() -> None:
    one, other = (Arm(name, (0.01,), np.array([0.5]), None, 1.0, 10) for name in "ab")
    assert beliefs([one_round(one, other)], 1) is None


def test_a_diverged_model_is_not_the_best() -> None:
    gone = Arm("b", (), np.zeros(0), None, 1.0, 10)
    found = believed(arm("a", np.arange(10) < 5), gone)
    assert found.best == {"a": pytest.approx(1)} and found.order() == ["a"]
    assert beliefs([one_round(gone)], 1) is None


def test_stated_probabilities_are_right_on_models_whose_best_is_known() -> None:
    """Eight models, 60 images that share their difficulty, two seeds."""
    rng = np.random.default_rng(0)
    stated, is_best, chance, names = [], [], [], list("abcdefgh")
    for _ in range(200):
        spread = rng.choice([0.03, 0.06, 0.12])
        level = spread * rng.normal(size=8)
        luck = 0.05 * rng.normal(size=(8, 2)) * 0.46
        edge = np.clip(0.7 + level[:, None] + luck, 0, 1)[..., None]
        right = np.where(rng.random((8, 2, 60)) < 0.4, rng.random((8, 2, 60)), rng.random(60)) < edge
        found = believed(*(arm(name, own) for name, own in zip(names, right, strict=True)))
        first = found.order()[0]
        stated.append(found.best[first]), is_best.append(names[level.argmax()] == first)
        chance.append(found.best["a"])
    assert -0.18 < np.mean(stated) - np.mean(is_best) < 0.05, "careful, as the spread of the models is not known"
    assert np.mean(chance) == pytest.approx(1 / 8, abs=0.04)


def test_images_that_repeat_their_group_make_nothing_surer() -> None:
    rng = np.random.default_rng(0)
    first, second = (rng.random((1, 24)) < p for p in (0.7, 0.5))
    groups = np.repeat(np.arange(24), 5)
    alone = [arm("a", first), arm("b", second)]
    repeated = [
        replace(arm(name, np.repeat(right, 5, 1)), groups=groups) for name, right in (("a", first), ("b", second))
    ]
    assert np.allclose(*(noise_of([(one, 0) for one in arms], 1) for arms in (alone, repeated)))
    assert believed(*repeated).best == pytest.approx(believed(*alone).best)
    uneven = replace(repeated[0], right=repeated[0].right[:, :70], groups=groups[:70])
    assert uneven.by_unit.mean() == pytest.approx(uneven.right.mean())
