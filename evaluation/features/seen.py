"""Tell whether a network saw some images in its pretraining, by the content in its card."""

from collections.abc import Mapping
from typing import Any

from evaluation.datasets import Split, names
from sslkit import objectives
from sslkit.composition.method import parse
from sslkit.data.images import Images
from sslkit.data.sources.named import open_images
from sslkit.errors import UserError


def seen(card: Mapping[str, Any], images: Images | None) -> str:
    """Return a note on images that were the training images of a network; "" where that is not known.

    They are the same if the names and contents of all files, or all pixels, are. card: of the network's entry.
    images: all of a split; None if they are not known.
    """
    known = card.get("data", {})
    if images is None or not known.get("content") or len(images) != known.get("images"):
        return ""
    if images.content_digest != known["content"]:
        return ""
    return f"the network saw these images in its pretraining, {_labels(card)} their labels"


def whole(data: Any, split: str) -> Images | None:
    """Return all images of a split, also those without a label; for one that is drawn, all that it is drawn from.

    None of a published set, and of one that is no set of images, such as films.
    """
    if isinstance(data, Split):
        return data.images
    if isinstance(data, str) and data.partition(":")[0] in names():
        return None
    for one in (split, "train"):
        try:
            return open_images(data, split=one)
        except UserError:  # no such split
            continue
    return None


def _labels(card: Mapping[str, Any]) -> str:
    """ "with" for a method that learns from labels, "without" for others."""
    try:
        return "with" if objectives.find(parse(card["method"])[0]).needs_labels else "without"
    except (UserError, KeyError):  # of another version, or of one's own code
        return "maybe with"
