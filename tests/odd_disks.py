"""File systems that lack something: locks, or the right to write."""

import errno
import fcntl
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NOBODY = 65534


def lockless(folder: Path, number: int = errno.ENOSYS) -> Callable[[Any, int], None]:
    """A `fcntl.flock` that is not implemented for what lies below a folder."""
    flock = fcntl.flock

    def refuse(file: Any, operation: int) -> None:
        opened = os.readlink(f"/proc/self/fd/{file if isinstance(file, int) else file.fileno()}")
        if Path(opened).is_relative_to(folder):
            raise OSError(number, os.strerror(number))
        flock(file, operation)

    return refuse


@contextmanager
def shared_disk() -> Iterator[Path]:
    """A folder that other users can read, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def become_a_reader(folder: Path) -> None:
    """Take the right to write to all below a folder from this process, which cannot get it back.

    It cannot import what only root may read either: call first what is to be tested.
    """
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    if os.getuid() == 0:  # whom no mode of a file stops
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


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
