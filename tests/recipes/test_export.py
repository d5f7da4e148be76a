"""`export`: the file, and the lines that load it, which run as they are printed."""

import subprocess
import sys
from pathlib import Path

import pytest
import random_entries

from sslkit.zoo import exporting


@pytest.mark.parametrize("to", ["timm", pytest.param("hf", marks=pytest.mark.nightly)])
def test_the_printed_lines_load_what_was_written(to: str, typed, tmp_path: Path) -> None:
    entry = random_entries.made(tmp_path, "mine", "fashion_mnist")
    done = typed("export", f"checkpoint={entry}", f"to={to}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    path = next((entry / "exports").iterdir())
    assert str(path) in done.stdout
    code = done.stdout.partition("without sslkit:\n")[2] + "print(type(net).__name__)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert loaded.stdout == "ResNet\n", loaded.stderr


def test_what_is_missing_or_unknown_is_said(typed, tmp_path: Path) -> None:
    assert typed("export", cwd=tmp_path).stderr == (
        "error: give checkpoint=, as in: python recipes/export.py checkpoint=runs/zoo/NAME to=hf\n"
    )
    done = typed("export", "checkpoint=nowhere", "to=hff", cwd=tmp_path)
    assert done.returncode == 2 and all(name in done.stderr for name in exporting.names())
    done = typed("export", "checkpoint=nowhere", "to=hf", cwd=tmp_path)
    assert done.returncode == 2 and "nowhere is no zoo entry" in done.stderr
