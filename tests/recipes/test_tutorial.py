"""The tutorial's cells run in their order, on fewer images and for one epoch."""

import json
from pathlib import Path

import pytest

from sslkit import zoo

NOTEBOOK = Path(__file__).parents[2] / "recipes" / "tutorial.ipynb"
FEWER = {"range(len(clipart))": "range(0, len(clipart), 6)", "epochs = 10": "epochs = 1", "bootstrap=50": "bootstrap=5"}


def cells() -> list[dict]:
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]


def test_the_notebook_is_kept_without_outputs() -> None:
    assert NOTEBOOK.stat().st_size < 20_000
    assert [cell for cell in cells() if cell.get("outputs") or cell.get("execution_count")] == []


@pytest.mark.slow
def test_the_cells_run_in_order(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    code = ["".join(cell["source"]) for cell in cells() if cell["cell_type"] == "code"]
    for here, there in FEWER.items():
        assert sum(here in cell for cell in code) == 1, f"{here} is to be replaced by {there}"
        code = [cell.replace(here, there) for cell in code]
    ran: dict = {}
    for place, cell in enumerate(code):
        exec(compile(cell, f"code cell {place}", "exec"), ran)
    said = capsys.readouterr().out
    assert "P(best)" in said and "timm.create_model(" in said
    assert len(ran["results"]) == 6 and ran["problems"] == []  # two protocols of two runs and of raw pixels
    assert ran["features"].shape == (len(ran["batch"]), 128) and ran["features"].isfinite().all()
    assert ran["net"].__class__.__module__.startswith("timm.")
    assert len(zoo.open("runs/tutorial/zoo")) == 2 and Path("runs/tutorial/report.html").stat().st_size > 100_000
