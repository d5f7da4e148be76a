"""The loop of all fine-tuning: against steps by hand, stopped and resumed, on two processes, and what it refuses."""

import errno
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from lightning_fabric.accelerators import CPUAccelerator
from torch import Tensor, nn
from tuning_steps import STEPS, batches, network, training

from evaluation.tuning.checkpoint import Checkpoint
from evaluation.tuning.loop import Diverged, State, dropout_seed, fit
from sslkit.errors import UserError
from sslkit.runtime.processes import fabric_on


def trained(**how) -> tuple[dict[str, Tensor], State]:
    net = network()
    state = fit(training(net), progress=False, **{"checkpoint": None, **how})
    return net.state_dict(), state


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_each_step_is_the_optimizers_with_its_rate_and_dropout() -> None:
    net, losses = network(), []
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1, weight_decay=0.01)
    for step, (x, y) in enumerate(batches(0)):
        optimizer.param_groups[0]["lr"] = 0.1 * (1 - step / STEPS)
        torch.manual_seed(dropout_seed(5, step))
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    found, state = trained()
    assert same(found, net.state_dict())
    assert [step for step, _ in state.losses] == [3, 6, 7]
    means = [np.mean(losses[:3]), np.mean(losses[3:6]), losses[6]]
    assert [loss for _, loss in state.losses] == pytest.approx(means, rel=1e-6)


def test_the_global_generator_is_restored_and_has_no_influence() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first, _ = trained()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert same(first, trained()[0])


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_network_on_the_cpu_is_tuned_there_beside_gpus(precision: str, beside_gpus) -> None:
    fabric = fabric_on(torch.device("cpu"), precision)
    assert isinstance(fabric.accelerator, CPUAccelerator) and fabric.device.type == "cpu"
    assert getattr(fabric.strategy.precision, "device", "cpu") == "cpu", "autocast is the CPU's"
    assert trained()[1].step == STEPS


@pytest.mark.parametrize("stop", [1, 3, 5])
def test_a_stopped_training_ends_with_the_same_weights_and_losses(stop: int, tmp_path: Path) -> None:
    file = Checkpoint(tmp_path / "a.ckpt", "run", seconds=0)

    def stopping(first: int) -> Iterator[tuple[Tensor, Tensor]]:
        for step, batch in enumerate(batches(first), first):
            if step == stop:
                raise KeyboardInterrupt
            yield batch

    with pytest.raises(KeyboardInterrupt):
        fit(training(network(), batches=stopping), checkpoint=file, progress=False)
    assert file.load()["step"] == stop
    torch.rand(3)
    found, state = trained(checkpoint=file)
    expected, whole = trained()
    assert same(found, expected) and state.losses == whole.losses
    assert same(trained(checkpoint=file)[0], expected), "a finished training is loaded"
    file.remove()
    assert not list(tmp_path.iterdir())


def test_a_signal_loses_no_step(tmp_path: Path) -> None:
    """It comes within the fifth step, minutes before the next checkpoint."""
    file = Checkpoint(tmp_path / "a.ckpt", "run")

    def loss(net: nn.Module, batch: tuple[Tensor, Tensor], step: int) -> Tensor:
        if step == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return F.cross_entropy(net(batch[0]), batch[1])

    with pytest.raises(SystemExit):
        fit(training(network(), loss=loss), checkpoint=file, progress=False)
    assert file.load()["step"] == 5 and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    found, state = trained(checkpoint=file)
    expected, whole = trained()
    assert same(found, expected) and state.losses == whole.losses


def test_notes_are_kept_over_a_stop(tmp_path: Path) -> None:
    file, state = Checkpoint(tmp_path / "a.ckpt", seconds=0), State()

    def loss(net: nn.Module, batch: tuple[Tensor, Tensor], step: int) -> Tensor:
        state.notes.append(f"step {step}")
        if step == 4:
            raise KeyboardInterrupt
        return net(batch[0]).square().mean()

    with pytest.raises(KeyboardInterrupt):
        fit(training(network(), loss=loss), state=state, checkpoint=file, progress=False)
    assert trained(checkpoint=file)[1].notes == [f"step {step}" for step in range(4)]


def test_the_last_step_is_saved_whatever_the_time_between_checkpoints(tmp_path: Path) -> None:
    file = Checkpoint(tmp_path / "a.ckpt", seconds=1e9)
    trained(checkpoint=file)
    assert file.load()["step"] == STEPS


def test_only_a_part_of_the_weights_is_saved(tmp_path: Path) -> None:
    file, net = Checkpoint(tmp_path / "a.ckpt"), network()
    fit(training(net, saved=net[3]), checkpoint=file, progress=False)
    assert set(file.load()["module"]) == {"weight", "bias"}


def test_checkpoints_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    trained(checkpoint=Checkpoint(path, "run"))
    with pytest.raises(UserError, match=r"a.ckpt belongs to a run with other settings: delete it, or give another out"):
        trained(checkpoint=Checkpoint(path, "another run"))
    other = nn.Sequential(nn.Linear(4, 3))
    with pytest.raises(UserError, match=r"a.ckpt is of another network \(the network has no 1"):
        fit(training(other), checkpoint=Checkpoint(path, "run"), progress=False)
    whole = path.read_bytes()
    flipped = whole[:900] + bytes([whole[900] ^ 1]) + whole[901:]
    for content, said in ((whole[:500], "or a part of one"), (flipped, "is damaged: its content does not have")):
        path.write_bytes(content)
        with pytest.raises(UserError, match=f"a.ckpt .*{said}.*: delete it to start anew"):
            trained(checkpoint=Checkpoint(path, "run"))
    torch.save({"step": 3}, path)
    with pytest.raises(UserError, match=r"a.ckpt cannot be read \(.*key.*: delete it to start anew"):
        trained(checkpoint=Checkpoint(path, "run"))


def test_a_full_disk_is_one_line_and_leaves_the_file_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    file = Checkpoint(tmp_path / "a.ckpt")
    trained(checkpoint=file)
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UserError, match=r"cannot write .*a.ckpt: .*No space left on device"):
        file.save({"step": 1})
    assert file.load()["step"] == STEPS and [path.name for path in tmp_path.iterdir()] == ["a.ckpt"]


def test_a_loss_that_is_not_finite_is_neither_trained_on_nor_saved(tmp_path: Path) -> None:
    file = Checkpoint(tmp_path / "a.ckpt", seconds=0)

    def loss(net: nn.Module, batch: tuple[Tensor, Tensor], step: int) -> Tensor:
        return net(batch[0]).square().mean() * (torch.inf if step >= 4 else 1)

    with pytest.raises(Diverged, match="NaN or infinite by step 6"):  # checked every 2 steps
        fit(training(network(), loss=loss), checkpoint=file, progress=False)
    assert file.load()["step"] == 4


def test_batches_that_end_too_early_are_an_error() -> None:
    with pytest.raises(RuntimeError, match=f"the batches ended at step {STEPS} of {STEPS + 1}"):
        fit(training(network(), steps=STEPS + 1), progress=False, checkpoint=None)


def test_bfloat16_computes_the_network_in_it_and_returns_float32() -> None:
    seen = []

    def loss(net: nn.Module, batch: tuple[Tensor, Tensor], step: int) -> Tensor:
        scores = net(batch[0])
        seen.append(scores.dtype)
        return F.cross_entropy(scores, batch[1])

    net = network()
    net[3].register_forward_hook(lambda layer, given, out: seen.append(out.dtype))
    fit(training(net, loss=loss, steps=1, precision="bfloat16"), progress=False, checkpoint=None)
    assert seen == [torch.bfloat16, torch.float32] and net[3].weight.dtype == torch.float32
