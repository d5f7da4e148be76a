"""How a training uses its device: number format, recomputed activations, memory that runs out."""

import errno
import os
import re
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from sslkit.errors import RunFailed, UserError
from sslkit.runtime.checkpoint import how_to_go_on
from sslkit.runtime.jobs import free_memory
from sslkit.runtime.loop import Loop
from sslkit.terminal import say

GIB = 2**30  # bytes
SAID = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED", "bad_alloc")
WORKER = "DataLoader worker"  # of torch's errors for one that was killed, raised wherever the signal arrives
UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": GIB, "TiB": 2**40}
ASKED = re.compile(r"[Tt]ried to allocate ([\d.]+) ([KMGT]iB|bytes)")
FREE = re.compile(r"total capacity of ([\d.]+) ([KMGT]iB) of which ([\d.]+) ([KMGT]iB|bytes) is free")


FABRIC = {"float32": "32-true", "bfloat16": "bf16-mixed", "float16": "16-mixed"}  # Fabric's names


def precision(asked: str, accelerator: str) -> str:
    """`auto`: bf16 on a GPU that has it, else fp32.

    Never on the CPU, even where it has bf16: oneDNN's bf16 weight gradient of a convolution on small maps (torch 2.15,
    AMX, two threads) sometimes reads uninitialised memory, which ends in a NaN. It can still be set explicitly.
    """
    if asked != "auto":
        return asked
    if accelerator.partition(":")[0] in ("auto", "cuda") and torch.cuda.is_available():
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    return "float32"


def is_cpu(accelerator: str) -> bool:
    """Return whether `device` stands for the CPU on this machine."""
    has_other = torch.cuda.is_available() or torch.backends.mps.is_available()
    return accelerator == "cpu" or (accelerator == "auto" and not has_other)


@contextmanager
def deterministic(asked: bool) -> Iterator[None]:
    """Let PyTorch use kernels without races only, if `asked`; it warns of those without one.

    A CPU's results are the same with and without.
    """
    if not asked:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it when it starts
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


@contextmanager
def one_float32() -> Iterator[None]:
    """Let convolutions in float32 be as exact as matrix products in float32, which are exact if nobody asked otherwise.

    `torch.set_float32_matmul_precision("high")` before a run allows TF32, of 10 bits, for both; PyTorch's own default
    is TF32 for convolutions alone.
    """
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.get_float32_matmul_precision() != "highest"
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


def fuses(device: torch.device, precision: str, clip: float | None) -> bool:
    """Return whether AdamW moves all weights in one kernel.

    On a GPU; on a CPU that rounds otherwise. The kernel divides by the scale of float16 too, so that a norm to clip
    is not known before it.
    """
    return device.type == "cuda" and (precision != "float16" or clip is None)


def recompute(net: nn.Module, name: str) -> None:
    """Let a network recompute its activations in the backward pass (Chen et al. 2016, arXiv 1604.06174).

    timm says how each network is divided; the gradients are the same. Raises UserError for one that cannot.
    """
    try:
        net.set_grad_checkpointing(True)
    except (AttributeError, AssertionError, NotImplementedError, TypeError) as error:
        raise UserError(
            f"trainer.checkpoint_activations=true: backbone {name} cannot recompute its activations; "
            "take a timm network that can, such as a ResNet or a ViT, or leave it out"
        ) from error


@contextmanager
def statistics_kept(module: nn.Module) -> Iterator[None]:
    """Keep the running statistics of the module's batch norms from what runs inside the context.

    Their momentum is 0 there, and other tensors count the batches. (Without statistics, `track_running_stats=False`, a
    recomputed pass would save other tensors than the first.)
    """
    norms = [m for m in module.modules() if isinstance(m, _BatchNorm) and m.num_batches_tracked is not None]
    before = [(norm, norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm, _, count in before:
        norm.momentum, norm.num_batches_tracked = 0.0, torch.zeros_like(count)
    try:
        yield
    finally:
        for norm, momentum, count in before:
            norm.momentum, norm.num_batches_tracked = momentum, count


@dataclass(frozen=True)
class Demand:
    """The settings that decide how much memory a training needs, for the line that says what to lower.

    processes: that share a batch. optimizer: its name. recomputed: whether activations are.
    """

    batch_size: int
    image_size: int
    processes: int
    workers: int | str
    optimizer: str
    precision: str
    recomputed: bool


def is_exhausted(error: BaseException) -> bool:
    """Return whether an error says that memory has run out, on a GPU or in the process."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and any(phrase in str(error) for phrase in SAID)


@contextmanager
def explain_failures(asked: Demand, folder: Path, loop: Loop) -> Iterator[None]:
    """Turn an error that memory has run out, or that a loader's worker was killed, into a RunFailed; others pass."""
    try:
        yield
    except Exception as error:
        if isinstance(error, RuntimeError) and WORKER in str(error):
            raise RunFailed(_line_of_kill(asked, folder)) from error
        if isinstance(error, UserError) or not is_exhausted(error):
            raise
        raise RunFailed(_line(str(error), asked, folder, loop)) from error


def _line_of_kill(asked: Demand, folder: Path) -> str:
    return (
        f"a worker process of the loader was killed, mostly because memory or /dev/shm was full: lower workers "
        f"({asked.workers} now) or batch_size; {how_to_go_on(folder)}, "
        "another batch size needs a new run"
    )


def _line(said: str, asked: Demand, folder: Path, loop: Loop) -> str:
    more, peak = _bytes_asked(said), _peak(loop)
    where = f"epoch {loop.epoch + 1}, step {loop.step + 1}"
    of = [f"{_gib(more)} more asked for"] if more else []
    of += [_free(said, loop), f"{_gib(peak)} in use at the peak"]
    each = asked.batch_size // asked.processes
    step = f"with {each} of {asked.image_size} px a step in each process"
    lower = ", ".join(_lower(asked, loop, each, peak + more))
    new = "more trainer.devices" if asked.recomputed else "trainer.checkpoint_activations=true"
    return (
        f"out of memory on {loop.device} in {where}: {', '.join(of)}, {step}; lower it by {lower}; "
        f"{how_to_go_on(folder, f'{say.CALL} and {new}')}, the other settings need a new run"
    )


def _lower(asked: Demand, loop: Loop, each: int, need: int) -> Iterator[str]:
    """Yield settings that need less, the batch with an estimate from what was measured."""
    if each > 1 and asked.batch_size % 2 == 0:
        fixed = _bytes_of_weights(loop.module, asked.optimizer)
        half = fixed + max(0, need - fixed) / 2
        yield f"batch_size={asked.batch_size // 2} (about {_gib(half)} instead of {_gib(need)})"
    if not asked.recomputed:
        yield "trainer.checkpoint_activations=true"
    if asked.precision in ("auto", "float32") and loop.device.type != "cpu":
        yield "precision=bfloat16"
    yield "a smaller image_size"
    yield "a smaller backbone"


def _bytes_of_weights(module: nn.Module, optimizer: str) -> int:
    """Bytes that do not depend on the batch: weights, their gradients, the optimiser's state, and buffers."""
    weights = [(p.numel() * p.element_size(), p.requires_grad) for p in module.parameters()]
    moments = 2 if optimizer == "adamw" else 1
    buffers = sum(b.numel() * b.element_size() for b in module.buffers())
    return buffers + sum(size * (2 + moments if trained else 1) for size, trained in weights)


def _bytes_asked(said: str) -> int:
    """Bytes that the refused allocation asked for; 0 if the message does not tell."""
    match = ASKED.search(said)
    return round(float(match[1]) * UNITS[match[2]]) if match else 0


def _free(said: str, loop: Loop) -> str:
    match = FREE.search(said)
    if match:
        return f"{match[3]} {match[4]} of {match[1]} {match[2]} free"
    if loop.device.type == "cuda":
        free, total = torch.cuda.mem_get_info(loop.device)
        return f"{_gib(free)} of {_gib(total)} free"
    free, limit = free_memory(), resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        free = min(free, max(0, limit - psutil.Process().memory_info().vms))
    return f"{_gib(free)} free"


def _peak(loop: Loop) -> int:
    """Bytes: the GPU's allocations at their largest, or the largest size of this process."""
    if loop.device.type == "cuda":
        return torch.cuda.max_memory_allocated(loop.device)
    unit = 1 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _gib(size: float) -> str:
    return f"{size / GIB:.2f} GiB" if size < 10 * GIB else f"{size / GIB:.1f} GiB"
