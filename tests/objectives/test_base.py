"""Passes over the views, and slow teachers: they follow backbone and projector, with a momentum that rises to 1."""

import copy
import inspect

import pytest
import torch

from sslkit import backbones, objectives
from sslkit.errors import UserError
from sslkit.numerics import schedules
from sslkit.objectives.base import Objective, WithTeacher

FOUND = {name: objectives.find(name) for name in objectives.names()}
TAUGHT = [name for name, one in FOUND.items() if issubclass(one, WithTeacher)]


def built(name: str, momentum: float) -> WithTeacher:
    body = backbones.default(FOUND[name].families[0], 16, frames=None)
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


APART = ("corinfomax", "mec", "resa", "ssl_hsic")  # as their authors' codes
CHOOSABLE = [name for name, one in FOUND.items() if "view_by_view" in inspect.signature(one).parameters]


def of_two_brightnesses() -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    dark = torch.rand(6, 1, 16, 16, generator=g)
    return [dark, 3 + 0.3 * torch.rand(6, 1, 16, 16, generator=g)]


def one_by_one(objective: Objective, views: list[torch.Tensor]) -> dict[str, list[torch.Tensor]]:
    """What copies of the networks give for one view after the other."""
    student = [copy.deepcopy(part) for part in (objective.backbone, objective.projector)]
    predictor, slow = (copy.deepcopy(getattr(objective, name, None)) for name in ("predictor", "teacher"))
    found = {"h": [], "z": [], "prediction": [], "target": []}
    for view in views:
        found["h"].append(student[0](view))
        found["z"].append(student[1](found["h"][-1]))
        if predictor is not None:
            found["prediction"].append(predictor(found["z"][-1]))
            found["target"].append(slow(view).detach())
    found["statistics"] = [buffer for part in student for buffer in part.buffers()]
    return found


def made(name: str, **options: object) -> Objective:
    torch.manual_seed(0)
    body = backbones.build(backbones.default(FOUND[name].families[0], 16, frames=None), image_size=16, in_chans=1)
    return FOUND[name](body, **options)


@pytest.mark.parametrize("name", sorted({*APART, *CHOOSABLE}))
def test_batch_norms_see_one_view_at_a_time(name: str) -> None:
    """They saw both, and z was another one where views differ in brightness."""
    objective = made(name, **({} if name in APART else {"view_by_view": True}))
    views = of_two_brightnesses()
    expected = one_by_one(objective, views)
    e = objective.embed(views, torch.arange(6))
    for field in ("h", "z", "prediction", "target"):
        if expected[field]:
            torch.testing.assert_close(getattr(e, field), torch.stack(expected[field]), rtol=1e-4, atol=1e-5)
    buffers = [*objective.backbone.buffers(), *objective.projector.buffers()]
    assert buffers and all(map(torch.equal, buffers, expected["statistics"]))
    (e.z.square().sum() + e.h.sum()).backward()
    assert all(p.grad is not None for p in objective.projector.parameters())


@pytest.mark.parametrize("name", CHOOSABLE)
def test_one_pass_for_all_views_can_be_chosen(name: str) -> None:
    objective = made(name, view_by_view=False)
    views = of_two_brightnesses()
    apart = torch.stack(one_by_one(objective, views)["z"])
    joined = copy.deepcopy(objective)
    z = joined.projector(joined.backbone(torch.cat(views))).unflatten(0, (2, -1))
    found = objective.embed(views, torch.arange(6)).z
    torch.testing.assert_close(found, z)
    assert (found - apart).norm() > 0.3 * apart.norm()


def test_the_default_is_that_of_the_authors() -> None:
    assert {name for name in FOUND if made(name).view_by_view} == set(APART)
