"""The loop against one written out in PyTorch: the same weights, also over a stop; hooks in their order."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from sslkit.errors import UserError
from sslkit.runtime import loop as loop_module
from sslkit.runtime.loop import Hook, Loop

EPOCHS, BATCHES = 3, 5


class Drawn:
    """Batches of an epoch, drawn by its number. first: of those of the first epoch."""

    def __init__(self, first: int = 0) -> None:
        self.sampler = self
        self.epoch, self.first = 0, first

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return BATCHES

    def __iter__(self) -> Iterator[Tensor]:
        generator = torch.Generator().manual_seed(self.epoch)
        first, self.first = self.first, 0
        return iter(torch.randn(BATCHES, 8, 6, generator=generator)[first:])


class Module(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(6, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, 2))

    def forward(self, batch: Tensor, number: int) -> dict[str, Tensor]:
        return {"loss": (number + 1) * self.net(batch).square().mean()}


class Told(Hook):
    """Writes down what is called, and keeps a number. stop_at: a batch of the second epoch before which it raises."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.said: list[str] = []
        self.kept = 0
        self.stop_at = stop_at

    def begin(self, loop: Loop) -> None:
        self.said.append("begin")

    def epoch_begin(self, loop: Loop) -> None:
        self.said.append(f"epoch {loop.epoch}")

    def batch_begin(self, loop: Loop) -> None:
        if loop.epoch == 1 and loop.batch == self.stop_at:
            raise InterruptedError

    def before_step(self, loop: Loop) -> None:
        self.said.append(f"step {loop.step}")

    def after_step(self, loop: Loop) -> None:
        self.said.append(f"moved {loop.step}")

    def batch_end(self, loop: Loop, outputs: Any, batch: Any) -> None:
        self.said.append(f"batch {loop.batch}")

    def epoch_end(self, loop: Loop) -> None:
        self.kept += 1

    def end(self, loop: Loop) -> None:
        self.said.append("end")

    def state(self) -> dict[str, Any]:
        return {"kept": self.kept}

    def restore(self, state: dict[str, Any]) -> None:
        self.kept = state["kept"]


class Saved(Hook):
    """The state after each epoch, as a file would hold it."""

    def __init__(self) -> None:
        self.states: list[dict[str, Any]] = []

    def epoch_end(self, loop: Loop) -> None:
        self.states.append(copy.deepcopy(loop.state()))


class SavedInside(Saved):
    """The state after each step."""

    def batch_end(self, loop: Loop, outputs: Any, batch: Any) -> None:
        if len(self.states) < loop.step:
            self.states.append(copy.deepcopy(loop.state()))

    def epoch_end(self, loop: Loop) -> None: ...


def made(
    hooks: list[Hook],
    accumulate: int = 1,
    clip: float | None = None,
    module: nn.Module | None = None,
    fused: bool | None = None,
) -> Loop:
    module = module or Module()
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1, fused=fused)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step)
    fabric = Fabric(accelerator="cpu", devices=1)
    how = {"move": lambda batch, device: batch.to(device), "epochs": EPOCHS, "accumulate": accumulate, "clip": clip}
    return Loop(fabric, module, optimizer, schedule, lambda loop: Drawn(loop.batch), **how, hooks=hooks)


def written_out(accumulate: int, clip: float | None) -> nn.Module:
    module = Module()
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step)
    loader = Drawn()
    for epoch in range(EPOCHS):
        loader.set_epoch(epoch)
        batches = list(loader)
        for first in range(0, BATCHES, accumulate):
            group = range(first, min(first + accumulate, BATCHES))
            optimizer.zero_grad()
            for number in group:
                (module(batches[number], number)["loss"] / len(group)).backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(module.parameters(), clip)
            optimizer.step()
            schedule.step()
    return module


def equal(one: nn.Module, other: nn.Module) -> bool:
    first, second = one.state_dict(), other.state_dict()
    return all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("accumulate", [1, 2, 8])
def test_it_is_the_loop_that_anyone_would_write(accumulate: int, clip: float | None) -> None:
    loop = made([], accumulate, clip)
    loop.run(None)
    assert equal(loop.module, written_out(accumulate, clip)) and loop.step == EPOCHS * -(-BATCHES // accumulate)


@pytest.mark.parametrize("stop_at", [0, 3])
def test_stopped_and_resumed_it_ends_the_same(stop_at: int) -> None:
    whole = made([Told()])
    whole.run(None)
    stopped, saved = Told(stop_at), Saved()
    with pytest.raises(InterruptedError):
        made([stopped, saved]).run(None)
    assert stopped.said[-1] == "end" and len(saved.states) == 1
    told = Told()
    resumed = made([told])
    resumed.run(lambda: saved.states[0])
    assert equal(resumed.module, whole.module) and resumed.step == whole.step and told.kept == EPOCHS
    assert told.said[:2] == ["begin", "epoch 1"]


@pytest.mark.parametrize("accumulate", [1, 2])
def test_it_goes_on_inside_an_epoch(accumulate: int) -> None:
    saved = SavedInside()
    whole = made([saved], accumulate)
    whole.run(None)
    per_epoch = -(-BATCHES // accumulate)
    assert len(saved.states) == EPOCHS * per_epoch
    for step in (1, per_epoch, per_epoch + 2, EPOCHS * per_epoch):
        state, told = saved.states[step - 1], Told()
        epoch, steps = divmod(step - 1, per_epoch)
        batch = min((steps + 1) * accumulate, BATCHES)
        assert (state["epoch"], state["batch"], state["step"]) == (epoch, batch, step)
        resumed = made([told], accumulate)
        resumed.run(lambda state=state: state)
        assert equal(resumed.module, whole.module) and resumed.step == whole.step
        expected = EPOCHS * BATCHES - epoch * BATCHES - batch
        assert sum(said.startswith("batch") for said in told.said) == expected


@pytest.mark.parametrize("fused", [None, True])
def test_the_optimiser_goes_on_as_its_device_needs_it(fused: bool | None) -> None:
    """A run may go on where the optimiser is in one kernel, which reads the count of its steps on the device."""
    saved = Saved()
    made([saved], fused=not fused).run(None)
    loop = made([], fused=fused)
    loop.run(lambda: saved.states[0])
    assert all(group["fused"] is fused for group in loop.optimizer.param_groups)
    whole = made([], fused=fused)
    whole.run(None)
    others = dict(whole.module.named_parameters())
    for name, one in loop.module.named_parameters():
        if name != "net.0.bias":  # before a batch norm: its gradient is rounding alone, which AdamW makes a step
            torch.testing.assert_close(one, others[name])


def test_a_part_of_the_module_is_saved_and_a_loss_of_ones_own_is_trained() -> None:
    saved, module = Saved(), Module()
    loop = made([saved], module=module)
    loop.saved, loop.schedule = module.net[3], None
    loop.forward = lambda wrapped, batch, number: {"loss": 2 * wrapped(batch, number)["loss"]}
    loop.run(None)
    assert set(saved.states[0]["module"]) == {"weight", "bias"} and saved.states[0]["schedule"] == {}


def test_hooks_are_called_around_what_they_are_named_for() -> None:
    told = Told()
    made([told], accumulate=3).run(None)
    epoch = ["batch 0", "batch 1", "step 0", "moved 1", "batch 2", "batch 3", "step 1", "moved 2", "batch 4"]
    assert told.said[:11] == ["begin", "epoch 0", *epoch] and told.said[-1] == "end"


class Clock:
    """Seconds that pass only when somebody spends them."""

    now = 0

    def perf_counter(self) -> int:
        return self.now


def test_waiting_for_batches_is_measured_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(loop_module, "time", clock)

    class Slow(Drawn):
        def __iter__(self) -> Iterator[Tensor]:
            for batch in super().__iter__():
                clock.now += 3
                yield batch

    class Busy(Hook):
        def batch_end(self, loop: Loop, outputs: Any, batch: Any) -> None:
            clock.now += 100  # the step, which is not waiting for data

        def epoch_end(self, loop: Loop) -> None:
            clock.now += 1000

    loop = made([Busy()])
    loop.load = lambda loop: Slow()
    loop.run(None)
    assert loop.waited == EPOCHS * BATCHES * 3


def test_batches_that_end_too_early_are_an_error() -> None:
    class Short(Drawn):
        def __len__(self) -> int:
            return BATCHES + 1

    loop = made([])
    loop.load = lambda loop: Short()
    with pytest.raises(RuntimeError, match=f"the batches ended at step {BATCHES} of {BATCHES + 1}"):
        loop.run(None)


def test_the_state_of_another_network_or_optimiser_is_refused() -> None:
    saved = Saved()
    made([saved]).run(None)

    class Other(Module):
        def __init__(self) -> None:
            super().__init__()
            self.more = nn.Linear(2, 2)

    with pytest.raises(UserError, match=r"another network or method \(it lacks more\.weight, more\.bias"):
        made([], module=Other()).run(lambda: saved.states[0])
    state = {**saved.states[0], "optimizer": {"state": {}, "param_groups": []}}
    with pytest.raises(UserError, match="of another optimiser"):
        made([]).run(lambda: state)
