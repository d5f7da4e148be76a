"""The pretended GPU as a context: what it has seen, and how long the host has waited."""

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
import torch._dynamo  # the modes import it, which they could not with an Event that is no class

from pretended_device.calls import Calls
from pretended_device.cuda import replacements
from pretended_device.operations import Operations
from pretended_device.seen import Seen, here
from pretended_device.tags import TAGS


class Pretended:
    """A context in which devices of the type cuda are pretended.

    devices: their number. watching: set it to False for a part whose waits do not count.
    inside: the device of what the running call makes. clock: launches so far. finished: the last one that the host has
    waited for. seed: of the device's random numbers. current: number of the device that "cuda" is.
    """

    def __init__(self, devices: int = 1) -> None:
        self.devices, self.current, self.seed = devices, 0, 0
        self.faults: Counter[Seen] = Counter()
        self.waits: Counter[Seen] = Counter()
        self.launches: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.places: Counter[str] = Counter()
        self.watching = True
        self.inside: torch.device | None = None
        self.clock = self.finished = 0

    def __enter__(self) -> "Pretended":
        self.stack = contextlib.ExitStack()
        for module, names in replacements(self).items():
            for name, value in names.items():
                if hasattr(module, name):
                    self.stack.enter_context(mock.patch.object(module, name, value))
        self.calls = Calls(self)
        self.stack.enter_context(self.calls)
        self.stack.enter_context(Operations(self))
        return self

    def __exit__(self, *_: Any) -> None:
        self.stack.close()

    def clear(self) -> None:
        """Forget waits and launches, before the step that is measured; faults stay."""
        for seen in (self.waits, self.launches, self.bytes, self.places):
            seen.clear()

    def report(self) -> str:
        """Faults and waits, a line each with their number."""
        both = [("fault", self.faults), ("wait", self.waits)]
        return "\n".join(f"{kind} {seen[one]}x {one}" for kind, seen in both for one in sorted(seen, key=str))

    def fault(self, what: str) -> None:
        self.faults[here(what)] += 1

    def wait(self, what: str, size: int = 0) -> None:
        """Let the host wait for the device. size: bytes of a copy."""
        self.finished = self.clock
        if self.watching:
            self.waits[here(what, size)] += 1

    def launch(self, name: str, size: int) -> None:
        """Count an operation. size: bytes that it reads and writes."""
        self.clock += 1
        self.launches[name] += 1
        self.bytes[name] += size
        seen = here(name)
        self.places[f"{seen.place}:{seen.line}"] += 1

    def copied(self, what: str, x: torch.Tensor, *, to_gpu: bool, later: bool, pinned: bool) -> None:
        """Count a copy between host and device. later: the host does not wait for it. pinned: the host's memory is."""
        size = x.numel() * x.element_size()
        self.launch("host to device" if to_gpu else "device to host", size)
        if size and not later:
            self.wait(f"{what} {'to the GPU' if to_gpu else 'to the CPU'}{'' if pinned else ', not pinned'}", size)

    def named(self, device: Any) -> torch.device:
        """A device by what PyTorch takes for one; "cuda" is the current one."""
        found = torch.device("cuda", device) if isinstance(device, int) else torch.device(device or "cuda")
        return torch.device("cuda", self.current) if found.type == "cuda" and found.index is None else found

    def home(self, x: Any) -> torch.device | None:
        """The pretended device of a tensor, None on the CPU."""
        return TAGS.device(x)

    @contextlib.contextmanager
    def making(self, device: torch.device | None) -> Iterator[None]:
        """What is made in this context, without a tensor to make it like, is on the device; None: on the CPU."""
        before, self.inside = self.inside, device
        try:
            yield
        finally:
            self.inside = before
