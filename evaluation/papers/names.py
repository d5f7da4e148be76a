"""Keys of jobs, "ROW | SEED", and names of what experiments share."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from evaluation.papers.experiment import Numbers


def by_row(found: Mapping[str, Numbers], row: str) -> dict[int, Numbers]:
    """The numbers of a row by seed."""
    return {int(key.rpartition(" | ")[2]): numbers for key, numbers in found.items() if key.rpartition(" | ")[0] == row}


def digest(words: Any) -> str:
    """8 hexadecimal digits of settings."""
    return hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()[:8]
