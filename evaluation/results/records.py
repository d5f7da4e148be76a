"""Records of finished runs, one JSON line each, in a file safe for several writers and for killed processes."""

import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

from sslkit.errors import UserError
from sslkit.files.writing import lock, lockable, refusal


def run_id(key: Mapping[str, Any]) -> str:
    """Return the id of a run, 16 hex digits: the same for equal keys in any order of their entries."""
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]


def read_records(path: Path) -> dict[str, dict[str, Any]]:
    """Return every complete record of a file by its run id; writes nothing, so the folder may be read-only.

    Raises UserError for an invalid line before the last.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UserError(f"cannot read the runs in {path}: {error.strerror}") from error
    *lines, _ = content.split(b"\n")  # text after the last newline is an incomplete record
    records = {}
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            records[str(record["run"])] = record
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UserError(f"{path} line {number} is not a record of a run: remove that line") from error
    return records


class Records:
    """A file of finished runs, append-only.

    A line is {"run": id, ...the key, ...the values}. It is written and synced under a lock, so processes do not mix
    their lines; an incomplete line of a killed process is ignored and removed by the next `add`.

    path: the .jsonl file, created by the first `add`; its locks are beside it in .NAME.locks.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.locks = self.path.parent / f".{self.path.stem}.locks"
        try:
            self.locks.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            if not self.path.is_file():  # records that cannot be added to may be all that are needed
                raise self._refusal(error) from error

    def are_shared(self) -> bool:
        """Return whether processes on this machine see each other's claims."""
        try:
            return lockable(self.locks / "file.lock") is not None
        except OSError:  # nothing can be claimed, which `claim` says
            return True

    def read(self) -> dict[str, dict[str, Any]]:
        """See `read_records`."""
        return read_records(self.path)

    def find(self, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the record of a run, None if it is not finished."""
        return self.read().get(run_id(key))

    def missing(self, keys: Sequence[Mapping[str, Any]]) -> list[int]:
        """Return the indices of the runs that are not finished."""
        finished = self.read()
        return [number for number, key in enumerate(keys) if run_id(key) not in finished]

    def add(self, key: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        """Append the record of a finished run and sync it to the disk."""
        record = {"run": run_id(key), **key, **values}
        line = json.dumps(record, allow_nan=False).encode() + b"\n"
        try:
            with self._lock("file"), self.path.open("a+b") as file:
                if (torn := _torn(file)) is not None:  # else a line that another machine adds meanwhile would be lost
                    file.truncate(torn)
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise self._refusal(error) from error

    def alone(self) -> AbstractContextManager[bool]:
        """Let one process at a time read all records and write what it makes of them, so that the last has them all."""
        return self._lock("summary")

    def claim(self, key: Mapping[str, Any], *, wait: bool) -> AbstractContextManager[bool]:
        """Claim a run for this process; yields True on success. The claim ends with the block, or with the process.

        wait: wait until another process releases the run; a line says so, but of a process of a pool.
        """
        waiting = f"another process does a run of {self.path}: waiting for it" if parent_process() is None else ""
        return self._lock(run_id(key), waiting, wait)

    def claim_unfinished(self, keys: Sequence[Mapping[str, Any]]) -> Iterator[int]:
        """Yield the index of each run that is not finished, claimed until the next one, by which it is to be added.

        A run that another process has claimed is waited for at last, and yielded if that process dies.
        """
        while left := self.missing(keys):
            is_any_claimed = False
            for number in left:
                with self.claim(keys[number], wait=False) as mine:
                    is_any_claimed |= mine
                    if mine and self.find(keys[number]) is None:  # by a process that ended since the file was read
                        yield number
            if not is_any_claimed:
                with self.claim(keys[left[0]], wait=True):
                    pass

    @contextmanager
    def _lock(self, name: str, waiting: str = "", wait: bool = True) -> Iterator[bool]:
        with ExitStack() as held:
            try:
                is_held = held.enter_context(lock(self.locks / f"{name}.lock", waiting, wait=wait))
            except OSError as error:
                raise self._refusal(error) from error
            yield is_held

    def _refusal(self, error: OSError) -> UserError:
        return refusal(error)(f"cannot write to {self.path}: {error.strerror or error}; give another out")


def check_fields(record: Mapping[str, Any], needs: Collection[str], path: Path) -> None:
    """Check that a record has these fields. Raises UserError with the file's path."""
    lacking = [name for name in needs if name not in record]
    if lacking:
        raise UserError(f"{path}: the record of run {record['run']} lacks {', '.join(lacking)}: remove that line")


def _torn(file: Any) -> int | None:
    """Return where an incomplete last line begins, in bytes; None if all lines are complete."""
    file.seek(0)
    content = file.read()  # whole: `each_recorded` reads it before every run anyway
    whole = content.rfind(b"\n") + 1
    return whole if whole < len(content) else None
