"""Ready-made weights as the source of an export: the words of `init=` that are no zoo entry."""

import re
from dataclasses import replace
from pathlib import Path

from sslkit.backbones import network_lines, wheels, words
from sslkit.data.resizing import Resizing
from sslkit.errors import UserError
from sslkit.zoo.entry import ZooEntry
from sslkit.zoo.exporting.base import Source, about_card
from sslkit.zoo.start import start


def source(word: str) -> Source:
    """Return the network that a word of `init=` names, with its weights. Raises UserError as `start` does."""
    if words.kind_of(word) not in ("timm", "published") or "@" in word:
        raise UserError(f"{word} cannot be exported; in Python: model = sslkit.load({word!r})")
    config = _config(word)
    channels, size = config.get("input_size", (3, 224))[:2]
    body = start(word, image_size=size, in_chans=channels, frames=None)
    mean, std = body.recipe.origin.normalize
    card = {
        "backbone": {"name": word, "lines": body.recipe.lines, "image_size": size, "in_chans": channels},
        "init": {"source": body.recipe.origin.source, "sha256": body.recipe.origin.sha256},
        "normalize": {"mean": mean, "std": std},
    }
    about = about_card(card, name_of(word), body.width)
    about = replace(about, **(Resizing.of_timm(config, None).of_card() if config else {}))
    net = body.net.eval()
    return Source(ZooEntry(Path(word), card), net, network_lines.parse(body.recipe.lines), about)


def name_of(word: str) -> str:
    """Return the name of a file for the network that a word names, without the file of its weights."""
    return word if word in wheels.WHEELS else re.sub(r"[^\w.-]+", "_", words.parse(word, word).network).strip("_")


def _config(word: str) -> dict[str, object]:
    """Return timm's preprocessing of a word; {} for published weights and for names that `start` refuses."""
    import timm

    parts = words.parse(word, word)
    is_known = parts.kind == "timm" and timm.is_model(parts.name)
    return timm.get_pretrained_cfg(parts.name).to_dict() if is_known else {}
