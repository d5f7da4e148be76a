"""Objectives with a slow teacher: it follows backbone and projector, with a momentum that rises to 1."""

import pytest
import torch

from sslkit import backbones, objectives
from sslkit.errors import UserError
from sslkit.numerics import schedules
from sslkit.objectives.base import WithTeacher

FOUND = {name: objectives.find(name) for name in objectives.names()}
TAUGHT = [name for name, one in FOUND.items() if issubclass(one, WithTeacher)]


def built(name: str, momentum: float) -> WithTeacher:
    body = backbones.default(FOUND[name].families[0], 16)
    return FOUND[name](backbones.build(body, image_size=16, in_chans=1), momentum=momentum)


@pytest.mark.parametrize("name", TAUGHT)
def test_the_teachers_momentum_rises_to_one(name: str) -> None:
    objective = built(name, 0.9)
    slow = objective.teacher[1][0].weight.clone()
    for progress in (0.0, 0.3, 1.0):
        with torch.no_grad():
            objective.projector[0].weight.add_(1)
        objective.after_step(progress)
        momentum = schedules.along_cosine(0.9, 1.0, progress)
        slow = momentum * slow + (1 - momentum) * objective.projector[0].weight
        torch.testing.assert_close(objective.teacher[1][0].weight.detach(), slow.detach())
    assert not any(p.requires_grad for p in objective.teacher.parameters())


@pytest.mark.parametrize("name", TAUGHT)
def test_a_momentum_above_one_is_refused_by_name(name: str) -> None:
    with pytest.raises(UserError, match="momentum"):
        built(name, 1.5)
