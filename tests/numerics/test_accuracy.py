"""The quick judges of a run on features with ties, copies, offsets and scales, against a loop."""

import numpy as np
import pytest
import torch
from torch import Tensor

import evaluation
from evaluation.results.statistics import share
from sslkit.numerics.accuracy import knn_accuracy, probe_accuracy, scale_of
from sslkit.numerics.wilson import wilson, with_interval
from sslkit.training.config import EvalConfig


def cloud(n: int, d: int, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def by_loop(bank: Tensor, y: Tensor, query: Tensor, k: int) -> Tensor:
    """(M,) labels, cosines and votes rounded to ten digits, the smaller class first."""
    found = []
    b, q = (x.double() / x.double().norm(dim=1, keepdim=True) for x in (bank, query))
    for row in q:
        cosine = [(-round(float(c), 10), int(label)) for c, label in zip((b * row).sum(1), y, strict=True)]
        votes: dict[int, float] = {}
        for minus, label in sorted(cosine)[:k]:
            votes[label] = votes.get(label, 0.0) + float(torch.tensor((-minus - 1) / 0.07, dtype=torch.float64).exp())
        most = max(votes.values())
        found.append(min(label for label, vote in votes.items() if vote >= most * (1 - 1e-9)))
    return torch.tensor(found)


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e15])
@pytest.mark.parametrize("copies", [1, 2, 9])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_equally_near_images_vote_for_the_smaller_class(scale: float, copies: int, k: int) -> None:
    """Copies with other labels, in any order, at twice and four times the length: cosines are those of the first."""
    once = cloud(40, 37)
    bank = torch.cat([once * 2 ** (copy % 3) for copy in range(copies)])
    y = torch.cat([(torch.arange(40) + 3 * copy) % 7 for copy in range(copies)])
    drawn = torch.randperm(len(bank), generator=torch.Generator().manual_seed(1))
    query = torch.cat([once[:20], cloud(20, 37, 1)])
    wanted = by_loop(bank, y, query, k)
    got = [knn_accuracy(scale * bank[rows], y[rows], query * scale, wanted, k=k) for rows in (drawn, drawn.flip(0))]
    assert got == [1.0, 1.0]


def test_a_collapsed_network_gets_one_answer() -> None:
    bank, y = cloud(1, 33).repeat(50, 1), torch.arange(50) % 5
    assert knn_accuracy(bank, y, bank, torch.zeros(50, dtype=torch.long), k=7) == 1.0
    assert knn_accuracy(0 * bank, y, 0 * bank, y, k=7) == 0.0  # no direction: counts as wrong, as in a ranking


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e15])
def test_dead_units_are_told_by_the_scale_of_the_features(scale: float) -> None:
    x = torch.cat([cloud(100, 3) + 5, torch.full((100, 1), 1000.1), torch.zeros(100, 1)], 1) * scale
    mean, std = scale_of(x)
    assert std[:3].isfinite().all() and std[3:].isinf().all()
    assert ((x - mean) / std)[:, :3].std(0).allclose(torch.ones(3)) and not ((x - mean) / std)[:, 3:].any()


@pytest.mark.parametrize("right", [0, 7, 40])
def test_the_interval_of_an_accuracy_is_that_of_an_evaluation(right: int) -> None:
    assert wilson(right / 40, 40) == pytest.approx(share(np.arange(40) < right).interval)


@pytest.mark.parametrize(
    ("value", "n", "shown"),
    [
        (0.788, 2000, "78.8 % ± 1.8"),
        (1.0, 12, "100.0 % (75.8 to 100.0)"),
        (0.0, 12, "0.0 % (0.0 to 24.2)"),
        (0.99, 500, "99.0 % (97.7 to 99.6)"),
        (1.0, 2000, "100.0 % (99.8 to 100.0)"),
        (0.5, 20, "50.0 % ± 20.1"),
    ],
)
def test_an_interval_that_is_not_even_is_shown_by_its_ends(value: float, n: int, shown: str) -> None:
    assert with_interval(value, n) == shown


def test_they_are_the_numbers_of_an_evaluation() -> None:
    centres = cloud(5, 24, 3)
    y, query_y = torch.arange(300) % 5, torch.arange(120) % 5
    bank, query = centres[y] + 2 * cloud(300, 24, 4), centres[query_y] + 2 * cloud(120, 24, 5)
    parts = [(x.numpy(), labels.numpy()) for x, labels in ((bank, y), (query, query_y))]
    knn = evaluation.knn(*parts)
    assert knn_accuracy(bank, y, query, query_y) == knn.value and knn.details["k"] == EvalConfig().k
    mean, std = bank.mean(0), bank.std(0)
    fitted = evaluation.fit_logistic((bank - mean) / std, y, c=1.0)
    share_right = (fitted.predict((query - mean) / std) == query_y.numpy()).mean()
    assert probe_accuracy(bank, y, query, query_y) == pytest.approx(share_right, abs=0.01)


def test_the_probe_of_a_collapsed_network_answers() -> None:
    y = torch.arange(40) % 4
    assert probe_accuracy(torch.ones(40, 3), y, torch.ones(40, 3), y) == 0.25
