"""What a command or a page prints names no file of the clone that a wheel lacks."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sslkit.terminal import say

ROOT = Path(__file__).parents[2]
PARTS = ("sslkit", "evaluation", "recipes")
OF_THE_CLONE = re.compile(r"recipes/(?!$)|\bREADME\b(?!\.md$)|\w/\w+\.md\b|\b(?<!sslkit )list\.py|\btests/")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)


def files() -> list[Path]:
    found = [file for part in PARTS for file in (ROOT / part).rglob("*.py")]
    return [file for file in found if "benchmarks" not in file.parts]


def docstrings(tree: ast.Module) -> set[int]:
    """The ids of the docstrings' nodes."""
    starts = (node.body[0] for node in ast.walk(tree) if isinstance(node, DOCUMENTED) and node.body)
    return {id(start.value) for start in starts if isinstance(start, ast.Expr)}


def texts(file: Path) -> Iterator[tuple[int, str]]:
    """Line and text of every string that can be printed: a program's docstring is its help."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    silent = docstrings(tree)
    if file.parent == ROOT / "recipes":
        yield 1, ast.get_docstring(tree) or ""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent:
            yield node.lineno, node.value


def test_a_wheel_has_every_file_that_it_speaks_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(say.COMMAND, "1")
    named = {
        f"{file.relative_to(ROOT)}:{line}: {text[:100]}"
        for file in files()
        for line, text in texts(file)
        if not text.startswith("(?") and OF_THE_CLONE.search(say.as_started(text))
    }
    templates = (ROOT / "evaluation" / "report" / "template").iterdir()
    named |= {str(page) for page in templates if OF_THE_CLONE.search(say.as_started(page.read_text(encoding="utf-8")))}
    assert not named
