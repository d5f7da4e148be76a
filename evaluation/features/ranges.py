"""Images of more than 8 bits, read as in the training of the model that sees them."""

import warnings
from typing import Any

from sslkit.data.decode.scale import Range, written
from sslkit.data.images import Images


def as_trained(images: Images, trained: Range | None, model: str, **options: Any) -> Images:
    """Return `images.at(**options)`, pixels of more than 8 bits by the range of the training, unless one was given.

    trained: None if it is not known. A warning says where it is another than was found or given.
    """
    found = images.at(**options, range=trained)
    if trained is None or images.range in (None, trained):
        return found
    own, mine = written(images.range), written(trained)
    warnings.warn(
        f"{images.name}: read by data.range={mine}, as in the training of {model}, not by its own, {own}"
        if found.range == trained
        else f"{images.name}: read by data.range={own}, as given, and {model} was trained with {mine}",
        stacklevel=1,
    )
    return found
