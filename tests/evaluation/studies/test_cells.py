"""Cells of a study: those without a result are measured, here or by processes, and each is kept at once."""

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from evaluation.studies.cells import measure_cells, missing_cells
from sslkit.errors import UserError


def cell(value: int) -> dict[str, Any]:
    if value == 2:
        raise UserError("the loss is not finite")
    if value == 5:
        raise KeyboardInterrupt
    return {"value": value, "process": os.getpid(), "began": os.environ.get("CELL_BEGAN")}


def keep(folder: Path, key: str, numbers: dict[str, Any]) -> None:
    (folder / f"{key}.json").write_text(json.dumps(numbers))


def begin() -> None:
    os.environ["CELL_BEGAN"] = "yes"


def cells(*values: int) -> dict[str, Any]:
    return {f"row {value}": partial(cell, value) for value in values}


def test_what_has_a_result_is_not_measured_again() -> None:
    assert list(missing_cells(cells(0, 1, 3), {"row 1": {}, "row 9": {}})) == ["row 0", "row 3"]


def test_each_is_kept_before_the_next_begins(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        measure_cells(cells(0, 1, 5, 3), partial(keep, tmp_path))
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["row 0", "row 1"]


def test_several_processes_measure_the_others_beside_a_refused_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        measure_cells(cells(0, 1, 2, 3), partial(keep, tmp_path), processes=2, begin=begin)
    results = [json.loads(path.read_text()) for path in sorted(tmp_path.iterdir())]
    assert [one["value"] for one in results] == [0, 1, 3] and {one["began"] for one in results} == {"yes"}
    assert os.getpid() not in {one["process"] for one in results}
    assert "row 2  failed: the loss is not finite" in caplog.text
