"""How the programs are started: `python recipes/train.py` in a clone, `sslkit train` with the installed command.

Messages are written in the first form; `as_started` gives them the form that works where they are read.
"""

import os
import re
from pathlib import Path

COMMAND = "SSLKIT_COMMAND"  # set by the command `sslkit`, for itself and the processes that it starts
SCRIPTS = Path(__file__).parents[2] / "recipes"
PROGRAM = re.compile(r"(?P<torchrun>torchrun(?: --\S+)* )?(?:python )?(?<![\w./-])recipes/(?P<name>\w+)\.py")


def by_command() -> bool:
    """Return whether programs are started as `sslkit NAME`: by that command, or where there are no scripts."""
    return COMMAND in os.environ or not (SCRIPTS / "train.py").is_file()


def as_started(text: str) -> str:
    """Return a text with `python recipes/few_shot.py` and `recipes/few_shot.py` written as they are started here."""
    return PROGRAM.sub(_command, text) if by_command() else text


def _command(match: re.Match) -> str:
    launcher = f"{match['torchrun']}--no-python " if match["torchrun"] else ""
    return f"{launcher}sslkit {match['name'].replace('_', '-')}"
