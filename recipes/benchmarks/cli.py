"""The command line of the studies: `run.py PART`, and the options that many of them have."""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from sslkit.cli import process

from sslkit.errors import UserError

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

OPTIONS: dict[str, dict[str, Any]] = {
    "seeds": {"nargs": "*", "type": int, "default": [0, 1, 2]},
    "jobs": {"type": int, "default": 1, "help": "number of parallel runs"},
    "threads": {"type": int, "default": 1, "help": "threads of each run"},
    "table": {"action": "store_true", "help": "print the committed results and exit"},
}


def parser(about: str, *options: str) -> argparse.ArgumentParser:
    """A parser with some of OPTIONS. about: the docstring of the study."""
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in options:
        made.add_argument(f"--{name}", **OPTIONS[name])
    return made


def dispatch(folder: str, about: str, parts: Sequence[str]) -> None:
    """Run `main` of the module that the first word names; a UserError is one line, a closed pipe none."""
    process.prepare()
    word = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if word in ("-h", "--help"):
        print(about.strip())
        return
    if word not in parts:
        raise SystemExit(f"there is no {word!r}; it has: {', '.join(parts)}")
    sys.argv[:2] = [f"{sys.argv[0]} {word}"]
    try:
        importlib.import_module(f"{folder}.{word}").main()
    except UserError as error:
        process.end(process.REFUSED, f"error: {error}")
