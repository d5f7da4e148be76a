"""Use the device of a step without waiting for it: copies in both directions, and random numbers.

Host and GPU run side by side. The host waits where it reads a number that the GPU has still to compute, and where it
copies memory that is not pinned.
"""

import hashlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

from sslkit.errors import UserError

DEVICES = ("cpu", "cuda", "mps", "xpu")  # that can compute; torch has others, such as meta, that cannot


def device_of(name: str | torch.device) -> torch.device:
    """Return the device of that name; "auto" is a GPU if there is one, else the CPU.

    Raises UserError for an unknown name and for an unavailable device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise UserError(f"device={name!r} is not known to torch: use cpu or cuda") from error
    if device.type not in DEVICES:
        raise UserError(f"device={name} cannot compute: use cpu or cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"device={name}, but torch sees no GPU here")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f"device={name}, but torch sees {torch.cuda.device_count()} GPUs here")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device={name} is not available: {str(error).splitlines()[0]}") from error
    return device


def to_device_of(x: Tensor, like: Tensor) -> Tensor:
    """Copy to the device of another tensor without waiting."""
    if x.device == like.device:
        return x
    return x.pin_memory().to(like.device, non_blocking=True) if like.is_cuda else x.to(like.device)


class Late:
    """Numbers that are copied from their device behind the work that makes them, to be read in the next step.

    is_late: whether they are on a GPU; others can be read at once.
    """

    def __init__(self, x: Tensor) -> None:
        x = x.detach()
        self.is_late = x.is_cuda
        self._here = x
        if self.is_late:
            self._here = torch.empty(x.shape, dtype=x.dtype, device="cpu", pin_memory=True).copy_(x, non_blocking=True)
            self._copied = torch.cuda.Event()
            self._copied.record(torch.cuda.current_stream(x.device))

    def __deepcopy__(self, _: object) -> "Late":
        return self  # it never changes, and an event cannot be copied

    def read(self) -> Tensor:
        """The numbers, on the CPU. Waits for the work before them only, not for what was begun since."""
        if self.is_late:
            self._copied.synchronize()
        return self._here


def autocast(precision: str, device: torch.device) -> AbstractContextManager:
    """Autocast of a network that is applied: to bfloat16, or none for float32, the words of `Runtime.precision`."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")


def seed_of(purpose: str, *numbers: int) -> int:
    """The seed of one purpose's draws, independent of other purposes and numbers."""
    text = " ".join([purpose, *map(str, numbers)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "little")


def seed_generators(seed: int, device: torch.device) -> None:
    """Seed PyTorch's global generators, on the CPU and on the device."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
    elif device.type != "cpu":
        torch.get_device_module(device).manual_seed(seed)


@contextmanager
def generators_restored(device: torch.device) -> Iterator[None]:
    """Restore PyTorch's global generators after the block, in which the device is the current one."""
    cuda = device.type == "cuda"
    with torch.cuda.device(device) if cuda else nullcontext(), torch.random.fork_rng([device] if cuda else []):
        yield


@contextmanager
def use_seed(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Draw from a seed on the CPU and on the device; afterwards the generators are as before. None: the CPU's alone."""
    device = device or torch.device("cpu")
    with generators_restored(device):
        seed_generators(seed, device)
        yield
