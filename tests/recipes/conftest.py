"""A recipe's command within this process, for tests in which only its words and what it says matter."""

import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.fixture
def typed(monkeypatch, capsys) -> Callable[..., subprocess.CompletedProcess]:
    """typed("rank", *words, cwd=folder): exit code, stdout and stderr, without the seconds of starting Python."""

    def call(recipe: str, *words: str, cwd: Path) -> subprocess.CompletedProcess:
        monkeypatch.syspath_prepend(str(RECIPES))
        monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", [str(RECIPES / f"{recipe}.py"), *words])
        code = 0
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit as end:
            code = end.code or 0
        said = capsys.readouterr()
        return subprocess.CompletedProcess(list(sys.argv), code, said.out, said.err)

    return call
