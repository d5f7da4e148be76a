"""The script that runs the numerical tests on other code paths names tests that there are."""

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "tests" / "on_other_processors.sh"


def test_every_path_and_test_that_it_names_is_there() -> None:
    text = SCRIPT.read_text()
    paths = re.findall(r"^  (?:--ignore=)?(tests/\S+)$", text, re.MULTILINE)
    assert len(paths) > 25 and all((ROOT / path).exists() for path in paths)
    for path, name in re.findall(r"--deselect=(\S+)::(\w+)", text):
        assert f"def {name}(" in (ROOT / path).read_text()
    for needed in ("evaluation/protocols/test_knn.py", "numerics/test_neighbours.py", "evaluation/transferability"):
        assert f"tests/{needed}" in paths


def test_it_can_be_run_and_the_continuous_integration_runs_it() -> None:
    assert os.access(SCRIPT, os.X_OK) and "tests/on_other_processors.sh" in (ROOT / ".ci" / "run").read_text()
    assert subprocess.run(["bash", "-n", str(SCRIPT)], check=False).returncode == 0
