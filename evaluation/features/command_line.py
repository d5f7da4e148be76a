"""Models and options as the words of a command line that a person can copy and run."""

from evaluation.features.models import LoadedModel
from sslkit.terminal.say import words

__all__ = ["name_of", "words"]


def name_of(asked: object, model: LoadedModel) -> str:
    """Return the name of a model on a command line: its entry's folder, or the word that asked for it."""
    if model.entry:
        return str(model.entry.folder)
    return asked if isinstance(asked, str) else model.name
