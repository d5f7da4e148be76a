"""The README.md of a hub folder: the network, how to load it, and its results."""

from typing import Any

from sslkit.zoo.exporting.base import Source
from sslkit.zoo.table import NOTES, measured


def model_card(source: Source, load: list[str]) -> str:
    """Markdown with front matter. load: lines of Python that load the folder without sslkit."""
    about, card = source.about, source.entry.card
    return "\n".join(
        [
            *_front_matter(card),
            f"# {about.name}",
            "",
            f"A {card['backbone']['name']} that gives {about.width} features of images of {about.image_size} pixels "
            f"with {about.in_chans} channel{'s' if about.in_chans != 1 else ''}, pretrained with sslkit"
            + (f" by `{about.method}`." if about.method else "."),
            "",
            "## Load it",
            "",
            "```python",
            *load,
            "transform = timm.data.create_transform(**timm.data.resolve_model_data_config(net))",
            "```",
            "",
            "From the hub, write `hf-hub:USER/NAME` for `local-dir:...`. " + _stem(source),
            "",
            *_training(card),
            *_numbers(source),
        ]
    )


def _front_matter(card: dict[str, Any]) -> list[str]:
    words = [word for word in card.get("method", "").split("+") if word]
    tags = [f"- {word}" for word in ("timm", "sslkit", "self-supervised", *words)]
    return ["---", "library_name: timm", "pipeline_tag: image-feature-extraction", "tags:", *tags, "---", ""]


def _stem(source: Source) -> str:
    if not source.network.change_lines:
        return "The architecture is timm's as it stands."
    return (
        f"The stem was changed for small images ({source.entry.card['backbone'].get('stem', 'see the lines')}): "
        "without the lines after `create_model` the weights load, but the features differ from those measured."
    )


def _training(card: dict[str, Any]) -> list[str]:
    data = card.get("data", {})
    facts = {
        "method": card.get("method"),
        "data": data.get("source"),
        "training images": data.get("images"),
        "licence of the data": data.get("licence"),
        "epochs": card.get("epochs"),
        "seed": card.get("seed"),
        "date": card.get("date"),
        "values": _values(data.get("range")),
        "pixels": f"in [0, 1], mean {card['normalize']['mean']}, std {card['normalize']['std']} by channel",
    }
    rows = [f"| {name} | {value} |" for name, value in facts.items() if value is not None]
    return ["## Training", "", "| | |", "|---|---|", *rows, ""]


def _values(found: list[float] | None) -> str | None:
    return found and f"pixels of more than 8 bits: {found[0]:g} to {found[1]:g} become 0 to 1"


def _numbers(source: Source) -> list[str]:
    """The entry's results, each with its source; a sentence if there are none."""
    found, before = measured(source.entry), source.entry.card.get("before", {})
    if not found:
        return ["## Numbers", "", "Nothing was measured.", ""]
    images = source.entry.card.get("after", {}).get("n")
    rows = []
    for name, number in found.items():
        shown = f"{number.value:.1f}" if number.key == "rankme" else f"{100 * number.value:.1f} %"
        untrained = f"{100 * before[number.key]:.1f} %" if number.key in before else "-"
        rows.append(f"| {name} | {shown} | {untrained} | {NOTES.get(number.mark, 'at the end of training')} |")
    trained = images and any(number.mark != "*" for number in found.values())
    counted = [f"At the end of training: quick kNN and quick probe on {images:,.0f} images.", ""] if trained else []
    head = ["| | this network | before | measured |", "|---|---:|---:|---|"]
    return ["## Numbers", "", *head, *rows, "", *counted]
