"""A named pipe in the place of a file, and whether something opens it."""

import os
import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_WRITER = """trap '' PIPE; printf x > "$0"; while :; do printf y > "$0"; done"""


@contextmanager
def pipe(path: Path) -> Iterator[Path]:
    """A named pipe that must not be opened.

    A process writes a letter to each reader, so that none is left waiting: x to the first, y to all others.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    writer = subprocess.Popen(["sh", "-c", _WRITER, str(path)], stderr=subprocess.DEVNULL)
    try:
        yield path
        assert _next_letter(path) == b"x", f"{path.name} was opened"
    finally:
        writer.kill()
        writer.wait()


def _next_letter(path: Path) -> bytes:
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return os.read(reader, 1) if select.select([reader], [], [], 5)[0] else b""
    finally:
        os.close(reader)
