"""Names of files and folders that are made of somebody's words: they stay in the folder that they are meant for."""

import re
from typing import Any

from sslkit.errors import UserError

LONGEST = 200  # bytes: most systems take 255, and "-2" or ".json.PID.part" come after


def check(name: Any, setting: str) -> str:
    """The name, once it is that of one file in one folder. setting: what gives it, for the message.

    Raises UserError for "", ".", "..", anything with a slash or an unprintable character, and more than 200 bytes.
    """
    if not isinstance(name, str) or name.strip() in ("", ".", "..") or not name.isprintable() or set(name) & set("/\\"):
        raise UserError(f"{setting}={name!r} must be the name of a folder: letters and more, without a slash")
    if len(name.encode()) > LONGEST:
        raise UserError(f"{setting}={name[:20]}... has {len(name.encode())} bytes, a name may have {LONGEST}")
    return name


def made_of(text: str) -> str:
    """A name of one file from any text: other characters than letters, digits and -+._ become one _."""
    name = re.sub(r"[^\w.+-]+", "_", text)
    return name if name.strip(".") else "_"
