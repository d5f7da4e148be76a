"""Where something was seen: the function of ours that was running, and the library's that it had called."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import sslkit

ROOT = str(Path(sslkit.__file__).parents[1])
OWN = tuple(f"{ROOT}/{part}/" for part in ("sslkit", "evaluation", "recipes", "tests"))
PRETENDING = str(Path(__file__).parent)
LIBRARIES = "/site-packages/"


@dataclass(frozen=True)
class Seen:
    """A fault or a wait. place: file and function of ours, "sslkit/runtime/loop.py Loop._step". what: was done.

    through: file and line of a library that this function called, "" for itself. size: bytes of a copy.
    """

    place: str
    line: int
    what: str
    through: str = ""
    size: int = 0

    def __str__(self) -> str:
        through = f" in {self.through}" if self.through else ""
        size = f" of {self.size} bytes" if self.size else ""
        return f"{self.place}:{self.line}{through}: {self.what}{size}"


def here(what: str, size: int = 0) -> Seen:
    """The innermost function of ours that is running, and the innermost one of a library that it has called."""
    through = ""
    for frame in frames():
        path = frame.f_code.co_filename
        if path.startswith(OWN) and LIBRARIES not in path[len(ROOT) :]:
            place = f"{path[len(ROOT) + 1 :]} {frame.f_code.co_qualname}"
            return Seen(place, frame.f_lineno, what, through, size)
        if not through and LIBRARIES in path and "/torch/" not in path:
            through = f"{path.rpartition(LIBRARIES)[2]}:{frame.f_lineno}"
    return Seen("?", 0, what, through, size)


def frames() -> Iterator[FrameType]:
    """The frames of the call, from the innermost on, without those of the pretending itself."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(PRETENDING):
            yield frame
        frame = frame.f_back


def is_called_by(*words: str) -> bool:
    """Return whether a function of torch.distributed with one of the words in its name is running."""
    names = (frame.f_code.co_name for frame in frames() if "/distributed/" in frame.f_code.co_filename)
    return any(word in name for name in names for word in words)
