"""PaKa: one minus the cosine of double-centred kernels, by matrices of the centring."""

import pytest
import torch
from contract import maps
from torch import Tensor

from sslkit.embeddings import Maps
from sslkit.regularizers.base import tokens
from sslkit.regularizers.paka import Paka


def loop(student: Maps, anchor: Maps, order: Tensor) -> float:
    total = 0.0
    for s, t in zip(*tokens(student, anchor), strict=True):
        h = torch.eye(len(order)).double() - 1 / len(order)
        k, other = (h @ (x[order] @ x[order].T) @ h for x in (s, t))
        total += 1 - ((k * other).sum() / ((k * k).sum() * (other * other).sum()).sqrt()).item()
    return total / len(student.patches)


@pytest.mark.parametrize("side", [3, 5])
def test_the_distance_is_that_of_a_loop_in_float64(side: int) -> None:
    student, anchor, order = maps(), maps(side=side, f=7, seed=1), torch.randperm(9)
    found = Paka(5).distance(student, anchor, order).item()
    assert found == pytest.approx(loop(student, anchor, order), rel=1e-6)


def test_the_drawn_positions_are_those_of_both_networks() -> None:
    student, anchor, order = maps(), maps(seed=1), torch.randperm(9)
    found = Paka(5, patches=4).distance(student, anchor, order).item()
    assert found == pytest.approx(loop(student, anchor, order[:4]), rel=1e-9)
    assert found != pytest.approx(loop(student, anchor, order[4:8]), rel=1e-2)


def test_scale_and_mean_are_free_and_a_constant_map_is_no_nan() -> None:
    student, order = maps(), torch.arange(9)
    moved = Maps(3 * student.patches + 1, student.pooled)
    assert Paka(5).distance(moved, student, order).item() == pytest.approx(0, abs=1e-12)
    constant = Maps(torch.ones(2, 5, 3, 3).double().requires_grad_(), student.pooled)
    distance = Paka(5).distance(constant, student, order)
    distance.backward()
    assert distance.item() == pytest.approx(0.5) and constant.patches.grad.isfinite().all()
