"""Refuse data that are nowhere before the large imports of a command, which take seconds."""

from collections.abc import Sequence

from sslkit.cli import process

from sslkit.data.sources.names import check_plain
from sslkit.errors import UserError
from sslkit.terminal.say import printable


def check_data(words: Sequence[str]) -> None:
    """End the process in one line if the last data=NAME of a training names nothing."""
    given = [value for key, _, value in (word.partition("=") for word in words) if key in ("data", "data.source")]
    try:
        for source in given[-1:]:
            check_plain(source)
    except UserError as error:
        process.end(process.REFUSED, f"error: {printable(str(error), keep='')}")
