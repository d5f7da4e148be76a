"""ReSSL against loops over its algorithm 1; which view goes where, its queue and its teacher."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import sslkit
from sslkit import backbones
from sslkit.embeddings import Embeddings
from sslkit.errors import UserError
from sslkit.objectives.ressl import ReSSL


def relation(z: Tensor, rows: Tensor, temperature: float) -> Tensor:
    weights = (z / z.norm() * rows).sum(1).div(temperature).exp()
    return weights / weights.sum()


def oracle(objective: ReSSL, e: Embeddings) -> Tensor:
    rows, losses = objective.queue.rows, []
    for z, target in zip(e.z[0], e.target[0], strict=True):
        wanted = relation(target, rows, objective.teacher_temperature)
        losses.append(-(wanted * relation(z, rows, objective.temperature).log()).sum())
    return torch.stack(losses).mean()


def ressl(**options) -> ReSSL:
    torch.manual_seed(0)
    backbone = backbones.build("narrow_resnet", image_size=16, in_chans=1)
    return ReSSL(backbone, **{"dim": 6, "queue_size": 20, **options})


def drawn(n: int, dim: int = 6) -> Embeddings:
    g = torch.Generator().manual_seed(n)
    z, target = torch.randn(2, 1, n, dim, generator=g, dtype=torch.double)
    return Embeddings(z=z.requires_grad_(), h=z, target=target, index=torch.arange(n))


def views(n: int = 4) -> list[Tensor]:
    g = torch.Generator().manual_seed(9)
    return [torch.rand(n, 1, 16, 16, generator=g) for _ in range(2)]


@pytest.mark.parametrize("n", [2, 9])
@pytest.mark.parametrize("queue_size", [1, 7, 300])
@pytest.mark.parametrize("temperatures", [(0.1, 0.04), (0.5, 0.2)])
def test_align_is_the_papers_cross_entropy(n: int, queue_size: int, temperatures: tuple[float, float]) -> None:
    options = dict(zip(("temperature", "teacher_temperature"), temperatures, strict=True))
    objective, e = ressl(queue_size=queue_size, **options).double(), drawn(n)
    ours, theirs = objective.align(e), oracle(objective, e)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(v, e.z)[0] for v in (ours, theirs)))
    assert objective.constrain(e) is None


def test_a_case_by_hand() -> None:
    objective = ressl(dim=2, queue_size=2, temperature=1.0, teacher_temperature=0.5)
    objective.queue.rows = torch.eye(2)
    z, target = torch.tensor([[[0.0, 3.0]]]), torch.tensor([[[2.0, 0.0]]])
    e = Embeddings(z=z, h=z, target=target, index=torch.arange(1))
    p = 1 / (1 + math.exp(-2))  # the teacher's for the first row: softmax of (1, 0) / 0.5
    q = 1 / (1 + math.exp(1))  # the student's: softmax of (0, 1) / 1
    assert objective.align(e).item() == pytest.approx(-p * math.log(q) - (1 - p) * math.log(1 - q))


def test_large_logits_stay_finite() -> None:
    objective = ressl(temperature=0.005, teacher_temperature=0.001)
    z = torch.ones(1, 4, 6).mul(1e4).requires_grad_()
    loss = objective.align(Embeddings(z=z, h=z, target=-z.detach(), index=torch.arange(4)))
    loss.backward()
    assert loss.isfinite() and z.grad.isfinite().all()


def test_the_student_sees_the_first_view_and_the_teacher_the_second() -> None:
    objective = ressl()
    with torch.no_grad():
        objective.teacher[1][0].weight.mul_(2)
    strong, weak = views()
    e = objective.embed([strong, weak], torch.arange(4))
    assert e.z.shape == e.target.shape == (1, 4, 6) and e.h.shape == (1, 4, 128)
    torch.testing.assert_close(e.z[0], objective.projector(objective.backbone(strong)))
    torch.testing.assert_close(e.target[0], objective.teacher(weak))
    assert e.z.requires_grad and not e.target.requires_grad


@pytest.mark.parametrize("image_size", [32, 224])
def test_the_second_view_is_cropped_and_mirrored_and_nothing_else(image_size: int) -> None:
    strong, weak = ReSSL.views.at(image_size).views
    assert (weak.jitter, weak.grayscale, weak.blur, weak.solarize) == (0, 0, 0, 0)
    assert weak.scale == strong.scale == (0.2, 1.0) and weak.flip == 0.5
    assert strong.jitter == 0.8 and strong.grayscale == 0.2 and strong.brightness > 0


def test_the_loss_sees_the_old_queue_and_observe_appends_the_teachers_embeddings() -> None:
    m = sslkit.method(
        "ressl", backbone="narrow_resnet", image_size=16, in_chans=1, objective={"queue_size": 10, "dim": 6}
    )
    images = torch.randint(0, 256, (4, 1, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    expected = m.objective.queue.rows.clone()
    for step in range(4):  # 16 into 10 places
        before = m.objective.queue.rows.clone()
        assert torch.equal(before, expected)
        terms, e = m.step(images, torch.arange(4))
        after, m.objective.queue.rows = m.objective.queue.rows, before
        torch.testing.assert_close(terms["loss"], oracle(m.objective, e))
        m.objective.queue.rows = after
        terms["loss"].backward()
        for i, row in enumerate(F.normalize(e.target[0], dim=1)):
            expected[(4 * step + i) % 10] = row
        torch.testing.assert_close(after, expected)
        expected = after.clone()


@pytest.mark.parametrize("queue_size", [1, 3, 5, 64])
def test_two_images_and_any_queue(queue_size: int) -> None:
    m = sslkit.method(
        "ressl", backbone="narrow_resnet", image_size=16, in_chans=1, objective={"queue_size": queue_size}
    )
    images = torch.randint(0, 256, (2, 1, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    for _ in range(3):
        loss = m(images, torch.arange(2))["loss"]
        loss.backward()
        m.after_step(0.5)
        assert loss.isfinite()
    assert all(p.grad.isfinite().all() for p in m.parameters() if p.requires_grad)


def test_the_teacher_follows_with_a_constant_momentum() -> None:
    objective = ressl(momentum=0.9)
    objective.embed(views(), torch.arange(4))
    for progress in (0.1, 1.0):
        slow = {k: v.clone() for k, v in objective.teacher.state_dict().items()}
        with torch.no_grad():
            for p in (*objective.backbone.parameters(), *objective.projector.parameters()):
                p.add_(1)
        objective.after_step(progress)
        fast = torch.nn.Sequential(objective.backbone, objective.projector).state_dict()
        for k, v in objective.teacher.state_dict().items():
            expected = 0.9 * slow[k] + 0.1 * fast[k] if v.is_floating_point() else fast[k]
            torch.testing.assert_close(v, expected, msg=lambda m, k=k: f"{k}: {m}")


def test_the_widths_are_the_published_multiples_of_the_backbones() -> None:
    objective = ReSSL(backbones.build("narrow_resnet", image_size=16, in_chans=1), queue_size=4)
    assert [type(m).__name__ for m in objective.projector] == ["Linear", "ReLU", "Linear"]
    assert objective.projector[0].out_features == 256 and objective.dim == objective.projector[2].out_features == 32
    assert objective.queue.rows.shape == (4, 32)


@pytest.mark.parametrize(
    ("option", "value"), [("temperature", 0.0), ("momentum", 1.5), ("teacher_temperature", -0.1), ("queue_size", 0)]
)
def test_numbers_that_cannot_be_are_refused_by_name(option: str, value: float) -> None:
    with pytest.raises(UserError, match=option):
        ressl(**{option: value})
