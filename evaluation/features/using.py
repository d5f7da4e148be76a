"""The Python that loads a model which a command has judged, and that calls it."""

from pathlib import Path
from typing import Any

from evaluation.features.models import LoadedModel
from sslkit.backbones.words import is_untrained
from sslkit.decision import USE
from sslkit.terminal.say import columns


def use_it(asked: Any, model: LoadedModel, image_size: int | None, trust: Any = ()) -> list[str]:
    """Return the lines that load a model in Python; none for one that has no name on a command line.

    asked: what the model was loaded from. image_size, trust: as it was loaded with.
    """
    size = f"{model.in_chans} x {model.image_size} x {model.image_size}"
    if model.entry:
        mean, std = (", ".join(f"{value:.3g}" for value in values) for values in (model.mean, model.std))
        how = f"features = net(images), N x {size} in [0, 1], less mean {mean}, over std {std}"
        call = ("net = sslkit.ZooEntry.load(", repr(str(model.entry.folder)), f").backbone({_keyword('trust', trust)})")
    elif isinstance(asked, (str, Path)):
        how = f"features = net(net.normalize(pixels)), N x {size} uint8, or floats in [0, 1]"
        size_of = "" if is_untrained(model.name) else _keyword("image_size", image_size)
        call = ("net = evaluation.load_model(", ", ".join(filter(None, (repr(str(asked)), size_of))), ")")
    else:
        return []
    blank = " " * len(USE)
    line = USE + "".join(call)
    long = [f"{USE}{call[0]}", f"{blank}    {call[1]}", f"{blank}{call[2]}"]
    return [*([line] if len(line) <= columns() else long), blank + how]


def _keyword(name: str, value: Any) -> str:
    return f"{name}={value!r}" if value else ""
