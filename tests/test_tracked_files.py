"""What the repository holds: no large files but the embedded data, and nothing that runs leave behind."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LARGEST = 1_000_000  # bytes
LARGE = "sslkit/data/embedded/"


@pytest.fixture(scope="module")
def tracked() -> list[str]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone")
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=True).stdout
    return [name for name in listed.decode().split("\0") if name and (ROOT / name).is_file()]


def test_only_the_embedded_data_are_large(tracked: list[str]) -> None:
    large = [name for name in tracked if (ROOT / name).stat().st_size > LARGEST]
    assert [name for name in large if not name.startswith(LARGE)] == []
    assert len(tracked) > 500 and any(name.startswith(LARGE) for name in large), "git lists the files"


def test_no_folder_of_runs_is_tracked(tracked: list[str]) -> None:
    assert [name for name in tracked if "runs" in Path(name).parts[:-1]] == []
