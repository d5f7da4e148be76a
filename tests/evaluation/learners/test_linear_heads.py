"""Heads trained together are heads trained one by one with torch.optim.SGD; scaling is scikit-learn's."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.metrics import balanced_accuracy_score
from sklearn.preprocessing import StandardScaler, normalize

from evaluation.learners.linear_heads import Grid, Scaling, accuracy, gradients, judge_heads, train_heads
from evaluation.results.measures import map11
from sslkit.data.loader import EpochBatches
from sslkit.errors import UserError
from sslkit.runtime.context import Runtime

QUIET = Runtime(device="cpu", progress=False)

X, Y = load_digits(return_X_y=True)
X = X.astype(np.float32)
ROWS = np.arange(0, 400)
MANY_LABELS = np.where(Y[:, None] == np.arange(10), 1, -1).astype(np.int8)
MANY_LABELS[np.random.default_rng(0).random(MANY_LABELS.shape) < 0.2] = 0


def test_scaling_is_that_of_the_training_rows() -> None:
    scaling = Scaling.measure(X, ROWS, "standardize")
    want = StandardScaler().fit(X[ROWS].astype(np.float64))
    np.testing.assert_allclose(scaling(X), want.transform(X.astype(np.float64)), atol=1e-9)
    np.testing.assert_allclose(Scaling.measure(X, ROWS, "l2")(X), normalize(X.astype(np.float64)), atol=1e-12)
    assert np.array_equal(Scaling.measure(X, ROWS, "none")(X), X)
    with pytest.raises(UserError, match=r"no scale 'standard'.*standardize"):
        Scaling.measure(X, ROWS, "standard")


def test_a_feature_that_varies_by_rounding_alone_is_not_blown_up() -> None:
    x = X.copy()
    x[:, 5] = 0.1
    x[::2, 5] = np.nextafter(np.float32(0.1), np.float32(1))
    assert np.abs(Scaling.measure(x, ROWS, "standardize")(x)[:, 5]).max() < 1e-6


def loss_of(scores: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if y.dim() == 1:
        return F.cross_entropy(scores, y)
    each = F.binary_cross_entropy_with_logits(scores, (y > 0).to(scores.dtype), reduction="none")
    return (each * (y != 0)).sum(1).mean()


@pytest.mark.parametrize("labels", [Y, MANY_LABELS], ids=["one", "many"])
def test_gradients_are_autograds(labels: np.ndarray, generator: torch.Generator) -> None:
    weight = torch.randn(3, 10, 64, generator=generator, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(3, 10, generator=generator, dtype=torch.float64, requires_grad=True)
    x, y = torch.from_numpy(X[:50] / 16).double(), torch.from_numpy(labels[:50])
    sum(loss_of(x @ w.T + b, y) for w, b in zip(weight, bias, strict=True)).backward()
    slope_w, slope_b = gradients(weight.detach(), bias.detach(), x, y)
    torch.testing.assert_close(slope_w, weight.grad)
    torch.testing.assert_close(slope_b, bias.grad)


@pytest.mark.parametrize("labels", [Y, MANY_LABELS], ids=["one", "many"])
def test_heads_are_those_of_torch_one_by_one(labels: np.ndarray) -> None:
    grid = Grid((0.01, 0.1, 1.0), (0.0, 0.01), iterations=25, batch_size=64)
    scaling = Scaling.measure(X, ROWS, "standardize")
    [heads] = train_heads(X, ROWS, labels[ROWS], 10, grid, scaling, Runtime(device="cpu", seed=3, progress=False))
    x, y = torch.from_numpy(scaling(X[ROWS])).float(), torch.from_numpy(labels[ROWS])
    batches = EpochBatches(400, 64, 3)  # 6 an epoch
    order = []
    for epoch in range(5):
        batches.set_epoch(epoch)
        order += list(batches)
    for head, (lr, decay) in enumerate(grid.heads()):
        layer = torch.nn.utils.skip_init(torch.nn.Linear, 64, 10)
        torch.nn.init.zeros_(layer.weight), torch.nn.init.zeros_(layer.bias)
        groups = [{"params": [layer.weight], "weight_decay": decay}, {"params": [layer.bias]}]
        optimizer = torch.optim.SGD(groups, lr / 4, momentum=0.9)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 25)
        for at in order[:25]:
            optimizer.zero_grad()
            loss_of(layer(x[at]), y[at]).backward()
            optimizer.step()
            schedule.step()
        torch.testing.assert_close(heads.weight[head], layer.weight.data, rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(heads.bias[head], layer.bias.data, rtol=1e-3, atol=1e-5)


def test_the_rate_is_that_of_the_rows_in_a_step() -> None:
    few, runtime = ROWS[:64], Runtime(device="cpu", seed=3, progress=False)
    large, small = (
        train_heads(
            X, few, Y[few], 10, Grid((0.1,), iterations=3, batch_size=size), Scaling.measure(X, few, "l2"), runtime
        )[0]
        for size in (1024, 64)
    )
    assert torch.equal(large.weight, small.weight)


def test_heads_are_judged_by_the_metric() -> None:
    grid = Grid((0.001, 0.1), iterations=40, batch_size=128)
    scaling = Scaling.measure(X, ROWS, "l2")
    new = np.arange(1500, 400, -1)
    [heads] = train_heads(X, ROWS, Y[ROWS], 10, grid, scaling, QUIET)
    scores = [heads.scores_of(head, X, new) for head in (0, 1)]
    w, b = heads.weight[1].double().numpy(), heads.bias[1].double().numpy()
    np.testing.assert_allclose(scores[1], normalize(X[new].astype(float)) @ w.T + b, atol=1e-4)
    top1 = judge_heads(heads, X, new, Y[new], "top1")
    np.testing.assert_allclose(top1, [(one.argmax(1) == Y[new]).mean() for one in scores])
    skewed = new[(Y[new] > 4) | (np.arange(len(new)) % 3 == 0)]
    guess = heads.scores_of(1, X, skewed).argmax(1)
    value = judge_heads(heads, X, skewed, Y[skewed], "mean_per_class")[1]
    assert value == pytest.approx(balanced_accuracy_score(Y[skewed], guess))
    assert accuracy(guess, Y[skewed], "top1") == pytest.approx((guess == Y[skewed]).mean())
    many = judge_heads(heads, X, new, MANY_LABELS[new], "map11")
    np.testing.assert_allclose(many, [map11(one, MANY_LABELS[new]) for one in scores])


def test_a_head_that_diverged_is_worth_nothing() -> None:
    grid = Grid((0.1, 1e30), (0.0, 0.1), iterations=30, batch_size=64)
    [heads] = train_heads(X, ROWS, Y[ROWS], 10, grid, Scaling.measure(X, ROWS, "none"), QUIET)
    values = judge_heads(heads, X, ROWS, Y[ROWS], "top1")
    assert np.isnan(values[3]) and values[0] > 0.5


def test_bad_grids() -> None:
    for bad in ({"learning_rates": ()}, {"learning_rates": (0.1, -1)}, {"weight_decays": (-1,)}, {"iterations": 0}):
        with pytest.raises(UserError, match=next(iter(bad))):
            Grid(**bad)


def test_heads_of_several_inputs_are_those_of_each_alone() -> None:
    grid = Grid((0.01, 0.1), (0.0, 0.01), iterations=20, batch_size=64)
    inputs = [np.arange(10, 40), np.array([3, 60, 20])]
    together = train_heads(X, ROWS, Y[ROWS], 10, grid, Scaling.measure(X, ROWS, "standardize"), QUIET, inputs)
    for heads, columns in zip(together, inputs, strict=True):
        x = X[:, columns]
        [alone] = train_heads(x, ROWS, Y[ROWS], 10, grid, Scaling.measure(x, ROWS, "standardize"), QUIET)
        torch.testing.assert_close(heads.weight, alone.weight)
        torch.testing.assert_close(heads.bias, alone.bias)
        np.testing.assert_allclose(heads.scores_of(1, X, ROWS), alone.scores_of(1, x, ROWS), atol=1e-5)
