"""NCE: the entropy from scikit-learn and from the formula, its bounds, and what does not change it."""

import math

import numpy as np
import pytest
import torch

import evaluation
from evaluation.ranking.scoring import evaluate_metric
from evaluation.transferability.nce import nce
from sslkit.errors import UserError


def draw(n: int = 200, s: int = 6, c: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(c), rng.integers(c, size=n - c)])
    p = rng.dirichlet(np.ones(s), size=n) + (y[:, None] % s == np.arange(s)) * 0.5
    return p / p.sum(1, keepdims=True), y


def looped(z: np.ndarray, y: np.ndarray) -> float:
    total = 0.0
    for label in np.unique(y):
        for source in np.unique(z):
            joint = np.mean((y == label) & (z == source))
            total += joint * math.log(joint / np.mean(z == source)) if joint else 0
    return total


def test_the_formula_as_a_loop() -> None:
    p, y = draw()
    z = p.argmax(1)
    score = evaluation.score("nce", None, y, source_probs=p)
    assert score == pytest.approx(looped(z, y), abs=1e-13)
    assert nce(torch.from_numpy(z), torch.from_numpy(y)) == score


def test_mutual_information_less_the_entropy_of_the_labels() -> None:
    from sklearn.metrics import mutual_info_score

    p, y = draw(seed=3)
    shares = np.bincount(y) / len(y)
    expected = mutual_info_score(y, p.argmax(1)) + (shares * np.log(shares)).sum()
    assert evaluation.score("nce", None, y, source_probs=p) == pytest.approx(expected, abs=1e-12)


def test_bounds() -> None:
    y = np.repeat(np.arange(5), 8)
    assert evaluation.score("nce", None, y, source_probs=np.eye(5)[y][:, ::-1].copy()) == 0
    ignorant = np.tile([0.7, 0.2, 0.1], (40, 1))
    assert evaluation.score("nce", None, y, source_probs=ignorant) == pytest.approx(-math.log(5))


def test_orders_and_names_do_not_matter() -> None:
    p, y = draw()
    score = evaluation.score("nce", None, y, source_probs=p)
    rows, columns = np.random.default_rng(1).permutation(len(y)), [3, 0, 5, 1, 4, 2]
    assert evaluation.score("nce", None, y[rows], source_probs=p[rows]) == pytest.approx(score, abs=1e-13)
    assert evaluation.score("nce", None, 10 - 3 * y, source_probs=p[:, columns]) == pytest.approx(score, abs=1e-13)


def test_only_decisions_count() -> None:
    p, y = draw()
    surer = np.eye(6)[p.argmax(1)]
    assert evaluation.score("nce", None, y, source_probs=surer) == evaluation.score("nce", None, y, source_probs=p)
    equal = np.tile([0.4, 0.4, 0.2], (len(y), 1))  # the first of equal ones is the decision of all
    assert evaluate_metric("nce", None, y, source_probs=equal).diagnostics["decisions"] == 1


def test_terms_and_the_warning_of_too_many_decisions() -> None:
    p, y = draw()
    result = evaluate_metric("nce", None, y, source_probs=p)
    assert float(result.details.terms.mean()) == result.score and result.warnings == ()
    assert result.details.terms.shape == (200,)
    alone = evaluate_metric("nce", None, y, source_probs=np.eye(200))
    assert alone.score == 0 and "near 0 whatever the labels" in alone.warnings[0]


def test_probabilities_are_needed() -> None:
    p, y = draw()
    with pytest.raises(UserError, match="nce needs source_probs"):
        evaluation.score("nce", p, y)
    with pytest.raises(UserError, match="one class label per image"):
        evaluation.score("nce", None, 1 - np.eye(4)[y], source_probs=p)


@pytest.mark.parametrize("seed", range(25))
def test_leep_is_at_least_nce_and_the_mean_log_probability_of_the_guess(seed: int) -> None:
    """Nguyen et al. 2020, property 2. Its NCE conditions on the guess by LEEP's own soft counts: by the hard counts,
    which NCE itself is made of, it is higher, and LEEP is the larger one only for sure guesses."""
    p, y = draw(n=20 + 10 * seed, s=2 + seed % 9, c=2 + seed % 5, seed=seed)
    leep, guess = evaluation.score("leep", None, y, source_probs=p), p.argmax(1)
    joint = np.stack([p[y == label].sum(0) for label in np.unique(y)])
    soft = np.log((joint / joint.sum(0))[y, guess]).mean()
    assert soft <= evaluation.score("nce", None, y, source_probs=p) + 1e-12
    assert leep >= soft + np.log(p.max(1)).mean() - 1e-12
    sure = np.eye(p.shape[1])[guess]
    assert (
        evaluation.score("leep", None, y, source_probs=sure)
        >= evaluation.score("nce", None, y, source_probs=sure) - 1e-9
    )


def test_the_source_is_given_and_the_target_asked_for() -> None:
    """github.com/thuml/LogME/issues/14: swapped, both are other numbers; finer decisions leave nothing open."""
    fine = np.arange(120) % 6
    p, coarse = np.eye(6)[fine], fine // 2
    for name in ("nce", "leep"):
        assert evaluation.score(name, None, coarse, source_probs=p) == pytest.approx(0, abs=1e-12)
        swapped = evaluation.score(name, None, fine, source_probs=np.eye(3)[coarse])
        assert swapped == pytest.approx(-math.log(2))
