"""The loss on prototypes against its definition; SwAV's queue and DINO's centre on two processes against one."""

import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from contract import build
from forks import WORLD, start_ranks
from torch.nn.parallel import DistributedDataParallel

import sslkit
from sslkit.layers.prototypes import held, predict_swapped
from sslkit.runtime import distributed

SMALL = {"prototypes": 9, "dim": 5, "hidden": 12}
OPTIONS = {
    "swav": {**SMALL, "queue_size": 13, "queue_start": 1, "freeze_prototypes": 1},
    "dino": {**SMALL, "freeze_last_layer": 1, "warmup_epochs": 2, "teacher_temperature": 0.07, "momentum": 0.8},
}


@pytest.mark.parametrize(("v", "c"), [(2, 2), (2, 8), (1, 3), (3, 4)])
def test_swapped_prediction_is_the_mean_cross_entropy_over_pairs_of_crops(v: int, c: int) -> None:
    g = torch.Generator().manual_seed(0)
    codes = torch.rand(v, 6, 10, generator=g, dtype=torch.double)
    codes = codes / codes.sum(-1, keepdim=True)
    z, prototypes = (torch.randn(s, generator=g, dtype=torch.double).requires_grad_() for s in ((c, 6, 4), (10, 4)))
    pairs = [(a, b) for a in range(v) for b in range(c) if a != b]
    losses = [F.cross_entropy(z[b] @ prototypes.T / 0.2, codes[a]) for a, b in pairs]
    expected, got = torch.stack(losses).mean(), predict_swapped(codes, z, prototypes, 0.2)
    torch.testing.assert_close(got, expected)
    for mine, its in zip(*(torch.autograd.grad(x, (z, prototypes)) for x in (got, expected)), strict=True):
        torch.testing.assert_close(mine, its)


def test_a_held_weight_has_its_value_and_no_gradient_or_of_several_processes_zero(monkeypatch) -> None:
    weight = torch.randn(3, 2, requires_grad=True)
    assert torch.equal(held(weight, True), weight) and held(weight, False) is weight
    assert not held(weight, True).requires_grad
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    held(weight, True).square().sum().backward()
    assert torch.equal(weight.grad, torch.zeros(3, 2))


@pytest.mark.parametrize("name", OPTIONS)
def test_the_first_step_after_the_freeze_is_adam_s_first(name: str) -> None:
    """The learning rate in each entry of the prototypes: frozen steps are not counted."""
    method = sslkit.method(name, backbone="narrow_resnet", image_size=16, in_chans=1, objective=OPTIONS[name], seed=1)
    weight = method.objective.prototypes.weight
    optimizer = torch.optim.AdamW([p for p in method.parameters() if p.requires_grad], 1e-3, weight_decay=0.0)
    before = weight.detach().clone()
    for step in range(9):
        method.epoch = int(step == 8)
        optimizer.zero_grad()
        method(torch.randint(0, 256, (8, 1, 16, 16), dtype=torch.uint8), torch.arange(8))["loss"].backward()
        assert torch.equal(weight, before)
        method.before_step()
        optimizer.step()
    torch.testing.assert_close((weight - before).abs(), torch.full_like(weight, 1e-3), rtol=0.02, atol=0)


@pytest.mark.parametrize("name", ["swav", "dino", "ibot", "dinov2"])
def test_the_zeros_of_several_processes_are_dropped_before_the_optimiser(name: str) -> None:
    method = build(name)
    frozen = method.objective.frozen()
    assert frozen and all(p.requires_grad for p in frozen)
    for p in method.parameters():
        p.grad = torch.zeros_like(p)
    method.before_step()
    assert {id(p) for p in method.parameters() if p.grad is None} == {id(p) for p in frozen}
    method.objective.epoch = 1
    assert not method.objective.frozen()


def three_steps(name: str, rank: int = 0, world: int = 1) -> dict:
    """Epochs 0 to 2: first frozen and without queue, then trained and with it."""
    method = sslkit.method(name, backbone="narrow_resnet", image_size=16, in_chans=1, objective=OPTIONS[name], seed=1)
    method = distributed.synchronize_batch_norm(method.double(), "cpu")
    m = DistributedDataParallel(method) if world > 1 else method
    optimizer = torch.optim.SGD([p for p in method.parameters() if p.requires_grad], 0.1)
    images = torch.randint(0, 256, (3, 8, 1, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(5))
    losses = []
    for epoch in range(3):
        method.epoch, method.batch = epoch, 0
        loss = m(images[epoch, rank::world], torch.arange(8)[rank::world])["loss"]
        optimizer.zero_grad()
        loss.backward()
        method.before_step()
        optimizer.step()
        method.after_step(epoch / 3)
        losses.append(loss.detach())
    state = {k: v.clone() for k, v in method.state_dict().items()}
    grads = {k: p.grad.clone() for k, p in method.named_parameters() if p.grad is not None}
    return {"losses": torch.stack(losses), "grads": grads, "state": state}


def work(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=WORLD)
    for name in OPTIONS:
        torch.save(three_steps(name, rank, WORLD), folder / f"{name}{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def together(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    start_ranks(work, folder)
    return folder


@pytest.mark.parametrize("rank", range(WORLD))
@pytest.mark.parametrize("name", OPTIONS)
def test_queue_centre_and_prototypes_on_two_processes_are_those_of_one(name: str, rank: int, together: Path) -> None:
    both, alone = torch.load(together / f"{name}{rank}.pt", weights_only=True), three_steps(name)
    torch.testing.assert_close(both["losses"], alone["losses"], rtol=1e-5, atol=0)
    assert both["grads"].keys() == alone["grads"].keys() and both["state"].keys() == alone["state"].keys()
    for part in ("grads", "state"):
        for k, v in alone[part].items():
            torch.testing.assert_close(both[part][k], v, rtol=1e-4, atol=1e-6, msg=lambda m, k=k: f"{k}: {m}")
    if name == "swav":
        assert alone["state"]["objective.queues.0._extra_state"].tolist() == [3, 13]  # 16 images went into 13 rows
    else:
        assert alone["state"]["objective.center"].abs().max() > 0
