"""BYOL against lightly's cosine loss; its teacher against the recursion."""

import math

import pytest
import torch
from lightly.loss import NegativeCosineSimilarity

from sslkit import backbones
from sslkit.embeddings import Predicted
from sslkit.objectives.byol import BYOL


def byol(**options) -> BYOL:
    return BYOL(backbones.build("narrow_resnet", image_size=16, in_chans=1), dim=6, **options)


def oracle(objective: BYOL, e: Predicted) -> torch.Tensor:
    cosine = NegativeCosineSimilarity()
    return 4 + 2 * cosine(e.prediction[0], e.target[1]) + 2 * cosine(e.prediction[1], e.target[0])


def test_align_is_lightlys_symmetric_cosine() -> None:
    prediction = torch.randn(2, 9, 6, requires_grad=True)
    target = torch.randn(2, 9, 6)
    e = Predicted(z=prediction, h=prediction, target=target, index=torch.arange(9), prediction=prediction)
    theirs = oracle(byol(), e)
    ours = byol().align(e)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    grads = [torch.autograd.grad(v, prediction)[0] for v in (ours, theirs)]
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-6)


def test_the_teacher_is_the_moving_average_and_never_trained() -> None:
    objective = byol(momentum=0.9)
    student = torch.nn.Sequential(objective.backbone, objective.projector)
    start = [p.clone() for p in objective.teacher.parameters()]
    with torch.no_grad():
        for p in student.parameters():
            p.add_(1)
        objective.backbone.net.bn1.running_mean.fill_(3)
    objective.after_step(progress=0.25)
    m = 1 - (1 - 0.9) * (math.cos(math.pi * 0.25) + 1) / 2
    for before, slow in zip(start, objective.teacher.parameters(), strict=True):
        torch.testing.assert_close(slow, before + (1 - m))
        assert not slow.requires_grad
    running = objective.teacher[0].net.bn1.running_mean
    torch.testing.assert_close(running, torch.full_like(running, 3 * (1 - m)))


def test_at_the_end_of_the_run_the_teacher_stands_still() -> None:
    objective = byol(momentum=0.5)
    before = [p.clone() for p in objective.teacher.parameters()]
    with torch.no_grad():
        for p in objective.backbone.parameters():
            p.add_(1)
    objective.after_step(progress=1.0)
    assert all(torch.equal(a, b) for a, b in zip(before, objective.teacher.parameters(), strict=True))


def test_the_target_has_no_gradient_and_the_prediction_has() -> None:
    views = [torch.rand(4, 1, 16, 16) for _ in range(2)]
    e = byol().embed(views, torch.arange(4))
    assert not e.target.requires_grad and e.prediction.requires_grad and e.z.shape == (2, 4, 6)


@pytest.mark.parametrize("v", [2, 3])
def test_more_views_than_two(v: int) -> None:
    objective = byol()
    e = objective.embed([torch.rand(4, 1, 16, 16) for _ in range(v)], torch.arange(4))
    assert 0 <= objective.align(e).item() <= 4 * v
