"""What the process may take that decodes an image: memory, time, and no file or socket beside the one it was handed.

Linux limits all of these. macOS limits time and files; its processes may take any memory.
"""

import os
import resource
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.machinery import all_suffixes
from typing import Any

HAS_MEMORY_LIMIT = sys.platform == "linux"
_PAGE = resource.getpagesize()
_MODULES = 64  # files open at once while a module is imported
_REFUSED = ("socket.", "subprocess.", "os.exec", "os.fork", "os.posix_spawn", "os.system", "os.putenv", "shutil.")
_MODULE_ENDINGS = tuple(all_suffixes())


def _folders(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(os.path.realpath(path) + os.sep for path in paths)


_INSTALLED = _folders({sys.prefix, sys.base_prefix})
_SEARCHED = _folders(filter(os.path.isdir, sys.path))  # a project's own folder, which may hold its images, too


class Limits:
    """Of this process. slots: files that it may have open, the image among them; all below are in use."""

    def __init__(self, slots: int) -> None:
        self._slots, self._own = slots, resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._hard = {kind: resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS)}
        self._is_closed = False
        sys.addaudithook(self._audit)

    @contextmanager
    def apply(self, memory: int, seconds: float, size: Any) -> Iterator[None]:
        """Limit what is done inside: bytes beyond those in use, and CPU time, at whose end the process dies.

        size: an open /proc/self/statm, None where there is none. Raises MemoryError inside.
        """
        if HAS_MEMORY_LIMIT:
            used = int(os.pread(size, 64, 0).split()[0]) * _PAGE
            self._limit(resource.RLIMIT_AS, used + memory)
        self._limit(resource.RLIMIT_NOFILE, self._slots)
        self._is_closed = True
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            self._is_closed = False
            self._limit(resource.RLIMIT_NOFILE, self._own)
            self._limit(resource.RLIMIT_AS, self._hard[resource.RLIMIT_AS])

    def _limit(self, kind: int, value: int) -> None:
        hard = self._hard[kind]
        resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Called before whatever Python does outside of itself. A module of a package may be imported late."""
        if not self._is_closed:
            return
        if event == "import":
            self._limit(resource.RLIMIT_NOFILE, _MODULES)
        elif event == "open" and not _is_of_a_module(*arguments[:2]):
            raise PermissionError("an image names another file")
        elif event.startswith(_REFUSED):
            raise PermissionError("an image asks for more than its pixels")


def _is_of_a_module(path: Any, mode: str | None) -> bool:
    if mode is not None and set(mode) & set("wax+"):
        return False
    if not isinstance(path, str):
        return isinstance(path, int)
    path = os.path.realpath(path)
    return path.startswith(_INSTALLED) or (path.startswith(_SEARCHED) and path.endswith(_MODULE_ENDINGS))
