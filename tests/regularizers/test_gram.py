"""Gram: squared differences of the cosines of an image's patches, pair by pair."""

import pytest
import torch
from contract import maps
from torch import Tensor

from sslkit.embeddings import Maps
from sslkit.regularizers.base import tokens
from sslkit.regularizers.gram import Gram


def loop(student: Maps, anchor: Maps, order: Tensor) -> float:
    total, count = 0.0, 0
    for s, t in zip(*tokens(student, anchor), strict=True):
        for i in range(len(s)):
            for j in range(len(s)):
                ours, theirs = (x[i] @ x[j] / (x[i].norm() * x[j].norm()) for x in (s, t))
                total, count = total + (ours - theirs).square().item(), count + 1
    return total / count


@pytest.mark.parametrize("side", [3, 5])
def test_the_distance_is_that_of_a_loop_in_float64(side: int) -> None:
    student, anchor, order = maps(), maps(side=side, f=7, seed=1), torch.randperm(9)
    found = Gram(5).distance(student, anchor, order).item()
    assert found == pytest.approx(loop(student, anchor, order), rel=1e-6)


def test_a_rotation_of_the_channels_is_free_and_a_mean_is_not() -> None:
    student, order = maps(), torch.arange(9)
    turn = torch.linalg.qr(torch.randn(5, 5, generator=torch.Generator().manual_seed(2)).double())[0]
    turned = Maps(torch.einsum("nfhw,fg->nghw", student.patches, turn), student.pooled)
    assert Gram(5).distance(turned, student, order).item() == pytest.approx(0, abs=1e-12)
    moved = Maps(student.patches + 1, student.pooled)
    assert Gram(5).distance(moved, student, order).item() > 0.01
