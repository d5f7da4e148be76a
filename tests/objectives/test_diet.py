"""DIET against a plain loop in float64; its sampled softmax, its start from features, and its number of classes."""

import math

import pytest
import torch
from contract import batch
from torch import Tensor

import sslkit
from sslkit import backbones
from sslkit.errors import UserError
from sslkit.objectives.diet import Diet, Indexed


def oracle(objective: Diet, e: Indexed) -> Tensor:
    """Image by image and class by class: minus the smoothed target times the log-probability, in float64."""
    weight, total, count = objective.classifier.weight.detach().double(), 0, 0
    for view in e.z.double():
        for z, label in zip(view, e.index.tolist(), strict=True):
            logits = torch.stack([_logit(objective, z, w) for w in weight])
            log_sum = logits.exp().sum().log() if e.drawn is None else _sampled(objective, logits, e)
            log_p = logits - log_sum
            smooth = objective.label_smoothing
            total = total - (1 - smooth) * log_p[label] - smooth * log_p.mean()
            count += 1
    return total / count


def _logit(objective: Diet, z: Tensor, w: Tensor) -> Tensor:
    if objective.temperature is None:
        return (z * w).sum()
    return (z * w).sum() / (z.norm() * w.norm()) / objective.temperature


def _sampled(objective: Diet, logits: Tensor, e: Indexed) -> Tensor:
    in_step = sorted(set(e.index.tolist()))
    others = [row for row in e.drawn.tolist() if row not in in_step]
    each = (objective.images - len(in_step)) / len(others)
    return (sum(logits[row].exp() for row in in_step) + each * sum(logits[row].exp() for row in others)).log()


def diet(**options) -> Diet:
    torch.manual_seed(0)
    return Diet(backbones.build("narrow_resnet", image_size=16, in_chans=1), **{"images": 40, **options}).double()


def drawn(objective: Diet, index: list[int], v: int = 1, sample: Tensor | None = None) -> Indexed:
    g = torch.Generator().manual_seed(1)
    z = torch.randn(v, len(index), objective.dim, dtype=torch.float64, generator=g).requires_grad_()
    return Indexed(z=z, h=z, target=None, index=torch.tensor(index), drawn=sample)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.3, 0.8])
@pytest.mark.parametrize("temperature", [None, 0.2])
@pytest.mark.parametrize("sample", [None, torch.tensor([3, 3, 7, 0, 21, 39, 5])])
def test_value_and_gradients_are_the_plain_loops(label_smoothing, temperature, sample) -> None:
    objective = diet(label_smoothing=label_smoothing, temperature=temperature)
    e = drawn(objective, [5, 0, 39, 5], v=2, sample=sample)
    ours, theirs = objective.align(e), oracle(objective, e)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(loss, e.z, retain_graph=True)[0] for loss in (ours, theirs)))


def test_it_is_torchs_cross_entropy() -> None:
    objective = diet(label_smoothing=0.3)
    e = drawn(objective, [5, 0, 39])
    logits = objective.classifier(e.z[0])
    expected = torch.nn.functional.cross_entropy(logits, e.index, label_smoothing=0.3)
    ours = objective.align(e)
    torch.testing.assert_close(ours, expected)
    weight = objective.classifier.weight
    torch.testing.assert_close(*(torch.autograd.grad(loss, weight)[0] for loss in (ours, expected)))


def test_what_is_drawn_stands_for_all_images() -> None:
    """The exponentials add up to those of all images, over many draws; no gradient reaches rows that nobody drew."""
    whole, sampled = diet(label_smoothing=0.0), diet(label_smoothing=0.0, drawn=6)
    assert sampled.is_sampled and not whole.is_sampled
    e = drawn(whole, [5])
    own = (e.z[0] * whole.classifier.weight[e.index]).sum()
    exact, generator, found = (whole.align(e) + own).exp().item(), torch.Generator().manual_seed(0), []
    for _ in range(2000):
        e.drawn = torch.randint(40, (6,), generator=generator)
        found.append((sampled.align(e) + own).exp().item())
    assert math.fsum(found) / len(found) == pytest.approx(exact, rel=0.02)
    e.drawn = torch.tensor([1, 2])
    (grad,) = torch.autograd.grad(sampled.align(e), sampled.classifier.weight)
    assert set(grad.abs().sum(1).nonzero().flatten().tolist()) == {1, 2, 5}


def test_the_draw_is_the_steps_and_its_number_is_said() -> None:
    method = sslkit.method("diet", image_size=16, objective={"images": 50, "drawn": 20})
    images, index = batch(6)
    first = method.embed(images, index).drawn
    second = method.embed(images, index).drawn
    assert first.shape == (20,) and not torch.equal(first, second)
    method.batch = 0
    assert torch.equal(method.embed(images, index).drawn, first)
    assert "a softmax of 20 drawn images a step" in method.describe()["diet"]
    line = sslkit.method("diet", image_size=16, objective={"images": 50}).describe()["diet"]
    assert "each of 50 images is a class" in line and "softmax" not in line


@pytest.mark.parametrize("family", ["resnet", "vit"])
def test_the_head_starts_as_the_features_of_each_image(family: str) -> None:
    images = sslkit.open_images(batch(10)[0])
    method = sslkit.method(
        "diet", backbone=f"narrow_{family}", image_size=16, objective={"images": 12, "head": "features"}
    )
    before = method.objective.classifier.weight.detach().clone()
    method.prepare(images)
    weight = method.objective.classifier.weight.detach()
    method.eval()
    h = method.backbone(method.normalize_pixels(batch(10)[0].float() / 255)).detach()
    torch.testing.assert_close(weight[:10], torch.nn.functional.normalize(h), rtol=1e-4, atol=1e-5)
    assert torch.equal(weight[10:], before[10:])
    with torch.no_grad():
        method.objective.classifier.weight.zero_()
    method.prepare(images)  # of a run that goes on
    assert not method.objective.classifier.weight.any()


def test_a_row_beyond_the_classes_is_refused() -> None:
    objective = diet()
    with pytest.raises(UserError, match="40 images, and row 40 is beyond"):
        objective.align(drawn(objective, [0, 40]))


def test_options_that_cannot_be() -> None:
    with pytest.raises(UserError, match=r"diet\.head"):
        diet(head="zeros")
