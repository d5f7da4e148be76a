"""Images whose stored values are read as in the training of the model that sees them."""

from typing import Any

from sslkit.data.decode.scale import Scale
from sslkit.data.images import Images
from sslkit.terminal import say


def as_trained(images: Images, trained: Scale | None, model: str, **options: Any) -> Images:
    """Return `images.at(**options)`, stored values by the scale of the training, as far as none was given.

    trained: None if it is not known. A warning says where it is another than was found or given.
    """
    scaled = images.at(**options, scale=trained)
    if trained is None:
        return scaled
    stored, read = images.scale.words(), scaled.scale.words()
    for name, mine in trained.or_else(images.scale).within(images.scale).words().items():
        if mine != stored[name]:
            say.warn(
                f"{images.name}: read by {mine}, as in the training of {model}, not by its own, {_value(stored[name])}"
                if read[name] == mine
                else f"{images.name}: read by {stored[name]}, as given, and {model} was trained with {_value(mine)}",
                stacklevel=1,
            )
    return scaled


def _value(word: str) -> str:
    return word.partition("=")[2]
