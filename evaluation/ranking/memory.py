"""Peak memory of a computation, beyond the memory in use at its start."""

import ctypes
import os
import platform
import threading
from pathlib import Path
from typing import Any

import torch

EVERY = 0.005  # seconds between measurements of the process's size


class PeakMemory:
    """`with PeakMemory(device) as memory: ...; memory.peak`, in bytes; None if the system does not report it.

    On the CPU the process's resident size is measured every 5 ms, on a GPU by the allocator. Reuse of freed memory is
    not counted, unless it is returned to the system first (`return_freed_memory`).
    """

    def __init__(self, device: torch.device | str) -> None:
        self.device = torch.device(device)
        self.peak: int | None = None

    def __enter__(self) -> "PeakMemory":
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            self._start = torch.cuda.memory_allocated(self.device)
            return self
        self._start = self._highest = resident()
        self._done = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)
        self._watch.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self.device.type == "cuda":
            self.peak = torch.cuda.max_memory_allocated(self.device) - self._start
            return
        self._done.set()
        self._watch.join()
        if self._start is not None:
            self.peak = max(self._highest, resident()) - self._start

    def _look(self) -> None:
        while self._start is not None and not self._done.wait(EVERY):
            self._highest = max(self._highest, resident())


def resident() -> int | None:
    """Return the resident bytes of this process; None without /proc."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def return_freed_memory() -> None:
    """Return free memory to the system, so that the process size is the memory in use; no effect without glibc."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)
