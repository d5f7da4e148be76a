"""Times as people write them: `90s`, `30min`, `2h`, `1.5d`, or a number of minutes."""

import re

from sslkit.errors import UserError

UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


def seconds_of(name: str, text: str | float) -> float:
    """Return the seconds that an option says. name: of the option. Raises UserError for what is no time, and for 0."""
    match = re.fullmatch(rf"\s*([\d.]+)\s*({'|'.join(UNITS)}|)\s*", str(text))
    try:
        seconds = float(match[1]) * UNITS[match[2] or "min"]
    except (TypeError, ValueError):  # no such form, or 1.2.3
        seconds = 0.0
    if seconds <= 0:
        raise UserError(f"{name}={text}: give a time such as 90s, 30min or 2h")
    return seconds
