"""Files and folders that are written whole or not at all."""

import csv
import errno
import hashlib
import os
import platform
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from sslkit.errors import RunFailed, UserError
from sslkit.terminal import say

LONGEST = 200  # bytes of a name: most systems allow 255, and "-2" or ".json.PID.part" may be added
ELSEWHERE = "choose another folder: out= of a run, cache= of an evaluation"  # for errors of a cache


def _machine() -> str:
    """8 hexadecimal digits of this machine since its start; of a container too, which has process ids of its own."""
    about = platform.node()  # which two machines, or all containers of one image, may share
    with suppress(OSError):  # systems without these files
        about += Path("/proc/sys/kernel/random/boot_id").read_text() + os.readlink("/proc/self/ns/pid")
    return hashlib.sha256(about.encode()).hexdigest()[:8]


MACHINE = _machine()
PARTIAL = re.compile(r"\..+\.([0-9a-f]{8})-(\d{1,9})-\w+\.part")  # machine and process id
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
POLL = 0.2  # seconds between two looks at another process's lock, which may be on a network disk
OLD = 24 * 3600  # seconds after its last write in which the writer on another machine may still live
_SYSTEMS: dict[int, bool] = {}  # which file systems have locks


@contextmanager
def write_whole(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, synced and renamed over it at the end; on failure `path` is unchanged.

    Raises UserError, with the reason, when the file cannot be written.
    """
    if path.is_dir() or not path.name:
        raise UserError(f"cannot write {path}: it is a folder; name a file in it")
    partial = path.with_name(f".{path.name}.{of_this_process()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        sync(partial)
        os.replace(partial, path)
    except OSError as error:
        raise _unwritten(path, error) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8; see `write_whole`."""
    with write_whole(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_csv(path: Path, lines: Iterable[Sequence[object]]) -> None:
    """Write a CSV for people, in UTF-8, whole or not at all; names in it come from outside.

    A text that a spreadsheet would run as a formula, since it begins with = + - @, their wide forms or a control
    character, gets a ' before it; a number does not. Raises UserError if the file cannot be written.
    """
    with (
        write_whole(path) as partial,
        partial.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file,
    ):
        csv.writer(file).writerows([_no_formula(cell) for cell in line] for line in lines)


def _no_formula(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and starts_formula(cell) else cell


def starts_formula(text: str) -> bool:
    """Return whether a spreadsheet would run a text, which is no number."""
    return bool(text) and not _NUMBER.fullmatch(text) and (text[0] in "=+-@＝＋－＠" or not text[0].isprintable())


@contextmanager
def write_whole_folder(path: Path, last: str) -> Iterator[Path]:
    """Like `write_whole`, for a folder of files: the temporary folder becomes `path` at the end.

    Into an existing folder its files are moved, and others there stay. last: the file without which the folder is
    nothing: moved last, and removed before, so that no kill leaves old files beside new ones that look whole.
    """
    name = f".{path.name}.{of_this_process()}.part"
    there = path.is_dir()
    partial = path / name if there else path.with_name(name)
    try:
        partial.mkdir(parents=True)
        yield partial
        files = sorted(partial.iterdir(), key=lambda file: file.name == last)
        for file in files:
            sync(file)
        if there:
            (path / last).unlink(missing_ok=True)
            for file in files:
                os.replace(file, path / file.name)
        else:
            os.replace(partial, path)
    except OSError as error:
        raise _unwritten(path, error) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def lock(path: Path, waiting: str = "", *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of a lock file, whose folder is made, for the block; the system frees that of a killed process.

    Yields False, without the lock, if another process has it and not `wait`; True where there are no locks at all.
    waiting: line that is printed before another process is waited for. Raises OSError if nothing can be written there.
    """
    from filelock import FileLock  # 20 ms, and help has none

    path.parent.mkdir(parents=True, exist_ok=True)
    file = lockable(path)
    if file is None:
        yield True
        return
    held = FileLock(file, poll_interval=POLL)
    try:
        held.acquire(blocking=False)
    except TimeoutError:  # filelock's is one
        if wait:
            if waiting:
                say.line(waiting)
            held.acquire()
    try:
        yield held.is_locked
    finally:
        held.release()


def lockable(path: Path) -> Path | None:
    """Return the file to lock for one in an existing folder: itself, if its file system has locks.

    Else one on this machine, since commands on one machine are the most likely to meet; None without any. Raises
    OSError like `lock`.
    """
    if has_locks(path.parent):
        return path
    folder = _own_folder()
    return folder and folder / f"{hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:32]}.lock"


def has_locks(folder: Path) -> bool:
    """Return whether a folder's file system has locks; a warning says once if not. Raises OSError like `lock`."""
    system = folder.stat().st_dev
    if system not in _SYSTEMS:
        _SYSTEMS[system] = _can_lock(folder)
        if not _SYSTEMS[system]:
            who = "two commands" if _own_folder() is None else "commands on two machines"
            say.warning(
                f"warning: the file system of {folder} has no locks (flock): {who} that write there at the same time "
                "each do all of the work; do not start a fine-tuning twice there"
            )
    return _SYSTEMS[system]


def _own_folder() -> Path | None:
    """A folder on this machine for locks, in which no other user can put a file; None if there can be none."""
    try:
        folder = Path(tempfile.gettempdir()) / f"sslkit-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder if folder.lstat().st_uid == os.getuid() and _can_lock(folder) else None
    except OSError:
        return None


def _can_lock(folder: Path) -> bool:
    """Try it on a file that no one else has."""
    try:
        import fcntl
    except ImportError:  # Windows, where filelock has another way
        return True
    with tempfile.TemporaryFile(dir=folder) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # ENOSYS, ENOLCK, EOPNOTSUPP
            return False
    return True


@contextmanager
def exclusive(file: Path, what: str) -> Iterator[UserError | None]:
    """Let one process at a time work on a file or folder of a cache; others wait.

    Without a lock if it is there and nothing can be written beside it: a cache that is read-only can be read. Then the
    error is yielded that is to be raised before any work on another content.
    what: is in the file, for the message. Raises UserError if it is not there and cannot be made.
    """
    refused = None
    with ExitStack() as held:
        try:
            waiting = f"another process makes {what} in {file.parent}: waiting for it"
            held.enter_context(lock(file.with_name(f".{file.stem}.lock"), waiting))
        except OSError as error:
            refused = unwritable(what, file.parent, error)
            if not file.exists():
                raise refused from error
        yield refused


def of_this_process() -> str:
    """A part of a temporary file's name that no other writer has, here or on another machine, even one of this name."""
    return f"{MACHINE}-{os.getpid()}-{secrets.token_hex(4)}"


def sweep(folder: Path) -> None:
    """Remove the partial files and folders of a killed writer; those on another machine when they are a day old."""
    for above, folders, files in os.walk(folder):  # passes over what goes meanwhile, which `rglob` fails at
        for name in (*folders, *files):
            written, partial = PARTIAL.fullmatch(name), Path(above, name)
            with suppress(FileNotFoundError):  # one that ends at this moment
                if written and not _is_written(partial, written[1], int(written[2])):
                    partial.unlink() if partial.is_file() else shutil.rmtree(partial)


def _is_written(partial: Path, machine: str, pid: int) -> bool:
    """Return whether another process may be writing a file; this process has no partial files yet."""
    if machine != MACHINE:
        return time.time() - partial.stat().st_mtime < OLD
    if pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def refusal(error: OSError) -> type[UserError]:
    """Return the class for a file that cannot be written: RunFailed for a disk that is full or broken."""
    return RunFailed if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO) else UserError


def unwritable(what: str, folder: Path, error: OSError, remedy: str = "") -> UserError:
    """Return the error of a cache's folder that cannot be written. remedy: is named before another folder."""
    return refusal(error)(f"cannot write {what} in {folder}: {error.strerror or error}; {remedy}{ELSEWHERE}")


def sync(file: Path) -> None:
    """Wait until the content of a file is on the disk."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())


def _unwritten(path: Path, error: OSError) -> UserError:
    return refusal(error)(f"cannot write {path}: {error.strerror or error}; the old content is unchanged")


def check_name(name: Any, setting: str) -> str:
    """Return `name` if it is the name of one file in a folder. setting: the setting's name, for the message.

    Raises UserError for "", ".", "..", anything with a slash or an unprintable character, and more than 200 bytes.
    """
    if not isinstance(name, str) or name.strip() in ("", ".", "..") or not name.isprintable() or set(name) & set("/\\"):
        raise UserError(f"{setting}={name!r} must be the name of a folder, without a slash")
    if len(name.encode()) > LONGEST:
        raise UserError(f"{setting}={name[:20]}... has {len(name.encode())} bytes, a name may have {LONGEST}")
    return name


def name_of(text: str) -> str:
    """The name of one file from any text: each run of characters other than letters, digits and -+._ becomes one _."""
    name = re.sub(r"[^\w.+-]+", "_", text)
    return name if name.strip(".") else "_"
