"""Memory that runs out: one line with what was measured and what to lower, and nothing lost."""

import resource
import sys
from pathlib import Path

import pytest
import torch
from forks import exit_code

import sslkit
from sslkit.errors import UserError
from sslkit.runtime import hardware
from sslkit.training.step import Pretraining

CUDA = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.18 GiB of which 1.10 GiB is "
    "free. Including non-PyTorch memory, this process has 78.07 GiB memory in use."
)
CPU = "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "


def failing(error: Exception, epoch: int):
    """A training step that raises in its second batch of an epoch."""
    step = Pretraining.forward

    def forward(self, batch, number):
        if (self.method.epoch, number) == (epoch, 1):
            raise error
        return step(self, batch, number)

    return forward


def test_a_killed_worker_of_the_loader_is_one_line(small_run, monkeypatch) -> None:
    said = "DataLoader worker (pid 12) is killed by signal: Killed. "  # raised wherever the main process then is
    monkeypatch.setattr(Pretraining, "forward", failing(RuntimeError(said), epoch=0))
    with pytest.raises(UserError, match=r"a worker process of the loader was killed.*lower workers.*resume=True"):
        sslkit.pretrain(small_run)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (torch.OutOfMemoryError(CUDA), "2.00 GiB more asked for, 1.10 GiB of 79.18 GiB free"),
        (RuntimeError(CPU + "3221225472 bytes. Error code 12 (Cannot allocate memory)"), "3.00 GiB more asked for"),
        (MemoryError(), "GiB free"),
        (OSError(12, "Cannot allocate memory"), "GiB free"),
    ],
)
def test_one_line_says_what_was_asked_and_what_to_lower(small_run, error, said: str, monkeypatch) -> None:
    monkeypatch.setattr(Pretraining, "forward", failing(error, epoch=0))
    with pytest.raises(UserError, match="out of memory on cpu in epoch 1, step 2") as caught:
        sslkit.pretrain(small_run)
    line = str(caught.value)
    assert said in line and "with 32 of 28 px a step in each process" in line and "\n" not in line
    assert "batch_size=16 (about " in line and "trainer.checkpoint_activations=true, " in line
    assert (
        "nothing was saved yet, so that the same call with resume=True and trainer.checkpoint_activations=true" in line
    )
    assert "bf16" not in line, "only on a GPU"


def test_the_half_batch_is_estimated_from_what_does_not_depend_on_it() -> None:
    module = Pretraining(sslkit.method("simclr", image_size=16))
    weights = sum(p.numel() for p in module.parameters()) * 4
    buffers = sum(b.numel() * b.element_size() for b in module.buffers())
    assert (
        hardware._bytes_of_weights(module, "adamw") == 4 * weights + buffers
    )  # weights, gradients and AdamW's two moments


def test_other_errors_pass_as_they_are(small_run, monkeypatch) -> None:
    monkeypatch.setattr(Pretraining, "forward", failing(RuntimeError("shapes do not match"), epoch=0))
    with pytest.raises(RuntimeError, match="shapes do not match"):
        sslkit.pretrain(small_run)


def test_the_checkpoint_is_kept_and_the_run_goes_on_with_recomputed_activations(small_run, monkeypatch) -> None:
    whole = sslkit.pretrain({**small_run, "name": "whole"})
    with monkeypatch.context() as patch:
        patch.setattr(Pretraining, "forward", failing(torch.OutOfMemoryError(CUDA), epoch=1))
        with pytest.raises(UserError, match=r"epoch 2, step 5.*resume=True and .* continues"):
            sslkit.pretrain({**small_run, "name": "short"})
    trainer = {**small_run["trainer"], "checkpoint_activations": True}
    entry = sslkit.pretrain({**small_run, "name": "short", "resume": True, "trainer": trainer})
    one, other = whole.state_dict(), entry.state_dict()
    assert all(torch.equal(one[k], other[k]) for k in one)


def use_up(run: dict) -> None:
    """Train with 2 GiB more of address space than the process has, and a step that asks for 4."""
    step = Pretraining.forward

    def forward(self, batch, number):
        torch.ones(2**30)  # 4 GiB
        return step(self, batch, number)

    Pretraining.forward = forward
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2 * 2**30, used + 2 * 2**30))
    try:
        sslkit.pretrain(run)
    except UserError as error:
        print("refused:", error)
        sys.exit(7)


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is on the address space of Linux")
def test_a_process_that_really_has_no_more(small_run, tmp_path) -> None:
    code = exit_code(log := tmp_path / "said", use_up, {**small_run, "name": "used"})
    said = log.read_text()
    assert code == 7, said[-2000:]
    line = next(line for line in said.splitlines() if line.startswith("refused: "))
    assert "out of memory on cpu in epoch 1, step 1: 4.00 GiB more asked for" in line
    assert float(line.split(" more asked for, ")[1].split(" GiB free")[0]) < 2.1
    assert "Traceback" not in said
