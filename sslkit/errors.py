"""The error for bad user input, and the end of messages about unknown names."""

import difflib
from collections.abc import Iterable, Sequence

MOST_SHOWN = 200  # letters of a value in a message


class UserError(ValueError):
    """Bad input. The message says in one line what is wrong, where, and how to fix it.

    details: of a long list, the lines below that one. The recipes print it without a traceback and exit with code 2.
    """

    def __init__(self, message: str = "", details: Sequence[str] = ()) -> None:
        super().__init__("\n".join((message, *details)))
        self.lines = (message, *details)


class RunFailed(UserError):
    """A run that began and could not go on, such as on a full disk. The message says how to continue it.

    The recipes print it like a UserError and exit with code 1.
    """


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or the name of its class if the message is empty."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def format_value(value: object) -> str:
    """A value in an error's line: text in quotes, a number as it is, of an array its shape; cut where it is long."""
    shape = getattr(value, "shape", None)
    if shape:
        return f"{type(value).__name__} of shape {tuple(shape)}"
    text = " ".join(repr(value).split())
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}..."


def check_one_of(name: str, value: object, known: Sequence[str]) -> None:
    """Raises UserError unless `value`, given as option `name`, is one of `known`."""
    if value not in known:
        raise UserError(f"{name}={format_value(value)} is not possible: {nearest(str(value), known)}")


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is meant, if one is near.

    A known name that begins the given one, such as `linear` of `linear_probe`, is nearer than one of similar letters.
    """
    known = sorted(known)
    begun = sorted((option for option in known if len(option) > 2 and name.startswith(f"{option}_")), key=len)[-1:]
    return next(iter(begun or difflib.get_close_matches(name, known, n=1, cutoff=0.5)), None)


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error message: the nearest known name, then all of them."""
    known = sorted(known)
    hint = f"did you mean {close!r}? " if (close := closest(name, known)) else ""
    return f"{hint}known: {', '.join(known)}"
