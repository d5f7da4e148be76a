"""Running out of memory as one line: what was asked for, what was free, and what to lower."""

import errno
import re
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import torch
from torch import nn

from sslkit.errors import RunFailed, UserError
from sslkit.runtime.jobs import free_memory
from sslkit.runtime.loop import Loop
from sslkit.training import checkpoint_files, launched
from sslkit.training.config import Config

GIB = 2**30
SAID = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED", "bad_alloc")
WORKER = "DataLoader worker"  # of torch's errors for one that was killed, raised wherever the signal arrives
UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": GIB, "TiB": 2**40}
ASKED = re.compile(r"[Tt]ried to allocate ([\d.]+) ([KMGT]iB|bytes)")
FREE = re.compile(r"total capacity of ([\d.]+) ([KMGT]iB) of which ([\d.]+) ([KMGT]iB|bytes) is free")


def is_exhausted(error: BaseException) -> bool:
    """Return whether an error says that memory has run out, on a GPU or in the process."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and any(part in str(error) for part in SAID)


@contextmanager
def explained(config: Config, image_size: int, folder: Path, loop: Loop) -> Iterator[None]:
    """Turn an error that memory has run out, or that a loader's worker was killed, into a RunFailed; others pass."""
    try:
        yield
    except Exception as error:
        if isinstance(error, RuntimeError) and WORKER in str(error):
            raise RunFailed(_killed(config, folder)) from error
        if isinstance(error, UserError) or not is_exhausted(error):
            raise
        raise RunFailed(_line(str(error), config, image_size, folder, loop)) from error


def _killed(config: Config, folder: Path) -> str:
    return (
        f"a worker process of the loader was killed, mostly because memory or /dev/shm was full: lower data.workers "
        f"({config.data.workers} now) or data.batch_size; the same command with resume=true continues {folder}, "
        "another batch size needs a new run"
    )


def _line(said: str, config: Config, image_size: int, folder: Path, loop: Loop) -> str:
    asked, peak = _asked(said), _peak(loop)
    where = f"epoch {loop.epoch + 1}, step {loop.step + 1}"
    of = [f"{_gib(asked)} more asked for"] if asked else []
    of += [_free(said, loop), f"{_gib(peak)} in use at the peak"]
    each = config.data.batch_size // launched.processes(config)
    step = f"with {each} of {image_size} px a step in each process"
    lower = ", ".join(_lower(config, loop, each, peak + asked))
    kept = checkpoint_files.last(folder).is_file() or checkpoint_files.previous(folder).is_file()
    state = "the last checkpoint is whole" if kept else "no epoch has ended yet"
    new = "more trainer.devices" if config.trainer.checkpoint_activations else "trainer.checkpoint_activations=true"
    return (
        f"out of memory on {loop.device} in {where}: {', '.join(of)}, {step}; lower it by {lower}; {state}: "
        f"the same command with resume=true and {new} continues {folder}, the other settings need a new run"
    )


def _lower(config: Config, loop: Loop, each: int, need: int) -> Iterator[str]:
    """Yield settings that need less, the batch with an estimate from what was measured."""
    if each > 1 and config.data.batch_size % 2 == 0:
        fixed = _fixed(loop.module, config.optimizer.name)
        half = fixed + max(0, need - fixed) / 2
        yield f"data.batch_size={config.data.batch_size // 2} (about {_gib(half)} instead of {_gib(need)})"
    if not config.trainer.checkpoint_activations:
        yield "trainer.checkpoint_activations=true"
    if config.trainer.precision in ("auto", "32-true") and loop.device.type != "cpu":
        yield "trainer.precision=bf16-mixed"
    yield "a smaller data.image_size"
    yield "a smaller backbone"


def _fixed(module: nn.Module, optimizer: str) -> int:
    """Bytes that do not depend on the batch: weights, their gradients, the optimiser's state, and buffers."""
    weights = [(p.numel() * p.element_size(), p.requires_grad) for p in module.parameters()]
    moments = 2 if optimizer == "adamw" else 1
    buffers = sum(b.numel() * b.element_size() for b in module.buffers())
    return buffers + sum(size * (2 + moments if trained else 1) for size, trained in weights)


def _asked(said: str) -> int:
    """Bytes that the refused allocation asked for; 0 if the message does not tell."""
    found = ASKED.search(said)
    return round(float(found[1]) * UNITS[found[2]]) if found else 0


def _free(said: str, loop: Loop) -> str:
    found = FREE.search(said)
    if found:
        return f"{found[3]} {found[4]} of {found[1]} {found[2]} free"
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
