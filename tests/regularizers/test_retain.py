"""Retain: one minus the cosine of the features, image by image."""

import pytest
import torch
from contract import maps
from torch import Tensor

from sslkit.embeddings import Maps
from sslkit.regularizers.retain import Retain


def loop(student: Maps, anchor: Maps, order: Tensor) -> float:
    rows = zip(student.pooled, anchor.pooled, strict=True)
    return sum((1 - s @ t / (s.norm() * t.norm())).item() for s, t in rows) / len(student.pooled)


@pytest.mark.parametrize("side", [3, 5])
def test_the_distance_is_that_of_a_loop_in_float64(side: int) -> None:
    student, anchor, order = maps(), maps(side=side, f=5, seed=1), torch.randperm(9)
    found = Retain(5).distance(student, anchor, order).item()
    assert found == pytest.approx(loop(student, anchor, order), rel=1e-6)


def test_the_length_of_features_is_free() -> None:
    student, anchor = maps(), maps(seed=1)
    longer = Maps(student.patches, 3 * student.pooled)
    found = Retain(5).distance(longer, anchor, torch.arange(9)).item()
    assert found == pytest.approx(loop(student, anchor, torch.arange(9)), rel=1e-9)
