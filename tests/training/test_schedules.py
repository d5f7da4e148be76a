"""Learning rates over a run, group by group."""

import math
from itertools import pairwise

import pytest
import torch

import sslkit
from sslkit.training.config import OptimizerConfig
from sslkit.training.optimizers import make_optimizer
from sslkit.training.schedules import make_schedule, warmup_cosine


def test_warmup_then_cosine_to_zero() -> None:
    factors = [warmup_cosine(step, 100, 0.1) for step in range(101)]
    assert factors[0] == pytest.approx(0.1) and factors[9] == 1.0 and factors[100] == pytest.approx(0)
    assert factors[55] == pytest.approx((1 + math.cos(math.pi * 45 / 90)) / 2)


@pytest.mark.parametrize("steps", [1, 2, 3, 10, 100])
@pytest.mark.parametrize("warmup", [0.0, 0.1, 0.5, 1.0])
def test_no_step_is_without_a_rate_and_none_jumps(steps: int, warmup: float) -> None:
    """github.com/lightly-ai/lightly/pull/1842 and kibok90/imix/issues/1: where the warmup ends, or is all there is."""
    factors = [warmup_cosine(step, steps, warmup) for step in range(steps)]
    assert all(0 < factor <= 1 for factor in factors) and max(factors) == 1
    falling = factors[factors.index(1.0) :]
    assert falling == sorted(falling, reverse=True)
    rising = max(round(steps * warmup), 1)
    rise, fall = 1 / rising, math.pi / 2 / max(steps - rising, 1)
    assert all(abs(a - b) <= max(rise, fall) + 1e-12 for a, b in pairwise(factors))


@pytest.mark.parametrize("name", ["adamw", "sgd", "lars"])
def test_simsiams_predictor_keeps_its_learning_rate(name: str) -> None:
    method = sslkit.method("simsiam", image_size=16, objective={"dim": 8})
    optimizer = make_optimizer(method, OptimizerConfig(name=name), 0.5)
    schedule = make_schedule(optimizer, steps=10, warmup=0.2)
    apart = {id(p) for p in method.objective.predictor.parameters()}
    seen = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert seen == {id(p) for p in method.parameters() if p.requires_grad}
    for step in range(10):
        for group in optimizer.param_groups:
            constant = {id(p) in apart for p in group["params"]}
            assert len(constant) == 1
            expected = 0.5 if constant == {True} else 0.5 * warmup_cosine(step, 10, 0.2)
            assert group["lr"] == pytest.approx(expected)
        optimizer.step()
        schedule.step()


def test_norms_and_biases_do_not_decay() -> None:
    method = sslkit.method("simclr", image_size=16)
    optimizer = make_optimizer(method, OptimizerConfig(weight_decay=0.3), 1e-3)
    for group in optimizer.param_groups:
        assert group["weight_decay"] == (0.3 if all(p.dim() > 1 for p in group["params"]) else 0.0)
        assert len({p.dim() > 1 for p in group["params"]}) == 1


def test_a_frozen_parameter_is_in_no_group() -> None:
    method = sslkit.method("moco_v3", image_size=16, objective={"hidden": 16})
    optimizer = make_optimizer(method, OptimizerConfig(), 1e-3)
    frozen = {id(p) for p in method.parameters() if not p.requires_grad}
    assert frozen and not frozen & {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert isinstance(optimizer, torch.optim.AdamW)
