"""Files and folders that are written whole or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from sslkit import say
from sslkit.errors import UserError

ELSEWHERE = "choose another folder: out= of a run, cache= of an evaluation"  # for errors of a cache


@contextmanager
def write_whole(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, synced and renamed over it at the end; on failure `path` is unchanged.

    Raises UserError, with the reason, when the file cannot be written.
    """
    if path.is_dir() or not path.name:
        raise UserError(f"cannot write {path}: it is a folder; name a file in it")
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        _sync(partial)
        os.replace(partial, path)
    except OSError as error:
        raise _unwritten(path, error) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


@contextmanager
def write_whole_folder(path: Path) -> Iterator[Path]:
    """Like `write_whole`, for a folder of files: a new temporary folder replaces `path` at the end."""
    partial, old = (path.with_name(f".{path.name}.{os.getpid()}.{kind}") for kind in ("new", "old"))
    try:
        partial.mkdir(parents=True)
        yield partial
        for file in partial.iterdir():
            _sync(file)
        if path.exists():
            os.replace(path, old)
        os.replace(partial, path)
    except OSError as error:
        raise _unwritten(path, error) from error
    finally:
        if old.exists() and not path.exists():
            os.replace(old, path)
        for left in (partial, old):
            shutil.rmtree(left, ignore_errors=True)


@contextmanager
def exclusive(file: Path, what: str) -> Iterator[None]:
    """Let one process at a time work on a file; others wait. The system frees the lock of a killed process.

    what: is in the file, for the message. Raises UserError if the lock cannot be written beside it.
    """
    lock = FileLock(file.with_name(f".{file.stem}.lock"))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            say.line(f"another process makes {what} in {file.parent}: waiting for it")
            lock.acquire()
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"cannot write {what} in {file.parent}: {reason}; {ELSEWHERE}") from error
    try:
        yield
    finally:
        lock.release()


def _sync(file: Path) -> None:
    with file.open("rb") as opened:
        os.fsync(opened.fileno())


def _unwritten(path: Path, error: OSError) -> UserError:
    return UserError(f"cannot write {path}: {error.strerror or error}; the old content is unchanged")
