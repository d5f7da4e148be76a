"""Names of models in pictures: wrapped where they have punctuation, and shortened if they are very long."""

import re

LETTERS, LINES = 30, 2  # of a line, and lines of a name


def wrapped(name: str, letters: int = LETTERS, lines: int = LINES) -> str:
    """Return a name in at most two lines of about 30 letters, broken after its punctuation."""
    parts = re.split(r"(?<=[-_+/.: ])", short(name, letters * lines - lines))
    found = [""]
    for part in (piece for long in parts for piece in re.findall(f".{{1,{letters}}}", long)):
        if len(found[-1]) + len(part) <= letters:
            found[-1] += part
        else:
            found.append(part)
    if len(found) > lines:  # punctuation was too rare
        whole = "".join(found)
        found = [whole[start : start + letters] for start in range(0, len(whole), letters)]
    return "\n".join(found)


def short(name: str, letters: int = LETTERS + LETTERS // 2) -> str:
    """Return a name of at most so many letters; beginning and end stay."""
    half = (letters - 1) // 2
    return name if len(name) <= letters else f"{name[: letters - 1 - half]}…{name[-half:]}"
