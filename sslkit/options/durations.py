"""Times as people write them: `90s`, `30min`, `2h`, or a number of seconds."""

import math
import re

from sslkit.errors import UserError, format_value

UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


def seconds_of(name: str, value: str | float) -> float:
    """Return the seconds that a value says. name: of the option. Raises UserError for any other text, and for 0."""
    match = re.fullmatch(r"\s*([0-9.]+)\s*([a-z]*)\s*", str(value))
    try:
        seconds = float(match[1]) * UNITS[match[2] or "s"] if match else math.nan
    except (ValueError, KeyError):  # 1.2.3, or another unit
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise UserError(f"{name}={format_value(value)} is no time: write 90s, 30min or 2h")
    return seconds
