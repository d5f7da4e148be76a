"""Results of a study: JSON in its folder's results/, extended run by run, also by several processes."""

import datetime
import fcntl
import importlib.metadata
import json
import os
import platform
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from evaluation.studies.cells import Cell, measure_cells, missing_cells
from sslkit.files.writing import write_text
from sslkit.runtime.jobs import processor
from sslkit.terminal import say
from sslkit.zoo.provenance import commit

FOLDER = Path(__file__).parent
CONSTANTS = FOLDER / "constants.json"


def path_of(name: str) -> Path:
    """The file of "FOLDER/NAME"."""
    folder, _, file = name.partition("/")
    return FOLDER / folder / "results" / f"{file}.json"


def load(name: str) -> dict[str, Any]:
    """Content of the file, {"runs": {}} if it does not exist."""
    path = path_of(name)
    return json.loads(path.read_text()) if path.exists() else {"runs": {}}


def keep(name: str, key: str, numbers: dict[str, Any], part: str = "runs") -> None:
    """Add one result. Machine and date are those of the first; a result from another machine carries its own."""
    path = path_of(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        results, made = load(name), about()
        if results.setdefault("machine", made["machine"]) == made["machine"]:
            results["date"] = made["date"]
        else:
            numbers = {**numbers, "made": made}
        results[part] = dict(sorted({**results.get(part, {}), key: numbers}.items()))
        write(path, results)


def measure(
    name: str,
    cells: Mapping[str, Cell],
    processes: int = 1,
    part: str = "runs",
    begin: Callable[[], None] | None = None,
    again: Collection[str] = (),
) -> None:
    """Measure and keep the cells that have no result yet, see `measure_cells`; and those of `again`, anew."""
    missing = missing_cells(cells, load(name).get(part, {}).keys() - {*again})
    with say.print_by_default():
        measure_cells(missing, partial(keep, name, part=part), processes=processes, begin=begin)


def write(path: Path, found: dict[str, Any]) -> None:
    """Write a whole file at once."""
    write_text(path, json.dumps(found, indent=1) + "\n")


def keep_constant(name: str, measured: Any, study: str) -> None:
    """Write what a study measured for a constant of the library, `module:NAME`, into the file of the constants."""
    constants = json.loads(CONSTANTS.read_text())
    made = {"study": study, "commit": commit(), "date": about()["date"]}
    constants[name] = {**constants.get(name, {}), "measured": measured, **made}
    write(CONSTANTS, constants)


def about() -> dict[str, Any]:
    return {"machine": machine(), "date": datetime.date.today().isoformat()}


def machine() -> dict[str, str | int | None]:
    """Processor, cores and versions, without the host name."""
    packages = ("sslkit", "torch", "torchvision", "lightly", "timm", "pytorch-lightning")
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }


def version(package: str) -> str | None:
    """The installed version; None for a package that is not, as sslkit in a folder on PYTHONPATH."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def put_tables(page: Path, texts: Iterable[str]) -> None:
    """Write tables into a page, each in the place of the one there that begins with the same first cell."""
    content = page.read_text(encoding="utf-8")
    for text in texts:
        first = re.escape(text.split("|")[1])
        content = re.sub(rf"^\|{first}\|.*(?:\n\|.*)*", lambda _, text=text: text, content, count=1, flags=re.M)
    write_text(page, content)
