"""Names of tasks in titles and files: the last part of a path, or the name of a data set."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from evaluation.ranking.inputs.regions import parts
from sslkit.data.sources.file_lists import is_list
from sslkit.data.sources.named import name_of_tables

AGREEMENT = "-agreement"  # suffix of the picture of scores against the truth


def file_names(tasks: Sequence[str]) -> dict[str, str]:
    """Return task -> name of its files, without suffix, unique for each task.

    The last part of the path: "digits" for digits, digits.npz, digits.csv, path/to/digits, hf:path/to/digits and
    shards:digits/{000..099}.tar, "CIFAR10" for torchvision:CIFAR10:DIR.
    Tasks that would share it get their whole path, with - for / and such, and if necessary a hash.
    """
    short = {task: _short(task) for task in tasks}
    shared = _collisions(short)
    long = {task: _plain(task) if task in shared else name for task, name in short.items()}
    shared = _collisions(long)
    unique = {task: f"{long[task]}-{hashlib.sha256(task.encode()).hexdigest()[:8]}" for task in shared}
    return {task: unique.get(task, name) for task, name in long.items()}


def _short(task: str) -> str:
    return _plain(task_name(task))


def task_name(task: str) -> str:
    """Return the last part of a task's path, or the name of its data set; see `file_names`."""
    words_of_it = task.split(":")
    if name := name_of_tables(task):
        return name
    if parts(task):
        return Path(words_of_it[-1].rstrip("/")).name
    kind = words_of_it[1] if words_of_it[0] == "torchvision" and len(words_of_it) > 1 else words_of_it[0]
    name = Path(kind.rstrip("/")).name
    return Path(name).stem if is_list(Path(name)) else name.removesuffix(".npz")


def _plain(text: str) -> str:
    return re.sub(r"[^\w.+]+", "-", text).strip("-.") or "task"


def _collisions(names: Mapping[str, str]) -> set[str]:
    """Return the tasks whose file names collide, also on case-insensitive disks."""
    owners: dict[str, list[str]] = {}
    for task, name in names.items():
        owners.setdefault(name.casefold().removesuffix(AGREEMENT), []).append(task)
    return {task for tasks in owners.values() if len(tasks) > 1 for task in tasks}
