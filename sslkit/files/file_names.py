"""File and folder names from user input, kept inside their folder."""

import re
from typing import Any

from sslkit.errors import UserError

LONGEST = 200  # bytes: most systems allow 255, and "-2" or ".json.PID.part" may be added


def check(name: Any, setting: str) -> str:
    """Return `name` if it is the name of one file in a folder. setting: the setting's name, for the message.

    Raises UserError for "", ".", "..", anything with a slash or an unprintable character, and more than 200 bytes.
    """
    if not isinstance(name, str) or name.strip() in ("", ".", "..") or not name.isprintable() or set(name) & set("/\\"):
        raise UserError(f"{setting}={name!r} must be the name of a folder, without a slash")
    if len(name.encode()) > LONGEST:
        raise UserError(f"{setting}={name[:20]}... has {len(name.encode())} bytes, a name may have {LONGEST}")
    return name


def made_of(text: str) -> str:
    """The name of one file from any text: each run of characters other than letters, digits and -+._ becomes one _."""
    name = re.sub(r"[^\w.+-]+", "_", text)
    return name if name.strip(".") else "_"
