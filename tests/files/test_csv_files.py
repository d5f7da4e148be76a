"""CSV files: no cell is a formula, and all tables with foreign names are written so."""

import csv
import re
from itertools import cycle
from pathlib import Path

from sslkit.files.writing import write_csv


def test_a_name_is_no_formula_of_a_spreadsheet(tmp_path: Path) -> None:
    path, names = tmp_path / "a.csv", ["=1+1", "+a", "-b", "@c", "\td", "\re", "\x1bf", "＝h", "-1+1", "g=1", "", "-"]
    write_csv(path, [("name", "value"), *((name, value) for name, value in zip(names, cycle([-0.5, "-0.5"])))])
    with path.open(encoding="utf-8", newline="") as file:
        _, *rows = csv.reader(file)
    assert [name for name, _ in rows] == [*(f"'{name}" for name in names[:9]), "g=1", "", "'-"]
    assert {value for _, value in rows} == {"-0.5"}


def test_every_table_with_names_is_written_so() -> None:
    root = Path(__file__).parents[2]
    files = [path for package in ("sslkit", "evaluation") for path in (root / package).rglob("*.py")]
    writing = {path.name for path in files if re.search(r"csv\.(Dict)?[wW]riter", path.read_text(encoding="utf-8"))}
    assert writing == {"writing.py", "head.py"}  # the latter in memory, to be read
