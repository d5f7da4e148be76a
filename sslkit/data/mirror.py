"""Whether a mirror image keeps its class: that belongs to the data, and whatever mirrors images asks here."""

import re
from collections.abc import Sequence
from functools import cache

from sslkit.runtime.distributed import rank
from sslkit.terminal import say

_SIDES = {"left": "right", "right": "left"}
_TOKEN = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_A-Za-z]+")  # of turn_left, turn-left, TurnLeft


def is_mirrored(given: bool | None, classes: Sequence[str] | None, name: str, written: bool | None = None) -> bool:
    """Return whether images of a data set may be mirrored in training. One line says what its classes make doubtful.

    given: what the person says; None: yes, unless two classes are each other's name with left and right exchanged.
    classes: their names, or None. name: of the data set. written: in its manifest, which counts where nothing is given.
    """
    if given is not None and written not in (None, given):
        _tell_of_both(given, name)
    return _decide_mirroring(written if given is None else given, tuple(map(str, classes or ())), name)


@cache  # each line once in a process
def _tell_of_both(given: bool, name: str) -> None:
    asked, written = (str(value).lower() for value in (given, not given))
    say.line(f"note      the head of {name} says mirror={written}, and mirror={asked} is given, which counts")


@cache
def _decide_mirroring(given: bool | None, classes: tuple[str, ...], name: str) -> bool:
    sided = [label for label in classes if _SIDES.keys() & set(_tokens(label))]
    of_tokens = {_tokens(label): label for label in sided}
    swapped = {label: of_tokens.get(tuple(_SIDES.get(token, token) for token in _tokens(label))) for label in sided}
    pair = next(((label, other) for label, other in swapped.items() if other is not None), None)
    mirrored = pair is None if given is None else given
    if sided and given is not False and rank() == 0:
        first = f"classes {pair[0]} and {pair[1]}" if pair else f"class {sided[0]}"
        verb = "are" if mirrored else "are not"
        other = "mirror=false leaves it out" if mirrored else "mirror=true if their mirror image keeps its class"
        say.line(f"note      {name} has the {first}, and images {verb} mirrored in training: {other}")
    return mirrored


def _tokens(name: str) -> tuple[str, ...]:
    return tuple(token.lower() for token in _TOKEN.findall(name))
