"""The Python that loads a model which a command has judged, and that calls it."""

from pathlib import Path
from typing import Any

from sslkit.backbones.words import is_untrained
from sslkit.decision import USE
from sslkit.models.model import Model
from sslkit.models.using import keywords, lines_to_load


def use_it(asked: Any, model: Model, image_size: int | None, trust: Any = ()) -> list[str]:
    """Return the lines that load a model in Python; none for one that has no name on a command line.

    asked: what the model was loaded from. image_size, trust: as it was loaded with.
    """
    word = str(model.entry.folder) if model.entry and not isinstance(asked, str) else asked
    if not isinstance(word, (str, Path)):
        return []
    own_size = None if is_untrained(model.name) else image_size
    load = lines_to_load(USE, str(word), keywords(image_size=own_size, trust=trust))
    size = f"{model.in_chans} x {model.image_size} x {model.image_size}"
    outputs = "features" if model.classifier is None else "outputs"
    return [*load, f"{' ' * len(USE)}{outputs} = model(pixels), N x {size} uint8, or floats in [0, 1]"]
