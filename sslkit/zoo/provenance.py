"""What a card says of when and by what it was made: the date, the commit of this checkout, versions of packages."""

import datetime
import importlib.metadata
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

PACKAGES = ("sslkit", "torch", "torchvision", "timm", "pytorch-lightning", "numpy", "faiss-cpu")


def provenance() -> dict[str, Any]:
    """The card's fields date, commit and versions."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "versions": {name: _version(name) for name in PACKAGES},
    }


def commit() -> str | None:
    """The commit of the checkout that sslkit runs from, with "+" if files were changed since.

    None for an installed package, also one inside another project's checkout, and without git.
    """
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():  # a file in a worktree
        return None
    words = ["describe", "--always", "--dirty=+", "--abbrev=40", "--exclude=*"]  # the whole hash, and no tag
    try:
        described = subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return described.stdout.strip() or None


@cache
def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
