"""The batched classifiers against their own definitions: objectives, gradients, scikit-learn."""

import numpy as np
import pytest
import torch
from torch import Tensor

from evaluation.learners import episode_solvers
from evaluation.learners.episode_solvers import invert_bordered, logistic, nearest_centroid, ridge, solve_episodes


@pytest.fixture(scope="module")
def x() -> Tensor:
    """(7 episodes, 12 images, 20): 4 classes of 3."""
    generator = torch.Generator().manual_seed(0)
    means = torch.randn(7, 4, 1, 20, generator=generator).double()
    return (means + torch.randn(7, 4, 3, 20, generator=generator).double()).flatten(1, 2)


TARGET = torch.eye(4, dtype=torch.float64).repeat_interleave(3, 0)


def objective(x: Tensor, w: Tensor, b: Tensor, c: float) -> Tensor:
    scores = x @ w + b
    return w.square().sum() / 2 - c * (TARGET * scores.log_softmax(-1)).sum()


@pytest.mark.parametrize("c", [0.01, 1.0, 30.0])
def test_the_gradient_of_the_objective_vanishes(x: Tensor, c: float) -> None:
    a, b, residual, _ = logistic(x @ x.mT, TARGET, c)
    assert (residual <= 1e-8).all()
    w, b = (x.mT @ a).requires_grad_(), b.clone().requires_grad_()
    gradients = torch.autograd.grad(objective(x, w, b, c), (w, b))
    assert max(g.abs().max() for g in gradients) < 1e-6 * c


def test_a_stopped_solver_says_how_far_it_is(x: Tensor) -> None:
    *_, residual, steps = logistic(x @ x.mT, TARGET, 1.0, max_steps=2)
    assert steps == 2 and (residual > 1e-4).all()


def test_ridge_solves_its_normal_equations(x: Tensor) -> None:
    a, b = ridge(x @ x.mT, TARGET, 2.0)
    w, b = (x.mT @ a).requires_grad_(), b.clone().requires_grad_()
    loss = w.square().sum() / 2 + (x @ w + b - TARGET).square().sum()
    assert max(g.abs().max() for g in torch.autograd.grad(loss, (w, b))) < 1e-10


def test_centroid_scores_order_as_distances(x: Tensor) -> None:
    a, b = nearest_centroid(x @ x.mT, TARGET)
    distance = torch.cdist(x, x.unflatten(1, (4, 3)).mean(2)).square()
    scores = x @ (x.mT @ a) + b
    assert torch.allclose(scores - scores[..., :1], (distance[..., :1] - distance) / 2)


def test_the_bordered_inverse_eliminates_the_intercept(x: Tensor) -> None:
    gram = x @ x.mT
    right = torch.randn(7, 12, 4, generator=torch.Generator().manual_seed(1)).double()
    system = torch.zeros(7, 13, 13).double()
    system[:, :12, :12] = gram + 0.3 * torch.eye(12)
    system[:, 12, :12] = system[:, :12, 12] = 1
    solved = torch.linalg.solve(system, torch.cat([right, torch.zeros(7, 1, 4)], 1))[:, :12]
    assert torch.allclose(invert_bordered(gram, 0.3) @ right, solved, atol=1e-9)


def test_chunks_do_not_change_a_label(monkeypatch) -> None:
    rng = np.random.default_rng(0)
    pool = torch.from_numpy(rng.normal(size=(60, 8)).astype("f"))
    rows = torch.from_numpy(np.stack([rng.permutation(60)[:24].reshape(3, 8) for _ in range(23)]))
    whole = solve_episodes(pool, rows, 2, c=1.0)
    monkeypatch.setattr(episode_solvers, "CHUNK", 24 * 8 * 5)
    parts = solve_episodes(pool, rows, 2, c=1.0)
    assert whole.has_converged.all() and parts.residual.shape == (23,)
    assert all((whole.labels[name] == parts.labels[name]).all() for name in whole.labels)
    assert len({labels.sum().item() for labels in whole.labels.values()}) == 3  # three classifiers, not one


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [5, 37, 512])
def test_of_equal_scores_the_first_way_counts(dtype: torch.dtype, width: int) -> None:
    """Ways 1 and 3 show the same images, and the queries of all: their scores differ by rounding alone."""
    generator = torch.Generator().manual_seed(width)
    once = torch.nn.functional.normalize(torch.randn(3, 10, width, generator=generator), dim=2).to(dtype)
    x = torch.cat([once, once[1:2]]).flatten(0, 1)
    for shot in (1, 3):
        kept = [torch.randperm(10, generator=generator) for _ in range(40)]
        rows = torch.stack([torch.stack([order + 10 * way for way in range(4)]) for order in kept])
        found = solve_episodes(x, rows, shot, c=1.0).labels
        alone = solve_episodes(x, rows[:, :3], shot, c=1.0).labels["nearest_centroid"]
        for labels in found.values():
            assert (labels != 3).all()
        first = found["nearest_centroid"][:, : 3 * (10 - shot)]
        assert (first == alone).all() and (first == 1).any()
