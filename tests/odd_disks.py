"""File systems that lack something: locks, or the right to write."""

import ctypes
import errno
import fcntl
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def lockless(folder: Path, number: int = errno.ENOSYS) -> Callable[[Any, int], None]:
    """A `fcntl.flock` that is not implemented for what lies below a folder."""
    flock = fcntl.flock

    def refuse(file: Any, operation: int) -> None:
        opened = os.readlink(f"/proc/self/fd/{file if isinstance(file, int) else file.fileno()}")
        if Path(opened).is_relative_to(folder):
            raise OSError(number, os.strerror(number))
        flock(file, operation)

    return refuse


def become_a_reader(folder: Path) -> None:
    """Take the right to write to all below a folder from this process, which cannot get it back."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    if os.getuid() == 0:  # whom no mode of a file stops, by its capabilities: capset(2), version 3, with none set
        header, nothing = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
        assert ctypes.CDLL(None, use_errno=True).capset(header, nothing) == 0, os.strerror(ctypes.get_errno())


def read_only(folder: Path, function: Callable[[], str]) -> str:
    """The text that function() returns, or its error, in a copy of this process that can only read `folder`."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def work() -> None:
        become_a_reader(folder)
        try:
            sender.send(function())
        except BaseException as error:
            sender.send(f"{type(error).__name__}: {error}")

    process = context.Process(target=work)
    process.start()
    assert receiver.poll(60), "no answer"
    said = receiver.recv()
    process.join()
    return said
