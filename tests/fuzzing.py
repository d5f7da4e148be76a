"""Odd settings and damaged files for the fuzz tests, and command lines run within this process."""

import contextlib
import io
import os
import runpy
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from in_process import logging_as_it_was

RECIPES = Path(__file__).parents[1] / "recipes"
SECONDS = 60  # that one draw may take: an odd setting that hangs is a fault, too

NUMBERS = ("0", "1", "-1", "2", "-0.0", "0.5", "1.5", "1e-300", "1e308", "1e400", "-1e30", "1000000000000", str(2**64))
FLOATS = ("nan", "inf", "-inf", "NaN", "0x10", "1_000", "1e-3", "٣")
TEXTS = ("", "abc", "null", "true", "None", "~", "a b", "b=c", "ünï ☃", "sp ace/x=(1)", "x(y", "a,b", "-", "--", "%s")
PATHS = (".", "..", "/", "../../x", "/dev/null", "no/such/place", "a\\b", "~/x", "file://x", "hf-hub:a/b", "con\tx")
FILES = ("pictures", "pictures,pictures", "pictures/class0,pictures/class1", "pictures/**/*.png", "p*", "pictures/*")
NAMED = (
    "lines.txt",
    "lines.txt:pictures",
    "lines.txt:",
    "table.csv",
    "table.csv,lines.txt",
    "pictures,none",
    "video:lines.txt",
    "video:pictures,video:none",
    "shards:archive.tar",
    "[pictures]",
)
LISTS = ("[]", "[1,2]", "[a,b]", "[[1]]", "[1", "]", "{a: 1}", "{}", "[null]", "[nan]", "[0.5,-1]")
GRAMMAR = ("${x}", "${oc.env:HOME}", "'", '"', "'a", "\\", "@", ":", "a:b", "os:abort", "range(3)", "glob(*)", "$(x)")
WORDS = (*NUMBERS, *FLOATS, *TEXTS, *PATHS, *FILES, *NAMED, *LISTS, *GRAMMAR)


class Reached(BaseException):
    """The place where computing would begin: nothing was wrong with the settings."""


class TooLong(BaseException):
    """A draw took more than `SECONDS`."""


@dataclass(frozen=True)
class Kind:
    """Files of one kind and the function that reads them. may_mend: a cache, made again where it is damaged."""

    name: str
    files: tuple[Path, ...]
    read: Callable[[], Any]
    may_mend: bool = False


@dataclass(frozen=True)
class Ended:
    """How a command ended. code: its exit code; None where it came to the place at which computing begins."""

    code: int | None
    out: str
    err: str
    raised: BaseException | None = None

    def fault(self) -> str:
        """The fault in how it ended; "" where it went on, or ended with one line and exit code 2."""
        if self.raised is not None:
            return f"{type(self.raised).__name__} escaped: {self.raised}"
        if self.code in (None, 0):
            return ""
        lines = [line for line in self.err.splitlines() if line.strip() and not line.startswith("warning: ")]
        if self.code != 2 or len(lines) != 1 or not lines[0].startswith("error: "):
            return f"exit code {self.code}, {len(lines)} lines: {self.err[-600:]}"
        return ""


def run(recipe: str, words: tuple[str, ...], folder: Path) -> Ended:
    """Run `python recipes/RECIPE.py WORDS` in `folder`, within this process."""
    out, err = io.StringIO(), io.StringIO()
    code, raised = 0, None
    with _as_before(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        os.chdir(folder)
        sys.argv[:] = [str(RECIPES / f"{recipe}.py"), *words]
        sys.path.insert(0, str(RECIPES))
        try:
            with time_limit(SECONDS):
                runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit as end:
            code = end.code or 0
        except Reached:
            code = None
        except BaseException as error:
            raised = error
    return Ended(code, out.getvalue(), err.getvalue(), raised)


@contextlib.contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise TooLong in the main thread after so many seconds."""

    def stop(*_: Any) -> None:
        raise TooLong(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """{path: (size, time of the last change)} of every file below a folder, and of the folders themselves."""
    found = {}
    for path in sorted(folder.rglob("*")):
        is_file = path.is_file() and not path.is_symlink()
        about = path.lstat()
        found[str(path.relative_to(folder))] = (about.st_size, about.st_mtime_ns) if is_file else (-1, -1)
    return found


def damaged(whole: bytes, rng: np.random.Generator) -> bytes:
    """A file's bytes after an accident: cut off, empty, junk, zeros in the middle, or one bit or byte changed."""
    kind = rng.integers(6)
    if kind == 0:
        return whole[: rng.integers(len(whole))]
    if kind == 1:
        return b""
    if kind == 2:
        return rng.bytes(int(rng.integers(1, 2000)))
    data = bytearray(whole)
    place = int(rng.integers(len(data)))
    if kind == 3:
        data[place : place + 64] = bytes(len(data[place : place + 64]))
    elif kind == 4:
        data[place] ^= 1 << int(rng.integers(8))
    else:
        data[place] = int(rng.integers(256))
    return bytes(data)


def other_json(value: Any, rng: np.random.Generator) -> Any:
    """A JSON value with one of its parts, at any depth, replaced by one of another type, or left out."""
    odd = (None, True, -1, 0, 10**12, 1e308, "", "abc", "../../x", [], [[]], {}, {"a": 1}, [None], float("nan"))
    if isinstance(value, dict) and value and rng.random() < 0.85:
        name = list(value)[rng.integers(len(value))]
        if rng.random() < 0.15:
            return {key: one for key, one in value.items() if key != name}
        return {**value, name: other_json(value[name], rng)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        place = int(rng.integers(len(value)))
        return [*value[:place], other_json(value[place], rng), *value[place + 1 :]]
    return odd[rng.integers(len(odd))]


@contextlib.contextmanager
def _as_before() -> Iterator[None]:
    """Recipes change the process: words, paths, variables, loggers and how warnings look."""
    place = Path.cwd()
    argv, path, shown, variables = list(sys.argv), list(sys.path), warnings.formatwarning, dict(os.environ)
    try:
        with logging_as_it_was():
            yield
    finally:
        os.chdir(place)
        sys.argv[:], sys.path[:], warnings.formatwarning = argv, path, shown
        os.environ.clear()
        os.environ.update(variables)
