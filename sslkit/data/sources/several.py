"""Several folders as one text: `A,B`."""

import os
from pathlib import Path
from typing import Any

from sslkit.errors import UserError


def joined(source: Any) -> Any:
    """A list of folders as the one text that names them, `A,B`; anything else unchanged.

    Raises UserError for an empty list, and for a name in it that has a comma.
    """
    if not isinstance(source, (list, tuple)):
        return source
    if not source or not all(isinstance(one, (str, Path)) for one in source):
        raise UserError(f"data={source!r:.200} is no list of folders: give their paths")
    words = [os.fspath(one) for one in source]
    if len(words) > 1 and any("," in word for word in words):
        name = next(word for word in words if "," in word)
        raise UserError(f"{name!r} has a comma, and cannot be one of several: rename it, or list its files in a .txt")
    return ",".join(words)
