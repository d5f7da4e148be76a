"""Tables fit the width: folded cells, names on lines of their own, blocks of columns; nothing is lost or cut."""

import csv
import re
from itertools import cycle
from pathlib import Path

import pytest

from sslkit.text_tables import aligned, below_names, markdown, write_csv

SCORE = "1. 0.3441 ± 0.028"


def lines(names: int, metrics: int) -> list[list[str]]:
    return [
        ["model", *(f"metric{i}" for i in range(metrics))],
        *([f"{n}" * 30, *[SCORE] * metrics] for n in range(names)),
    ]


def test_a_table_that_fits_is_in_columns() -> None:
    assert aligned([["a", "n"], ["word", "1"], ["b", "12"]], [1]).splitlines() == [
        "a      n",
        "----  --",
        "word   1",
        "b     12",
    ]


@pytest.mark.parametrize("metrics", [2, 3, 4, 9, 20])
@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_and_every_cell_is_there(metrics: int, width: int) -> None:
    shown = aligned(lines(3, metrics), width=width)
    assert max(map(len, shown.splitlines())) <= width
    assert shown.count("1. 0.3441") == shown.count("± 0.028") == 3 * metrics
    assert all(f"metric{i}" in shown.split() for i in range(metrics)) and all(str(n) * 30 in shown for n in range(3))


def test_names_stand_above_their_cells() -> None:
    assert below_names([["name", "a", "b"], ["x" * 9, "1", "22"]], [1, 2], 20).splitlines() == [
        "name", "  a   b", "  -  --", "x" * 9, "  1  22",
    ]  # fmt: skip


def test_a_row_of_one_cell_is_a_heading() -> None:
    shown = aligned([["a", "b"], ["a heading that is wide"], ["1", "2"]])
    assert shown.splitlines() == ["a  b", "-  -", "a heading that is wide", "1  2"]


def test_markdown() -> None:
    assert markdown([["a", "n"], ["x|y", "1"]], [1]) == "| a | n |\n| --- | ---: |\n| x\\|y | 1 |"


def test_a_name_is_no_formula_of_a_spreadsheet(tmp_path: Path) -> None:
    path, names = tmp_path / "a.csv", ["=1+1", "+a", "-b", "@c", "\td", "\re", "\x1bf", "＝h", "-1+1", "g=1", "", "-"]
    write_csv(path, [("name", "value"), *((name, value) for name, value in zip(names, cycle([-0.5, "-0.5"])))])
    with path.open(encoding="utf-8", newline="") as file:
        _, *rows = csv.reader(file)
    assert [name for name, _ in rows] == [*(f"'{name}" for name in names[:9]), "g=1", "", "'-"]
    assert {value for _, value in rows} == {"-0.5"}


def test_every_table_with_names_is_written_so() -> None:
    """metrics.csv of a run has the names of loss terms, which are code's."""
    root = Path(__file__).parents[1]
    files = [path for package in ("sslkit", "evaluation") for path in (root / package).rglob("*.py")]
    writing = {path.name for path in files if re.search(r"csv\.(Dict)?[wW]riter", path.read_text(encoding="utf-8"))}
    assert writing == {"text_tables.py", "history.py"}


def test_a_line_break_in_a_cell_begins_no_line() -> None:
    for shown in (aligned([["a", "b"], ["x\ny", "1"]]), below_names([["a", "b"], ["x\ny", "1"]])):
        assert "x\\ny" in shown
    assert "x\\ny" in markdown([["a"], ["x\ny"]])
