import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

import evaluation
import sslkit
from evaluation.transferability import lead
from sslkit.errors import UserError


def clusters(n=120, d=8, c=4, seed=0, noise=1.0):
    rng = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % c
    x = torch.randn(c, d, generator=rng)[y] + noise * torch.randn(n, d, generator=rng)
    return x.double(), y


@pytest.mark.parametrize("d", [8, 40, 300])  # fewer columns than a fold has rows, fewer than all rows, more
def test_fold_predictions_are_those_of_fits_without_the_fold(d, generator):
    x, y = clusters(d=d)
    x -= x.mean(0)
    folds = lead.draw_folds(y, 5, generator)
    found = lead.ridge_scores(x, y, folds, 4, ridge=0.5)
    targets = np.eye(4)[y]
    for fold in range(5):
        held = (folds == fold).numpy()
        fit = Ridge(alpha=0.5 * d).fit(x.numpy()[~held], targets[~held])
        np.testing.assert_allclose(found.numpy()[held], fit.predict(x.numpy()[held]), atol=1e-10)


def test_score_by_loop():
    x, y = clusters()
    found = evaluation.evaluate_metric("lead", x, y, eta=0.7, time=2.0)
    sample = evaluation.ranking.inputs.samples.as_sample(x, y)
    folds = lead.draw_folds(y, 5, sample.generator("lead folds")).numpy()
    z = (x.numpy() - x.numpy().mean(0)) / x.numpy().std(0)
    total = 0.0
    for i in range(len(z)):
        known = folds != folds[i]
        raw = Ridge(alpha=8.0).fit(z[known], np.eye(4)[y][known]).predict(z[i : i + 1])[0]
        p = np.clip(raw, 1e-12, 1)
        p /= p.sum()
        rate = np.mean([(z[j] ** 2).sum() / 8 for j in range(len(z)) if y[j] == y[i]])
        e = math.exp(-0.7 * rate * 2.0)
        total += math.log((1 - e) + e * p[int(y[i])])
    assert found.score == pytest.approx(total / len(z), abs=1e-10)
    assert found.score == pytest.approx(float(found.details.terms.mean()))
    assert len(found.details.terms) == len(x)


def test_squared_gradients_against_autograd(generator):
    sizes = (5, 11, 13, 3)
    weights = [torch.randn(b, a, generator=generator, dtype=torch.float64) for a, b in pairwise(sizes)]
    x = torch.randn(7, 5, generator=generator, dtype=torch.float64)
    found = lead.gradient_norms(x, weights)
    for row, expected in zip(x, found, strict=True):
        # NTK parameters: forward scale 1/sqrt(fan in), a ReLU with sqrt(2)
        leaves = [weight.clone().requires_grad_() for weight in weights]
        a = row
        for k, weight in enumerate(leaves):
            a = weight @ a / len(a) ** 0.5
            a = a.clamp_min(0) * 2**0.5 if k < 2 else a
        grads = torch.autograd.grad(a.sum(), leaves)
        assert float(sum(grad.square().sum() for grad in grads)) == pytest.approx(float(expected))


def test_the_empirical_kernel_comes_to_the_analytic_one():
    x, y = clusters(d=32)
    x[y == 0] *= 2
    x = lead._standardise(x)
    empirical = lead.empirical_rates(x, y, 4, torch.Generator().manual_seed(0))
    torch.testing.assert_close(empirical, lead.analytic_rates(x, y, 4), rtol=0.15, atol=0)
    both = [evaluation.score("lead", *clusters(d=32), kernel=kernel) for kernel in ("analytic", "empirical")]
    assert both[0] == pytest.approx(both[1], rel=0.2)


def test_analytic_rates_average_to_one():
    x, y = clusters()
    rates = lead.analytic_rates(lead._standardise(x), y, 4)
    assert float(rates.mean()) == pytest.approx(1)  # classes of one size


@pytest.mark.parametrize("init", ["ridge", "svm"])
def test_it_orders_features_by_how_well_they_separate(init):
    scores = [evaluation.score("lead", *clusters(noise=noise), init=init) for noise in (0.3, 2.0, 20.0)]
    assert 0 >= scores[0] > scores[1] > scores[2] > -0.6


def test_digits_against_shuffled_labels():
    images = sslkit.open_images("digits", split="train")
    rows = [images[i] for i in range(400)]
    x, y = np.stack([row["images"].numpy().ravel() for row in rows]), np.array([int(row["label"]) for row in rows])
    found = evaluation.evaluate_metric("lead", x, y)
    assert found.diagnostics["initial_accuracy"] > 0.85
    assert found.diagnostics["reconstruction"]
    assert found.score > evaluation.score("lead", x, np.random.default_rng(0).permutation(y)) + 0.1


def test_invariances():
    x, y = clusters()
    expected = evaluation.score("lead", x, y)
    assert evaluation.score("lead", x * 1e-7, y) == pytest.approx(expected)
    assert evaluation.score("lead", x + 1e3, y) == pytest.approx(expected)
    wide = torch.cat([x, torch.zeros(len(x), 3), torch.full((len(x), 2), 0.1)], 1)
    assert evaluation.score("lead", wide, y) == pytest.approx(expected)
    assert evaluation.score("lead", (x + 1e3).float(), y) == pytest.approx(expected, rel=1e-3)
    assert evaluation.score("lead", x, [f"class {label}" for label in y.tolist()]) == expected
    assert evaluation.score("lead", x, y * 10) == expected


def test_the_seed_gives_the_bits_and_the_input_stays():
    x, y = clusters()
    before = x.clone()
    runs = [evaluation.score("lead", x, y, seed=seed, kernel="empirical") for seed in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]
    assert torch.equal(x, before)


@pytest.mark.parametrize("init", ["ridge", "svm"])
def test_edges(init):
    x, y = clusters(40, 100, 2)
    assert math.isfinite(evaluation.score("lead", x, y, init=init))
    labels = [0, *([1] * 19), *([2] * 20)]  # a class of one image
    assert math.isfinite(evaluation.score("lead", x, labels, init=init))
    assert math.isfinite(evaluation.score("lead", x[:3], [0, 0, 1], init=init))
    many = evaluation.score("lead", *clusters(60, 2, 12), init=init)
    assert math.isfinite(many)


def test_collapsed_features_are_no_better_than_chance():
    y = torch.arange(40) % 4
    found = evaluation.evaluate_metric("lead", torch.ones(40, 3), y)
    assert found.score == pytest.approx(math.log(1 / 4), abs=0.02)  # nothing moves: rate 0, the shares of the classes


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"init": "lda"}, "init must be ridge or svm, got 'lda'"),
        ({"kernel": "exact"}, "kernel must be analytic or empirical, got 'exact'"),
        ({"eta": 0.0}, "eta must be a number, above 0, got 0.0"),
        ({"folds": 1}, "folds must be a whole number, at least 2, got 1"),
    ],
)
def test_unsound_options(options, said):
    with pytest.raises(UserError, match=said):
        evaluation.score("lead", *clusters(), **options)


@pytest.mark.parametrize("init", ["ridge", "svm"])
def test_dead_features_are_the_shares_of_the_classes(init):
    y = np.arange(40) % 4
    found = [evaluation.evaluate_metric("lead", x, y, init=init) for x in (np.zeros((40, 3)), np.full((40, 3), 0.1))]
    assert found[0].score == found[1].score and found[0].diagnostics["rate_max"] == 0


def test_a_ridge_too_small_for_the_numbers_is_an_error():
    x = torch.tensor([[1.0, 1.0], [-1.0, -1.0]], dtype=torch.float64)  # X'X is exactly singular
    with pytest.raises(UserError, match="ridge=1e-300 is too small for these features: raise it"):
        lead.ridge_scores(x, torch.tensor([0, 1]), torch.tensor([0, 1]), 2, 1e-300)
