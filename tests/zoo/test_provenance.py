"""The commit on a card: that of sslkit's own checkout, and whether its files were changed."""

import subprocess
from pathlib import Path

import pytest

from sslkit.zoo import provenance

AS_SOMEONE = ("-c", "user.name=someone", "-c", "user.email=someone@example.org")


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", folder, *AS_SOMEONE, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A committed project with one file, and a tag that is nearer than any hash."""
    (tmp_path / "tracked.txt").write_text("as committed")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message=first")
    git(tmp_path, "tag", "v1")
    return tmp_path


def installed_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "__file__", str(folder / "sslkit" / "zoo" / "provenance.py"))


def test_the_commit_is_that_of_the_clone(checkout: Path, monkeypatch) -> None:
    installed_in(checkout, monkeypatch)
    assert provenance.commit() == git(checkout, "rev-parse", "HEAD")


def test_an_edited_clone_is_marked(checkout: Path, monkeypatch) -> None:
    installed_in(checkout, monkeypatch)
    (checkout / "tracked.txt").write_text("edited")
    assert provenance.commit() == git(checkout, "rev-parse", "HEAD") + "+"


def test_an_environment_inside_another_project_has_no_commit(checkout: Path, monkeypatch) -> None:
    installed_in(checkout / ".venv" / "lib" / "site-packages", monkeypatch)
    assert provenance.commit() is None
