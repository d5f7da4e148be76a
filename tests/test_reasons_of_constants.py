"""A number that was chosen says why where it stands: each numeric constant of a module has a comment."""

import ast
import re
import subprocess
from collections.abc import Iterator

import pytest

NAME = re.compile(r"_?[A-Z][A-Z0-9_]*$")


def is_number(node: ast.AST) -> bool:
    """Return whether an expression is made of numbers alone."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (int, float)) and not isinstance(node.value, bool)
    if isinstance(node, (ast.Tuple, ast.List)):
        return bool(node.elts) and all(map(is_number, node.elts))
    if isinstance(node, ast.BinOp):
        return is_number(node.left) and is_number(node.right)
    return isinstance(node, ast.UnaryOp) and is_number(node.operand)


def constants_without_a_reason(text: str) -> Iterator[str]:
    """Yield the lines of constants that have no comment, beside them or in the line before."""
    lines = text.splitlines()
    for node in ast.parse(text).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names = targets[0].elts if isinstance(targets[0], ast.Tuple) else targets
        if getattr(node, "value", None) is None or not is_number(node.value):
            continue
        if all(isinstance(name, ast.Name) and NAME.match(name.id) for name in names):
            beside = lines[node.lineno - 1 : node.end_lineno]
            if not any("#" in line for line in beside) and not "".join(lines[: node.lineno - 1][-1:]).startswith("#"):
                yield lines[node.lineno - 1]


def test_what_has_no_reason_is_found() -> None:
    given = "A = 3\n# so large\nB, C = 0.5, -1\n\nD = (2**3, 1)  # of it\nE: float = 1e-3\nname = 4\nF = [A]\n# end\n"
    assert list(constants_without_a_reason(given)) == ["A = 3", "E: float = 1e-3"]


def test_every_constant_says_why(pytestconfig: pytest.Config) -> None:
    listed = ["git", "ls-files", "sslkit/*.py", "evaluation/*.py"]
    done = subprocess.run(listed, cwd=pytestconfig.rootpath, capture_output=True, text=True, check=True)
    files = [pytestconfig.rootpath / name for name in done.stdout.splitlines()]
    without = {
        str(file.relative_to(pytestconfig.rootpath)): lines
        for file in files
        if file.exists() and (lines := list(constants_without_a_reason(file.read_text(encoding="utf-8"))))
    }
    assert len(files) > 500 and without == {}, "say why it has this value, or what it trades; name the study's page"
