"""LARS against the paper's step and lightly's optimiser."""

import pytest
import torch
from contract import build
from lightly.utils.lars import LARS as LightlyLARS
from torch import Tensor

from sslkit.training.config import OptimizerConfig
from sslkit.training.optimizers import make_optimizer, set_weight_decay


def step_of_lars(w: Tensor, gradient: Tensor, decay: float, speed: Tensor | float, lr: float) -> tuple[Tensor, Tensor]:
    """The weights after a step of You, Gitman & Ginsburg 2017, algorithm 1, with momentum 0.9, and the new speed.

    Biases and norms have neither the ratio nor weight decay.
    """
    if w.dim() > 1:
        ratio = 0.001 * w.norm() / (gradient.norm() + decay * w.norm())
        gradient = ratio * (gradient + decay * w)
    speed = 0.9 * speed + gradient
    return w - lr * speed, speed


@pytest.mark.parametrize("decays", [(0.0, None), (0.0, 0.4), (0.01, 0.0), (0.01, None)])
def test_lars_is_the_paper_s_with_and_without_weight_decay(decays: tuple[float, float | None]) -> None:
    torch.manual_seed(0)
    config = OptimizerConfig(name="lars", weight_decay=decays[0], weight_decay_end=decays[1])
    method = build("simclr", "resnet")
    optimizer = make_optimizer(method, config, 0.5)
    weights = {name: p.detach().clone() for name, p in method.named_parameters() if p.requires_grad}
    speeds: dict[str, Tensor | float] = dict.fromkeys(weights, 0.0)
    for step in range(3):
        set_weight_decay(optimizer, config, step, 2)
        decay = {0: decays[0], 1: sum(decays) / 2, 2: decays[1]}[step] if decays[1] is not None else decays[0]
        for name, p in method.named_parameters():
            if name in weights:
                p.grad = torch.randn_like(p) * 100
                weights[name], speeds[name] = step_of_lars(weights[name], p.grad, decay, speeds[name], 0.5)
        before = {name: p.detach().clone() for name, p in method.named_parameters()}
        optimizer.step()
        for name, p in method.named_parameters():
            if name in weights:
                assert torch.allclose(p, weights[name], rtol=1e-4, atol=1e-6 * float(p.detach().abs().max())), (
                    step,
                    name,
                )
            if name in weights and p.dim() > 1 and step == 0:
                moved = (p.detach() - before[name]).norm() / before[name].norm()
                assert moved.item() == pytest.approx(0.0005, rel=0.01)


@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_lars_moves_as_lightlys(decay: float) -> None:
    """Which takes a matrix without weight decay for a norm: 1e-30 changes no bit of a step."""
    ours, theirs = build("simclr", "resnet"), build("simclr", "resnet")
    optimizer = make_optimizer(ours, OptimizerConfig(name="lars", weight_decay=decay), 0.5)
    other = LightlyLARS(make_optimizer(theirs, OptimizerConfig(name="sgd", weight_decay=decay), 0.5).param_groups, 0.5)
    for group in other.param_groups:
        group["momentum"] = 0.9
        group["weight_decay"] = max(decay, 1e-30) if group["params"][0].dim() > 1 else 0.0
    for _ in range(3):
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            p.grad = q.grad = torch.randn_like(p) if p.requires_grad else None
        optimizer.step()
        other.step()
        for (name, p), q in zip(ours.named_parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-7, msg=name)


def test_lars_without_momentum_and_of_weights_that_are_zero() -> None:
    """github.com/bitsandbytes-foundation/bitsandbytes/pull/2082: no momentum; a matrix of zeros has no size to scale
    by, and takes the step of SGD."""
    config = OptimizerConfig(name="lars", weight_decay=0.0, momentum=0.0)
    method = build("simclr", "resnet")
    first, second = [p for p in method.parameters() if p.requires_grad and p.dim() > 1][:2]
    with torch.no_grad():
        second.zero_()
    optimizer = make_optimizer(method, config, 0.5)
    for _ in range(2):
        before = first.detach().clone(), second.detach().clone()
        first.grad, second.grad = torch.randn_like(first), torch.randn_like(second)
        expected = step_of_lars(before[0], first.grad, 0.0, 0.0, 0.5)[0]
        optimizer.step()
        assert torch.allclose(first, expected, rtol=1e-4, atol=1e-6)
        if not before[1].any():
            assert torch.allclose(second, -0.5 * second.grad)
    assert second.isfinite().all()
