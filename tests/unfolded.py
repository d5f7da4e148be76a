"""Undo the folding of printed lines, for tests on what is said and not on where a line ends."""

import re


def unfolded(said: str) -> str:
    """A printed text with each command, and each text that goes on below its label, on one line."""
    return re.sub(r"\n {8,}(?=\S)", " ", re.sub(r" \\\n\s*", " ", said))
