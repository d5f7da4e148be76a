"""Results file of a benchmark: JSON in results/, extended run by run, also by several processes."""

import datetime
import fcntl
import json
from pathlib import Path
from typing import Any

from machine import machine

FOLDER = Path(__file__).parent / "results"


def load(name: str) -> dict[str, Any]:
    """Content of `results/<name>.json`, {"runs": {}} if it does not exist."""
    path = FOLDER / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {"runs": {}}


def keep(name: str, key: str, numbers: dict[str, Any], part: str = "runs") -> None:
    """Add one result. Machine and date are those of the first; a result from another machine carries its own."""
    FOLDER.mkdir(exist_ok=True)
    with open(FOLDER / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        results = load(name)
        made = {"machine": machine(), "date": datetime.date.today().isoformat()}
        if results.setdefault("machine", made["machine"]) == made["machine"]:
            results["date"] = made["date"]
        else:
            numbers = {**numbers, "made": made}
        results[part] = dict(sorted({**results.get(part, {}), key: numbers}.items()))
        partial = FOLDER / f"{name}.part"
        partial.write_text(json.dumps(results, indent=1) + "\n")
        partial.replace(FOLDER / f"{name}.json")
