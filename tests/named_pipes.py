"""A named pipe in the place of a file, and whether something opens it."""

import os
import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def pipe(path: Path) -> Iterator[Path]:
    """A named pipe that must not be opened.

    A process writes one letter to whoever reads it: who opens it is not left waiting, and takes the letter away.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    writer = subprocess.Popen(["sh", "-c", 'printf x > "$0"', str(path)])
    try:
        yield path
        assert _has_the_letter(path), f"{path.name} was opened"
    finally:
        writer.kill()
        writer.wait()


def _has_the_letter(path: Path) -> bool:
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return bool(select.select([reader], [], [], 2)[0]) and os.read(reader, 1) == b"x"
    finally:
        os.close(reader)
