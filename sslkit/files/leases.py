"""Leases: one process at a time owns a folder or a set of files, and that of one that was killed can be taken over.

The lease is a file that names its owner, who renews it every few seconds as long as it lives. On the same machine a
process can be asked for; on another one the file is watched: it is compared with what it was a moment ago, never with a
clock. Unlike a lock of the system (`sslkit.files.writing.lock`) it works on file systems without locks.

Who takes one: whatever rewrites files that belong together (a run, a zoo, a ranking, an embedding, a solution). Runs
that are recorded one by one (fine-tuning, detection, action) need none: each is claimed, see
`evaluation.results.records`, and several processes share them; so do caches, see `sslkit.files.writing.exclusive`.
"""

import json
import os
import platform
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from sslkit.errors import UserError
from sslkit.files.writing import MACHINE, refusal
from sslkit.terminal import say

NAME = ".owner"
RENEWED = 5.0  # seconds between two signs of life: a twelfth of SILENCE, so that some may be late
SILENCE = 60.0  # seconds without one after which an owner on another machine counts as dead; file systems cache times


def own_folder(folder: Path, work: str) -> AbstractContextManager[None]:
    """Own a folder, which is made, for the block. work: what the owner does there, for the message of a second one.

    Raises UserError if a living process owns it, or if it cannot be written.
    """
    return _held(folder / NAME, f"{work} {folder}")


def own_file(file: Path, work: str) -> AbstractContextManager[None]:
    """Own a file, and those that are written beside it under its name, for the block; see `own_folder`."""
    return _held(file.with_name(f".{file.name}{NAME}"), f"{work} {file}")


@contextmanager
def _held(path: Path, work: str) -> Iterator[None]:
    """Hold the lease of this path for the block. work: with the name of what is owned."""
    token = secrets.token_hex(8)
    _take(path, token, work)
    ended = threading.Event()
    renewing = threading.Thread(target=_renew, args=(path, ended), daemon=True)
    renewing.start()
    try:
        yield
    finally:
        ended.set()
        renewing.join()
        if (_owner(path) or {}).get("token") == token:
            path.unlink(missing_ok=True)


def _take(path: Path, token: str, work: str) -> None:
    """Write the lease, once nobody else has one who lives.

    A dead owner's lease is never removed before there is another, since several may take it over at once. Each tries to
    write its successor, whose name is made of the dead one's token, and of whom one alone succeeds. It then replaces
    the lease. A successor that comes too late finds that the lease is no longer the one that it followed.
    """
    lease = {"machine": MACHINE, "host": platform.node(), "pid": os.getpid(), "token": token, "work": work}
    lease["began"] = _began(os.getpid())
    while True:
        before = _successors(path)
        if before and _lives(*before[-1]):
            other = before[-1][1]
            who = f"process {other['pid']}" + ("" if other["machine"] == MACHINE else f" on {other['host']}")
            raise UserError(f"{who} {other['work']}: wait until it has ended, or end it")
        file = _after(path, before[-1][1]) if before else path
        if not _written(file, lease):
            continue
        if _successors(path)[:-1] == before:
            break
        file.unlink(missing_ok=True)
    if before:
        os.replace(file, path)
    for dead, _ in before[1:]:  # none leads to them any more
        dead.unlink(missing_ok=True)


def _after(path: Path, lease: dict[str, Any]) -> Path:
    return path.with_name(f"{path.name}-after-{lease['token']}")


def _successors(path: Path) -> list[tuple[Path, dict[str, Any]]]:
    """The lease and those that follow it, each written to take over the one before: the last one counts."""
    leases: list[tuple[Path, dict[str, Any]]] = []
    file = path
    while (lease := _owner(file)) is not None and file not in (file for file, _ in leases):
        leases.append((file, lease))
        file = _after(path, lease)
    return leases


def _written(path: Path, own: dict[str, Any]) -> bool:
    """Return whether the lease is ours: written whole under another name, and linked, which fails if there is one."""
    draft = path.with_name(f"{path.name}-{own['token']}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(own), encoding="utf-8")
        try:
            os.link(draft, path)
        except FileExistsError:
            return False
        except OSError:  # a file system without links
            try:
                with path.open("x", encoding="utf-8") as file:
                    file.write(json.dumps(own))
            except FileExistsError:
                return False
    except OSError as error:
        message = f"cannot write into {path.parent}: {error.strerror or error}; choose another folder with out="
        raise refusal(error)(message) from error
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
    return True


def _owner(path: Path) -> dict[str, Any] | None:
    """What a lease says; None without one. A damaged one is that of a machine nobody knows."""
    try:
        lease = json.loads(path.read_text(encoding="utf-8"))
        return {name: lease[name] for name in ("machine", "host", "pid", "token", "work", "began")}
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError, KeyError):
        return {
            "machine": "",
            "host": "another machine",
            "pid": "?",
            "token": "",
            "work": f"writes in {path.parent}",
            "began": 0,
        }


def _lives(path: Path, other: dict[str, Any]) -> bool:
    """Return whether the owner lives: here it is asked for, elsewhere its signs are awaited."""
    if other["machine"] == MACHINE:
        return other["began"] is not None and _began(other["pid"]) == other["began"]
    say.line(f"a process on {other['host']} {other['work']}: looking for a minute whether it lives")
    end, seen = time.monotonic() + SILENCE, _sign(path)
    while time.monotonic() < end:
        time.sleep(RENEWED / 10)
        if (now := _sign(path)) != seen:
            return now is not None
    return False


def _sign(path: Path) -> int | None:
    """The time of the last sign, which only the file system's clock has set; None without a lease."""
    try:
        with path.open("rb") as file:  # opening it lets NFS ask its server
            return os.fstat(file.fileno()).st_mtime_ns
    except OSError:
        return None


def _began(pid: int) -> float | None:
    """When a process here began, which tells it from a later one of the same number; None if it has ended.

    On Linux in ticks since the machine's start: psutil adds the time of that, which moves when the clock is set.
    """
    import psutil  # 15 ms, and help has none

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        stat = Path(f"/proc/{pid}/stat")
        return float(stat.read_bytes().rpartition(b")")[2].split()[19]) if stat.exists() else process.create_time()
    except (psutil.Error, OSError):
        return None


def _renew(path: Path, ended: threading.Event) -> None:
    while not ended.wait(RENEWED):
        with suppress(OSError):  # a folder that was moved, a server that is away
            os.utime(path)
