"""Names of models in pictures: wrapped where they have punctuation, and shortened if they are very long."""

import re

LETTERS, LINES = 30, 2  # of a line, and lines of a name


def wrapped(name: str, letters: int = LETTERS, lines: int = LINES) -> str:
    """Return a name in at most two lines of about 30 letters, broken after its punctuation."""
    parts = re.split(r"(?<=[-_+/.: ])", short(name, letters * lines - lines))
    broken = [""]
    for part in (piece for long in parts for piece in re.findall(f".{{1,{letters}}}", long)):
        if len(broken[-1]) + len(part) <= letters:
            broken[-1] += part
        else:
            broken.append(part)
    if len(broken) > lines:  # punctuation was too rare
        broken = re.findall(f".{{1,{letters}}}", "".join(broken))
    return "\n".join(broken)


def short(name: str, letters: int = LETTERS + LETTERS // 2) -> str:
    """Return a name of at most so many letters; beginning and end stay."""
    half = (letters - 1) // 2
    return name if len(name) <= letters else f"{name[: letters - 1 - half]}…{name[-half:]}"
