"""The installed command: `sslkit train ...` runs train.py of this folder, and so on for every program beside it."""

import ast
import os
import runpy
import sys
from pathlib import Path

from sslkit.cli import process

from sslkit import __version__
from sslkit.errors import nearest
from sslkit.terminal.say import COMMAND, entry

FOLDER = Path(__file__).parent
STARTS = '\nif __name__ == "__main__":\n'  # only programs have it


def programs() -> dict[str, Path]:
    """The name of every command and the file that it runs; few_shot.py is `few-shot`."""
    files = sorted(FOLDER.glob("*.py"))
    return {path.stem.replace("_", "-"): path for path in files if STARTS in path.read_text(encoding="utf-8")}


def overview() -> str:
    """Every command with the first line of its docstring."""
    files = programs()
    column = max(map(len, files)) + 4
    lines = ["usage: sslkit COMMAND [setting=value ...]", "       sslkit --version", ""]
    lines += ["commands; begin with train, evaluate and rank"]
    texts = {name: ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) for name, path in files.items()}
    lines += [entry(name, text.splitlines()[0], column) for name, text in texts.items()]
    return "\n".join([*lines, "", "sslkit COMMAND --help lists the settings of a command with their defaults."])


def main() -> None:
    """Run the program that the first word names as `python FOLDER/NAME.py` would, with the words after it."""
    process.prepare()
    words = sys.argv[1:]
    if words[:1] == ["--version"]:
        print(f"sslkit {__version__}")
        return
    if not words or words[0] in ("--help", "-h"):
        print(overview())
        return
    files, name = programs(), words[0].replace("_", "-")
    if name not in files:
        process.end(process.REFUSED, f"error: there is no command {words[0]!r}: {nearest(name, files)}")
    os.environ[COMMAND] = "1"
    sys.argv = [str(files[name]), *words[1:]]  # Lightning starts other ranks with it
    runpy.run_path(sys.argv[0], run_name="__main__")
