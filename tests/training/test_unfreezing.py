"""Heads first: while the new parts learn alone, network, statistics and teacher stay; then they move, also resumed."""

import copy
import signal
import warnings
from pathlib import Path

import pytest
import safetensors.torch
import timm
import torch
import torch.distributed as dist
from contract import batch, build
from forks import WORLD, exit_code, start_ranks
from killed_runs import die_at
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import sslkit
from sslkit.errors import UserError
from sslkit.runtime import distributed
from sslkit.runtime.loop import Loop
from sslkit.training.config import OptimizerConfig
from sslkit.training.optimizers import make_optimizer, make_schedule, warmup_cosine
from sslkit.training.step import Pretraining, Progress
from sslkit.training.unfreezing import count_steps

RESNET = "resnet10t"


@pytest.fixture(scope="module")
def word(tmp_path_factory) -> str:
    """Random weights of a ResNet, in a file."""
    torch.manual_seed(7)
    path = tmp_path_factory.mktemp("weights") / "resnet.safetensors"
    safetensors.torch.save_file(timm.create_model(RESNET, num_classes=0).state_dict(), path)
    return f"timm:{RESNET}:{path}"


@pytest.fixture
def colour(small_run, word) -> dict:
    """A run from the weights, of two epochs of three steps; the new parts learn alone in the first two."""
    data = {**small_run["data"], "channels": 3}
    return {**small_run, "method": "byol", "data": data, "init": word, "unfreeze": 0.4}


def stepped(module: nn.Module, optimizer: torch.optim.Optimizer, number: int, rows: slice = slice(None)) -> None:
    """A step as the loop has it."""
    pretraining = getattr(module, "module", module)
    images, index = batch(8)
    pretraining.method.epoch, pretraining.method.batch = 0, number
    given = {"images": images[rows], "index": index[rows], "aspect": torch.ones(len(index[rows])), "label": index[rows]}
    loss = module(given, number)["loss"]
    optimizer.zero_grad()
    loss.backward()
    pretraining.before_step()
    optimizer.step()
    pretraining.set_step(number + 1)
    pretraining.method.after_step((number + 1) / 5)


def made(name: str = "byol", heads_first: int = 2, **optimizer) -> tuple[Pretraining, torch.optim.Optimizer]:
    module = Pretraining(build(name, seed=3).double(), heads_first)
    module.set_step(0)
    config = OptimizerConfig(lr=1e-2, **optimizer)
    return module, make_optimizer(module.method, config, config.lr, heads_first=heads_first)


@pytest.mark.parametrize("name", ["byol", "dino", "simclr", "byol+dsa", "mae"])
def test_network_statistics_and_teacher_stay_while_new_parts_learn(name: str) -> None:
    """A weight decay that would halve the weights in a step leaves them, and Adam knows nothing of them."""
    module, optimizer = made(name, weight_decay=50.0)
    method = module.method
    copies = [m for m in method.modules() if type(m) is type(method.backbone)]
    before = copy.deepcopy([m.state_dict() for m in copies])
    heads = [
        p for p in method.parameters() if p.requires_grad and all(p is not q for q in method.backbone.parameters())
    ]
    first = copy.deepcopy(heads)
    for number in range(2):
        stepped(module, optimizer, number)
        for body, state in zip(copies, before, strict=True):
            assert all(torch.equal(value, state[key]) for key, value in body.state_dict().items())
    assert not any(p in optimizer.state for p in method.backbone.parameters())
    assert any(not torch.equal(p, q) for p, q in zip(heads, first, strict=True))
    assert all(p.requires_grad for p in method.backbone.parameters() if p in {*optimizer.param_groups[-1]["params"]})
    stepped(module, optimizer, 2)
    moved = [not torch.equal(value, before[0][key]) for key, value in copies[0].state_dict().items()]
    assert sum(moved) > len(moved) / 2
    assert all(optimizer.state[p]["step"] == 1 for p in method.backbone.parameters() if p in optimizer.state)


def test_the_network_has_its_own_rate_and_its_schedule_begins_once_it_learns() -> None:
    module, optimizer = made(head_lr=0.5)
    schedule = make_schedule(optimizer, OptimizerConfig(), steps=12, epochs=2, heads_first=2)
    network = set(module.method.backbone.parameters())
    for step in range(12):
        for group in optimizer.param_groups:
            if {p in network for p in group["params"]} == {True}:
                expected = 0.0 if step < 2 else 1e-2 * warmup_cosine(step - 2, 10, 0.1)
            else:
                expected = 0.5 * warmup_cosine(step, 12, 0.1)
            assert group["lr"] == pytest.approx(expected)
        optimizer.step()
        schedule.step()


@pytest.mark.parametrize(
    ("unfreeze", "steps", "first"), [(0.1, 120, 12), (0.1, 3, 1), (0.9, 2, 1), (1, 120, 20), (1.5, 120, 30), (0, 9, 0)]
)
def test_a_share_or_epochs(unfreeze: float, steps: int, first: int) -> None:
    assert count_steps(unfreeze, build("byol"), steps, epochs=6) == first


def test_a_method_without_new_parts_begins_with_its_network() -> None:
    method = build("simclr")
    method.objective.projector.requires_grad_(False)
    assert count_steps(0.5, method, 10, 2) == 0


def work(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=WORLD)
    module, optimizer = made("byol+koleo")
    distributed.synchronize_batch_norm(module, "cpu")
    wrapped = DistributedDataParallel(module)
    for number in range(4):
        stepped(wrapped, optimizer, number, slice(rank, None, WORLD))
    torch.save(module.state_dict(), folder / f"{rank}.pt")
    dist.destroy_process_group()


def test_two_processes_are_one(tmp_path) -> None:
    """Two steps without the network and two with it, on gloo."""
    start_ranks(work, tmp_path)
    module, optimizer = made("byol+koleo")
    for number in range(4):
        stepped(module, optimizer, number)
    expected = module.state_dict()
    for rank in range(WORLD):
        found = torch.load(tmp_path / f"{rank}.pt")
        for key, value in expected.items():
            if isinstance(value, Tensor) and value.is_floating_point():
                torch.testing.assert_close(found[key], value, rtol=1e-6, atol=1e-7, msg=key)


def test_killed_and_resumed_is_bitwise_the_unbroken_run_before_and_after_the_network_learns(colour, tmp_path) -> None:
    unbroken = sslkit.pretrain({**colour, "name": "unbroken"}).state_dict()
    for step in (1, 4):
        run = {**colour, "name": f"broken{step}", "save_seconds": 0}
        assert exit_code(tmp_path / f"said{step}", die_at, run, step) == -signal.SIGKILL
        resumed = sslkit.pretrain({**run, "resume": True}).state_dict()
        assert all(torch.equal(unbroken[key], resumed[key]) for key in unbroken)


def test_a_run_says_what_it_trains_and_its_start_is_kept_at_first(colour, monkeypatch, capsys) -> None:
    seen = []
    after = Progress.after_step

    def look(self, loop: Loop) -> None:
        after(self, loop)
        seen.append(self.module.method.backbone.net.conv1[0].weight.detach().clone())

    monkeypatch.setattr(Progress, "after_step", look)
    sslkit.pretrain(colour)
    said = " ".join(capsys.readouterr().out.split())
    assert "tuned new parts alone for 2 of 6 steps, then all of the network; batch norm keeps its means" in said
    assert "lr 3e-05, new parts 0.002, x 0.75 from each layer to the one before" in said
    assert torch.equal(seen[0], seen[1]) and not torch.equal(seen[1], seen[2])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"init": None}, "unfreeze= trains what is new beside the weights of init= first: give init="),
        ({"unfreeze": 2}, r"unfreeze=2 epochs of 2: the network would never be trained; .*unfreeze=0\.1"),
    ],
)
def test_refused_before_anything_is_read(given: dict, said: str, colour, tmp_path) -> None:
    with pytest.raises(UserError, match=said):
        sslkit.pretrain({**colour, **given})
    assert not (tmp_path / "zoo").exists()
