"""A recipe's command within this process, for tests in which only its words and what it says matter."""

import runpy
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hydra._internal.hydra import Hydra
from hydra.types import RunMode
from in_process import logging_as_it_was

from sslkit.data.sources.named import open_images

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.fixture(autouse=True)
def no_mode_is_looked_for(monkeypatch) -> None:
    """Hydra composes every command once more to read `hydra.mode`, which no configuration here sets."""
    get_mode = Hydra.get_mode

    def asked(self, config_name: str | None, overrides: list[str]) -> RunMode | None:
        named = any("hydra.mode" in word for word in overrides)
        return get_mode(self, config_name, overrides) if named else None

    monkeypatch.setattr(Hydra, "get_mode", asked)


@pytest.fixture
def typed(monkeypatch, capsys) -> Callable[..., subprocess.CompletedProcess]:
    """typed("rank", *words, cwd=folder): exit code, stdout and stderr, without the seconds of starting Python."""

    def call(recipe: str, *words: str, cwd: Path) -> subprocess.CompletedProcess:
        monkeypatch.syspath_prepend(str(RECIPES))
        monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", [str(RECIPES / f"{recipe}.py"), *words])
        monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)  # recipes say warnings in a line
        code = 0
        with logging_as_it_was():
            try:
                runpy.run_path(sys.argv[0], run_name="__main__")
            except SystemExit as end:
                code = end.code or 0
        said = capsys.readouterr()
        return subprocess.CompletedProcess(list(sys.argv), code, said.out, said.err)

    return call


@pytest.fixture(scope="session")
def few_digits(tmp_path_factory) -> Path:
    """96 training and 40 test images of the digits with labels, enough for a run of a second."""
    path, arrays = tmp_path_factory.mktemp("data") / "digits.npz", {}
    for split, n in (("train", 96), ("test", 40)):
        images = open_images("digits", split=split)
        arrays |= {f"x_{split}": images.pixels[:n, 0], f"y_{split}": images.labels[:n]}
    np.savez(path, **arrays)
    return path
