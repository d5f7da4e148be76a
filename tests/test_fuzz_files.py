"""Damaged files of every kind that is read: one line that names what is wrong, or a result; no file is changed.

Run on 2026-11-22 with 3,500 draws, seed 1, and 3,200 draws, seed 9, beside 3,780 draws of
tests/recipes/test_fuzz_settings.py: nothing found.
More: pytest -m nightly, or other draws by SSLKIT_FUZZ=5000 SSLKIT_FUZZ_SEED=3 pytest -n 0 tests/test_fuzz_files.py
"""

import json
import os
import warnings
from pathlib import Path
from typing import Any

import damaged_sets
import fuzzing
import numpy as np
import pytest
from foreign_files import (
    arrays,
    checkpoints,
    entries,
    exports,
    features,
    images,
    lists,
    made,
    rankings,
    reports,
    results,
    weights,
)
from fuzzing import Kind, Reached
from named_pipes import pipe

from sslkit.errors import UserError

DRAWS = int(os.environ.get("SSLKIT_FUZZ", "80"))
SEED = int(os.environ.get("SSLKIT_FUZZ_SEED", "0"))
CHUNK = 20  # draws of one test, so that a failure names few
NIGHTLY = 3000  # draws


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> list[Kind]:
    """Those that are made in a moment."""
    sets = (damaged_sets.films, damaged_sets.coco, damaged_sets.voc)
    return made(
        tmp_path_factory.mktemp("files"), entries, weights, images, lists, arrays, results, rankings, features, *sets
    )


@pytest.fixture(scope="module")
def all_kinds(kinds: list[Kind], tmp_path_factory: pytest.TempPathFactory) -> list[Kind]:
    """With those that need a whole zoo, an export to ONNX or a training."""
    more = (exports, reports, checkpoints, damaged_sets.stopped_trainings)
    return [*kinds, *made(tmp_path_factory.mktemp("more"), *more)]


def fault(kind: Kind, file: Path, content: bytes) -> str:
    """The fault in reading a damaged file; "" if there is none."""
    whole = file.read_bytes()
    try:
        file.write_bytes(content)
        return _read(kind, file, content)
    finally:
        file.write_bytes(whole)


def fault_of_a_pipe(kind: Kind, file: Path, aside: Path) -> str:
    """The fault in reading a named pipe that stands in a file's place; "" if there is none."""
    os.replace(file, aside)
    try:
        with pipe(file):
            return _said(kind, file)
    except AssertionError as error:
        return str(error)
    finally:
        os.replace(aside, file)


def _read(kind: Kind, file: Path, content: bytes) -> str:
    before = fuzzing.snapshot(file.parent)
    if said := _said(kind, file):
        return said
    if not kind.may_mend and fuzzing.snapshot(file.parent) != before:
        return "reading it changed files"
    return "" if file.read_bytes() == content or kind.may_mend else "reading it changed it"


def _said(kind: Kind, file: Path) -> str:
    """The fault in what reading says of a file that is damaged; "" if there is none."""
    try:
        with fuzzing.time_limit(fuzzing.SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kind.read()
    except Reached:
        pass
    except UserError as error:
        said = str(error)
        if "\n" in said.strip() or not said.strip() or len(said) > 1500:
            return f"an error of {said.count(chr(10)) + 1} lines and {len(said)} characters: {said[:200]}"
        if file.stem not in said and file.parent.name not in said:
            return f"the error does not name the file: {said[:300]}"
    except BaseException as error:
        return f"{type(error).__name__} escaped: {str(error)[:300]}"
    return ""


def drawn(rng: np.random.Generator, kinds: list[Kind]) -> tuple[Kind, Path, bytes]:
    kind = kinds[rng.integers(len(kinds))]
    file = kind.files[rng.integers(len(kind.files))]
    whole = file.read_bytes()
    if file.suffix in (".json", ".jsonl") and rng.random() < 0.6:
        lines = [json.loads(line) for line in whole.splitlines()] if file.suffix == ".jsonl" else [json.loads(whole)]
        lines[-1] = fuzzing.other_json(lines[-1], rng)
        return kind, file, "\n".join(map(json.dumps, lines)).encode()
    return kind, file, fuzzing.damaged(whole, rng)


def check(seed: int, chunk: int, kinds: list[Kind]) -> None:
    rng, faults = np.random.default_rng([seed, chunk]), []
    for _ in range(CHUNK):
        kind, file, content = drawn(rng, kinds)
        if said := fault(kind, file, content):
            faults.append(f"{kind.name}, {file.name} of {len(content)} bytes: {said}")
    assert not faults, "\n".join(faults)


def check_pipes(kinds: list[Kind], aside: Path) -> None:
    """One file of each ending of every kind, except for caches and records, which nobody else writes."""
    foreign = [kind for kind in kinds if not kind.may_mend and kind.name != "records"]
    one_of_each = {(kind.name, file.suffix): (kind, file) for kind in foreign for file in kind.files}
    found = {f"{kind.name}, {file.name}": fault_of_a_pipe(kind, file, aside) for kind, file in one_of_each.values()}
    faults = [f"{name}: {said}" for name, said in found.items() if said]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("chunk", range(-(-DRAWS // CHUNK)))
def test_a_damaged_file_is_named_in_one_line_or_read(chunk: int, kinds: list[Kind], capsys: Any) -> None:
    check(SEED, chunk, kinds)


def test_a_pipe_in_the_place_of_a_file_is_never_opened(kinds: list[Kind], tmp_path: Path, capsys: Any) -> None:
    check_pipes(kinds, tmp_path / "aside")


@pytest.mark.nightly
def test_nor_is_one_in_the_place_of_those_that_take_long_to_make(
    all_kinds: list[Kind], tmp_path: Path, capsys: Any
) -> None:
    check_pipes(all_kinds, tmp_path / "aside")


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(-(-DRAWS // CHUNK)))
def test_so_are_those_that_take_long_to_make(chunk: int, all_kinds: list[Kind], capsys: Any) -> None:
    check(SEED, chunk, all_kinds)


@pytest.mark.nightly
@pytest.mark.parametrize("chunk", range(NIGHTLY // CHUNK))
def test_thousands_of_damaged_files(chunk: int, all_kinds: list[Kind], capsys: Any) -> None:
    check(SEED + 1, chunk, all_kinds)
