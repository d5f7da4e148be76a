"""Tables fit the width: folded cells, names on lines of their own, blocks of columns; nothing is lost or cut."""

import pytest

from sslkit.terminal.tables import align, below_names, markdown

SCORE = "1. 0.3441 ± 0.028"


def lines(names: int, metrics: int) -> list[list[str]]:
    return [
        ["model", *(f"metric{i}" for i in range(metrics))],
        *([f"{n}" * 30, *[SCORE] * metrics] for n in range(names)),
    ]


def test_a_table_that_fits_is_in_columns() -> None:
    assert align([["a", "n"], ["word", "1"], ["b", "12"]], [1]).splitlines() == [
        "a      n",
        "----  --",
        "word   1",
        "b     12",
    ]


@pytest.mark.parametrize("metrics", [2, 3, 4, 9, 20])
@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_and_every_cell_is_there(metrics: int, width: int) -> None:
    shown = align(lines(3, metrics), width=width)
    assert max(map(len, shown.splitlines())) <= width
    assert shown.count("1. 0.3441") == shown.count("± 0.028") == 3 * metrics
    assert all(f"metric{i}" in shown.split() for i in range(metrics)) and all(str(n) * 30 in shown for n in range(3))


def test_names_stand_above_their_cells() -> None:
    assert below_names([["name", "a", "b"], ["x" * 9, "1", "22"]], [1, 2], 20).splitlines() == [
        "name", "  a   b", "  -  --", "x" * 9, "  1  22",
    ]  # fmt: skip


def test_a_row_of_one_cell_is_a_heading() -> None:
    shown = align([["a", "b"], ["a heading that is wide"], ["1", "2"]])
    assert shown.splitlines() == ["a  b", "-  -", "a heading that is wide", "1  2"]


def test_markdown() -> None:
    assert markdown([["a", "n"], ["x|y", "1"]], [1]) == "| a | n |\n| --- | ---: |\n| x\\|y | 1 |"


def test_a_line_break_in_a_cell_begins_no_line() -> None:
    for shown in (align([["a", "b"], ["x\ny", "1"]]), below_names([["a", "b"], ["x\ny", "1"]])):
        assert "x\\ny" in shown
    assert "x\\ny" in markdown([["a"], ["x\ny"]])
