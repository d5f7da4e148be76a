"""The public functions of `evaluation` leave their caller's process as it was, imports and all."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import public_calls
import pytest
from random_entries import made
from report_zoo import make_zoo

from sslkit.data.sources.named import open_images

ROOT = Path(__file__).parents[1]
CODE = "import sys; sys.path.append(sys.argv[1]); import public_calls; public_calls.main(sys.argv[2:])"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two entries, digits 0 to 5, and a zoo that was judged and ranked."""
    folder, arrays = tmp_path_factory.mktemp("caller"), {}
    for split, n in (("train", 20), ("test", 8)):
        images = open_images("digits", split=split)
        rows = np.concatenate([np.flatnonzero(images.labels == k)[:n] for k in range(6)])
        arrays |= {f"x_{split}": images.pixels[rows, 0], f"y_{split}": images.labels[rows]}
    np.savez(folder / "digits.npz", **arrays)
    for seed, name in enumerate(("entry", "other")):
        made(folder, name, "digits", seed=seed)
    make_zoo(folder)
    return folder


def changed(place: Path, *names: str) -> dict[str, dict[str, list[str]]]:
    """What each function has changed of a process that had imported `evaluation` and torch alone."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    call = [sys.executable, "-c", CODE, str(ROOT / "tests"), *names]
    done = subprocess.run(call, cwd=place, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_every_public_function_is_called() -> None:
    assert public_calls.public() <= set(public_calls.FUNCTIONS)


@pytest.mark.slow
def test_no_function_changes_its_callers_process(place: Path) -> None:
    parts = changed(place, *public_calls.FUNCTIONS)
    assert parts == {name: {} for name in public_calls.FUNCTIONS}


@pytest.mark.nightly
@pytest.mark.parametrize("name", public_calls.FUNCTIONS)
def test_a_function_that_is_the_first_does_not_either(name: str, place: Path) -> None:
    """It imports what it needs, which others may have done before it."""
    assert changed(place, name) == {name: {}}


OF_A_COMMAND = """
import os, signal, sys
def state():
    signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    return signals, dict(os.environ), sys.stdout, sys.stderr
before, sys.argv = state(), ["train.py", "data=nowhere", "--help"]
import sslkit.cli.process
assert state() == before
import evaluation.studies.training, sslkit.cli.sweep, torch, hydra
assert all(before[0][number] is signal.getsignal(number) for number in before[0])
assert "OMP_WAIT_POLICY" not in os.environ and torch.ones(2).sum() == 2, torch
"""


def test_a_program_of_ones_own_may_import_the_commands(tmp_path: Path) -> None:
    """Its words, handlers of signals, streams and environment are its own; --help is no help of ours."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    (tmp_path / "train.py").write_text(OF_A_COMMAND)
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_loader_draws_from_its_own_generator() -> None:
    """torch's DataLoader draws a seed from the global one each time it is iterated, workers or not."""
    found = 0
    for path in (*ROOT.glob("sslkit/**/*.py"), *ROOT.glob("evaluation/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "DataLoader":
                found += 1
                assert "generator" in [word.arg for word in node.keywords], f"{path}:{node.lineno}"
    assert found
