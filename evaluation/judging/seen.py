"""Tell whether a network saw the images that it is judged on in its pretraining, by the content in its card."""

from collections.abc import Mapping
from typing import Any

from evaluation.protocols.base import Subject, Task
from sslkit import objectives
from sslkit.data.images import Images
from sslkit.data.sources import open_images
from sslkit.errors import UserError
from sslkit.method import parse


def seen(subject: Subject, task: Task) -> str:
    """Return a note on test images that were the training images of the network; "" where that is not known.

    They are the same if the names and contents of all files, or all pixels, are; of a source whose test images are held
    out of its only split, those of the whole source.
    """
    known = subject.model.card.get("data", {})
    if not known.get("content") or subject.entry:
        return ""
    images = _judged(subject, task)
    if images is None or len(images) != known.get("images") or images.content_digest != known["content"]:
        return ""
    return f"the network saw these images in its pretraining, {_labels(subject.model.card)} their labels"


def _judged(subject: Subject, task: Task) -> Images | None:
    """The images that a task judges on, or all that they are a part of, also those without a label.

    None of a source that has no such split, and of one that is no set of images, such as films.
    """
    try:
        split = "train" if subject.note else subject.novel_split if task.name == "few_shot" else "test"
        return subject.once(("whole", split), lambda: open_images(subject.data, split=split))
    except UserError:
        return None


def _labels(card: Mapping[str, Any]) -> str:
    """ "with" for a method that learns from labels, "without" for others."""
    try:
        return "with" if objectives.find(parse(card["method"])[0]).needs_labels else "without"
    except (UserError, KeyError):  # of another version, or of one's own code
        return "maybe with"
