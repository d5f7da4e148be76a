"""The card of a zoo entry: its JSON Schema, reading and writing. Fields beyond the schema are kept."""

import json
import math
from pathlib import Path
from typing import Any

from sslkit.backbones.timm_allowed import MAX_CHANNELS, MAX_SIZE
from sslkit.data.resizing import MODES
from sslkit.errors import UserError
from sslkit.files import reading
from sslkit.zoo.classifier import LINKS

# Beyond these limits one input would fill the memory, and a file of a few bytes could ask for it.
MAX_FRAMES = 1024
MAX_INPUT = 2**28  # numbers in one image or clip, 1 GiB
FORMAT = 1  # raised when an older card would be misread, not when a field is added


def _field(kind: str | list[str], said: str, **more: Any) -> dict[str, Any]:
    """A schema with the expectation of its error message: `expected {said}`."""
    return {"type": kind, "description": said, **more}


def _object(said: str, *required: str, **fields: dict[str, Any]) -> dict[str, Any]:
    return _field("object", said, properties=fields, required=list(required))


def _count(said: str, most: int) -> dict[str, Any]:
    return _field("integer", f"{said}, at least 1 and at most {most:,}", minimum=1, maximum=most)


_NUMBER = _field("number", "a number")
_CHANNELS = _field("array", "one number for each channel", items=_NUMBER, minItems=1)
_RANGE = _field(["array", "null"], "two numbers or null", items=_NUMBER, minItems=2, maxItems=2)
_FEATURES = _field("array", "one number for each feature", minItems=1)
_INPUT = {
    "image_size": _count("a whole number of pixels", MAX_SIZE),
    "in_chans": _count("a whole number of channels", MAX_CHANNELS),
    "frames": _count("the frames of a clip", MAX_FRAMES),
    "stride": _count("the frames from one frame of a clip to the next", MAX_FRAMES),
}
_RESIZING = {
    "crop_pct": _field("number", "a share above 0 and up to 1", exclusiveMinimum=0, maximum=1),
    "interpolation": _field("string", "bilinear or bicubic", enum=["bilinear", "bicubic"]),
    "crop_mode": _field("string", "center or squash", enum=list(MODES)),
}
_HALF_WIDTHS = _field("array", "half widths of intervals", items=_NUMBER)
_KEPT = {  # of a model that predicts
    "classes": _field("array", "the classes' names", items=_field("string", "a name"), minItems=1),
    "data": _field("string", "the name or path of the data"),
    "made": _field("string", "how it was made, in words"),
    "measured": _object(
        "its accuracy: metric, value, n",
        *("metric", "value", "n"),
        metric=_field("string", "the metric's name"),
        value=_NUMBER,
        low=_NUMBER,
        high=_NUMBER,
        n=_count("a number of images", 2**62),
        images=_field("string", "which images, in words"),
    ),
}
_SIDES = _field("array", "numbers from 1 to 65,536", items=_count("a number", 2**16), minItems=1, maxItems=64)
_GAIN = _object(
    "a difference on the same images: mean, low, high, n, units",
    *("mean", "low", "high"),
    **dict.fromkeys(("mean", "low", "high", "n", "units"), _NUMBER),
)
_MEASURED = dict.fromkeys(("knn", "probe", "inter", "intra", "n", "units"), _NUMBER)

SCHEMA: dict[str, Any] = _object(
    "a JSON object",
    format=_field("integer", f"the whole number {FORMAT}", minimum=1),
    method=_field("string", 'a method such as "byol+dsa"', minLength=1),
    labels=_field("boolean", "whether the loss reads labels"),
    options=_field("object", "the method's options"),
    config=_field("object", "the settings of the run"),
    backbone=_object(
        "the network: name, lines, image_size, in_chans",
        *("name", "lines", "image_size", "in_chans"),
        name=_field("string", "the network's name", minLength=1),
        lines=_field("array", "lines of Python that bind `net`", items=_field("string", "a line of Python")),
        stem=_field("string", "the change for small images, in words"),
        width=_field("integer", "the number of features", minimum=1),
        **_INPUT,
    ),
    init=_object(
        "the weights that the run started from: source and sha256",
        *("source", "sha256"),
        source=_field("string", "the word that named the weights", minLength=1),
        sha256=_field("string", "64 hexadecimal digits", pattern="^[0-9a-f]{64}$"),
        notes=_field("array", "lines on the loading", items=_field("string", "a line")),
    ),
    load=_field("string", "Python that loads the backbone"),
    normalize=_object("mean and std of the pixels", "mean", "std", mean=_CHANNELS, std=_CHANNELS),
    resizing=_field(
        "object",
        "how pictures become squares, where not as usual: crop_pct, interpolation, crop_mode",
        properties=dict(_RESIZING),
        additionalProperties=False,
    ),
    data=_object(
        "the training data: source and more",
        "source",
        source=_field("string", "the name or path of the data"),
        images=_field("integer", "a number of images", minimum=0),
        digest=_field("string", "the data's digest"),
        licence=_field(["string", "null"], "the data's licence or null"),
        range=_RANGE,
        opacity=_field(["boolean", "null"], "true, false or null"),
        fill=_field(["number", "string", "null"], "a number, a word or null"),
        held_out=_field(["boolean", "null"], "true, false or null"),
    ),
    balance=_field("object", "the balance that was chosen of regularisers, by their name"),
    seed=_field("integer", "a whole number"),
    epochs=_field("number", "a number of epochs", minimum=0),
    date=_field("string", "a date such as 2026-11-21T16:28:47+00:00"),
    commit=_field(["string", "null"], "a commit or null"),
    versions=_field("object", "versions by package"),
    seconds=_field("number", "seconds of training"),
    computed=_object(
        "the device, processes, threads and precision of the run",
        device=_field("string", "cpu or a GPU's name"),
        processes=_field("integer", "a number of processes", minimum=1),
        threads=_field("integer", "the threads of a process", minimum=1),
        precision=_field("string", "a precision such as float32"),
    ),
    before=_object("numbers of the untrained network", **_MEASURED),
    after=_object("numbers of the trained network", **_MEASURED),
    gains=_field("object", "differences to the start, by measure", additionalProperties=_GAIN),
    kept=_object("the best epoch, and how many were trained", "epoch", "of", epoch=_NUMBER, of=_NUMBER, score=_NUMBER),
    interpolation=_object(
        "what lies between the start and the end: share, and how it was chosen",
        "share",
        share=_field("number", "the end's share of the weights, from 0 to 1", minimum=0, maximum=1),
        scores=_field("object", "the worth of each share", additionalProperties=_NUMBER),
        images=_field("integer", "a number of images", minimum=0),
        start=_field("string", "the word or folder of the start"),
        end=_field("string", "the folder of the end"),
        over_start=_GAIN,
        over_end=_GAIN,
    ),
    diagnostics=_object("diagnostics by name", rankme=_NUMBER, uniformity=_NUMBER),
    features=_object("mean and std of the features", "mean", "std", mean=_FEATURES, std=_FEATURES),
    source_heads=_field(
        "object",
        "source heads by name",
        additionalProperties=_object(
            "the recipe of a source head: classes, data and more",
            *("classes", "data"),
            classes=_field("integer", "a number of classes, at least 2", minimum=2),
            data=_field("string", "the name or path of the data"),
            made=_field("string", "how it was made, in words"),
        ),
    ),
    classifier=_object(
        "the classifier: classes, link and data",
        *("classes", "link", "data"),
        link=_field("string", f"one of {', '.join(LINKS)}", enum=list(LINKS)),
        half_widths=_HALF_WIDTHS,
        **_KEPT,
    ),
    detector=_object(
        "the detector: arch, masks, sizes, score, overlap, most, classes and data",
        *("arch", "masks", "sizes", "score", "overlap", "most", "classes", "data"),
        arch=_field("string", "the name of an architecture"),
        masks=_field("boolean", "whether it is a Mask R-CNN"),
        sizes=_object(
            "the sizes of images, anchors and regions",
            *("sides", "longest", "anchors", "candidates", "level_candidates", "proposals", "rois"),
            **dict.fromkeys(("sides", "anchors", "candidates", "level_candidates", "proposals"), _SIDES),
            **dict.fromkeys(("longest", "rois"), _count("a number", 2**16)),
        ),
        score=_field("number", "the least score, from 0 to 1", minimum=0, maximum=1),
        overlap=_field("number", "the most overlap of two boxes, from 0 to 1", minimum=0, maximum=1),
        most=_count("boxes of an image", 10_000),
        **_KEPT,
    ),
    segmenter=_object(
        "the segmenter: classes, blocks, scales and data",
        *("classes", "blocks", "scales", "data"),
        blocks=_count("blocks of the network", 1000),
        scales=_field("array", "scales of a picture", items=_NUMBER),
        **_KEPT,
    ),
    missing=_field("array", "parts of the entry that are still to be made", items=_field("string", "a name")),
    unreadable=_field("array", "paths of images that were left out", items=_field("string", "a path")),
) | {
    # A card with a format is a finished run's; others were written by hand for a network.
    "if": {"required": ["format"]},
    "then": {"required": ["method", "backbone", "normalize", "data", "config", "epochs", "date"]},
}

# The metadata of exported weights: `sslkit.zoo.about.About` as JSON.
EXPORT: dict[str, Any] = _object(
    "a JSON object",
    *("format", "name", "method", "lines", "width", "image_size", "in_chans", "mean", "std", "crop_pct"),
    "interpolation",
    format=_field("integer", f"the whole number {FORMAT}", minimum=1),
    name=_field("string", "the entry's name"),
    method=_field("string", "a method or nothing"),
    lines=_field("array", "lines of Python that bind `net`", items=_field("string", "a line of Python")),
    width=_field("integer", "the number of features", minimum=1),
    mean=_CHANNELS,
    std=_CHANNELS,
    **_RESIZING,
    classes=_field("array", "the names of the classes or numbers", items=_field("string", "a name"), minItems=1),
    link=_field("string", f"one of {', '.join(LINKS)}", enum=list(LINKS)),
    half_widths=_HALF_WIDTHS,
    range=_RANGE,
    **_INPUT,
)
SCHEMAS = {"card": SCHEMA, "export": EXPORT}


def read_card(path: Path) -> dict[str, Any]:
    """The card in a file, checked. Raises UserError if it is not JSON, does not fit, or has a newer format."""
    card = reading.read_json(path, "take the card from a copy, or train the entry again")
    check(card, path)
    return card


def written(card: dict[str, Any], path: Path) -> str:
    """The text of a card for `path`, checked. Raises UserError for a card that does not fit."""
    check(card, path)
    try:
        return json.dumps(card, indent=2) + "\n"
    except TypeError as error:
        raise UserError(f"{path}: {error}; a card holds texts, numbers, lists and mappings") from error


def check(card: Any, path: Path) -> None:
    """Raises UserError with the card's path, the field and the expected value, unless the card fits the schema."""
    number = card.get("format") if isinstance(card, dict) else None
    if isinstance(number, int) and number > FORMAT:
        raise UserError(
            f"{path}: format {number} is newer than {FORMAT}, which this sslkit reads: pip install --upgrade sslkit"
        )
    _check_schema(card, path, "card")
    if "backbone" in card:
        check_input(card["backbone"], path)
    if fault := _pixels_fault(card):
        raise UserError(f"{path}: {fault}")


def check_export(about: Any, path: Path) -> None:
    """Raises UserError unless `about`, read from an exported file, fits `EXPORT`."""
    _check_schema(about, path, "export")
    check_input(about, path)


def check_input(network: dict[str, Any], path: Path) -> None:
    """Raises UserError for an image or a clip that would fill the memory."""
    shape = [network["in_chans"], network.get("frames") or 1, network["image_size"], network["image_size"]]
    if math.prod(shape) > MAX_INPUT:
        raise UserError(f"{path}: one input would have {math.prod(shape):,} numbers, at most {MAX_INPUT:,} are read")


def _check_schema(content: Any, path: Path, kind: str) -> None:
    from jsonschema import Draft202012Validator

    faults = Draft202012Validator(SCHEMAS[kind]).iter_errors(content)
    errors = sorted(faults, key=lambda error: [str(step) for step in error.absolute_path])
    if errors:
        more = f" (and {len(errors) - 1} more such faults)" if len(errors) > 1 else ""
        raise UserError(f"{path}: {_describe(errors[0], kind)}{more}")


def _pixels_fault(card: dict[str, Any]) -> str:
    """Return why the card's normalisation is invalid, "" if it is valid."""
    normalize = card.get("normalize")
    if normalize is None:
        return ""
    channels = card.get("backbone", {}).get("in_chans", len(normalize["mean"]))
    for name in ("mean", "std"):
        if len(normalize[name]) != channels:
            return f"normalize.{name} has {len(normalize[name])} numbers, expected one for each of {channels} channels"
        if not all(math.isfinite(value) for value in normalize[name]):
            return f"normalize.{name} is {normalize[name]}, expected finite numbers"
    if min(normalize["std"]) <= 0:
        return f"normalize.std is {normalize['std']}, expected numbers above 0"
    return ""


def _describe(error: Any, kind: str) -> str:
    """`backbone.image_size is '28', expected a whole number of pixels, at least 1`."""
    field = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path).lstrip(".")
    if error.validator == "required":
        name = next(name for name in error.validator_value if name not in error.instance)
        properties = error.schema.get("properties", SCHEMAS[kind]["properties"])
        return f"{field}{'.' if field else ''}{name} is missing, expected {properties[name]['description']}"
    shown = json.dumps(error.instance)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    return f"{field or f'the {kind}'} is {shown}, expected {error.schema['description']}"
