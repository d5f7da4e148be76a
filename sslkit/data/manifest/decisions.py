"""What is decided when a data set is opened: each decision is declared once, with how it is made and overridden."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sslkit.data.decode import fill
from sslkit.data.decode.scale import number, written
from sslkit.data.image_options import ImageOptions
from sslkit.data.images import Images
from sslkit.data.manifest import head_options
from sslkit.data.mirror import is_mirrored
from sslkit.terminal.say import and_so_on, counted

SAMPLED = "by a sample: "  # begins the reason of what all images may contradict
_SHOWN = 6  # names of classes, and of splits, in a cell: a line of a terminal holds no more


@dataclass(frozen=True)
class Opened:
    """A data set. splits: the images of each, "train" first. mirror: as given. lines: that were said on opening."""

    splits: Mapping[str, Images]
    mirror: bool | None = None
    lines: Sequence[str] = ()

    @property
    def first(self) -> Images:
        return next(iter(self.splits.values()))


@dataclass(frozen=True)
class Decision:
    """What was decided. subject: of what. value: in words. reason: why.

    word: the option that decides so, whose value may be corrected; of columns, the option that names another.
    """

    subject: str
    value: str
    reason: str
    word: str

    @property
    def cells(self) -> list[str]:
        return [f"# {self.subject}", self.value, self.reason, self.word]


@dataclass(frozen=True)
class Rule:
    """How a decision is made. how: in words, where no line of the readers says more. said: on opening, when.

    option: that overrides it. value: of an opened data set, in words. chosen: what the option would be; None for the
        options of columns.
    """

    subject: str
    how: str
    said: str
    option: str
    example: str
    value: Callable[[Opened], str]
    chosen: Callable[[Opened], Any] | None = None

    def reasons(self, lines: Sequence[str]) -> list[str]:
        """The lines that name the option."""
        named = re.compile(rf"(?<![\w.])(data\.)?{re.escape(self.option)}=")
        return [line for line in lines if named.search(line)]

    def decide(self, opened: Opened) -> Decision:
        reason = " | ".join(self.reasons(opened.lines)) or self.how
        reason = f"{SAMPLED}{reason}" if self.option in opened.first.from_sample else reason
        word = head_options.word(self.option, self.chosen(opened)) if self.chosen else self.override
        return Decision(self.subject, self.value(opened), reason, word)

    @property
    def override(self) -> str:
        return f"{self.option}={self.example}"


def _splits(opened: Opened) -> str:
    return ", ".join(f"{split} {len(images):,}" for split, images in opened.splits.items())


def _labels(opened: Opened) -> str:
    first = opened.first
    if not first.classes:
        return "none"
    kind = "" if first.multi_labels is None else ", several an image"
    return f"{counted(len(first.classes), 'class')}{kind}: {and_so_on(list(map(str, first.classes)), _SHOWN)}"


def _groups(opened: Opened) -> str:
    groups = [images.groups for images in opened.splits.values() if images.groups is not None]
    return counted(len(np.unique(np.concatenate(groups))), "group") if groups else "each image stands alone"


def _range(opened: Opened) -> str:
    limits = opened.first.range
    return "8 bits as they are" if limits is None else written(limits)


def _opacity(opened: Opened) -> str:
    words = {None: "no file has one", True: "laid over white", False: "a channel like the others"}
    return words[opened.first.scale.opacity]


def _fill(opened: Opened) -> str:
    padding = opened.first.scale.fill
    words = {None: "every pixel has a value", fill.NONE: "every pixel has a value", fill.TAGGED: "what tags name"}
    return words[padding] if padding in words else f"{number(padding)}, and what tags name"


def _pages(opened: Opened) -> str:
    return {"first": "the first of each file", "all": "each is an image"}[opened.first.options.pages]


def _is_mirrored(opened: Opened) -> bool:
    first = opened.first
    return is_mirrored(opened.mirror, first.classes, first.name, first.mirror)


def _mirror(opened: Opened) -> str:
    return "keeps its class" if _is_mirrored(opened) else "may have another class"


def _largest(opened: Opened) -> str:
    most = opened.first.options.max_pixels
    return "up to 179 million pixels" if most is None else f"up to {most:,} pixels"


def _part_of_scale(name: str) -> Callable[[Opened], Any]:
    """The value of an option of `VALUES`; its default for what no image has."""

    def chosen(opened: Opened) -> Any:
        value = getattr(opened.first.scale, name)
        return getattr(ImageOptions, name) if value is None else value

    return chosen


RULES = (
    Rule(
        "splits",
        "the data set's own, a column or folders called train, val and test; without any all images are train",
        "which column or folders, and what is left out beside them",
        "columns.split",
        "COLUMN",
        _splits,
    ),
    Rule(
        "labels",
        "the data set's own, a column of a usual name, or the folders",
        "which column of a table, and one that tells nothing; metadata with others than the folders; folders that look "
        "like splits, or lie inside one folder; a column of decimal numbers, which `columns.label_kind=number` reads",
        "columns.label",
        "COLUMN",
        _labels,
    ),
    Rule(
        "groups",
        "a column that is named, near-copies by pixels, or that of a manifest",
        "how many stand on both sides of a split; a column that is empty or differs for every image",
        "columns.group",
        "COLUMN",
        _groups,
    ),
    Rule(
        "channels",
        "those of arrays; of files 3 if any of 32 is coloured, else 1",
        "planes that are not read; the first coloured image of a gray set",
        "channels",
        "3",
        lambda opened: str(opened.first.channels),
        lambda opened: opened.first.channels,
    ),
    Rule(
        "range",
        "by the values of a sample of the images of more than 8 bits",
        "always, with a better one where levels are unused",
        "range",
        "[0,4095]",
        _range,
        _part_of_scale("range"),
    ),
    Rule(
        "opacity",
        "opacity where a file declares it and a sample is mostly 0 or full",
        "where it was decided by values",
        "opacity",
        "false",
        _opacity,
        _part_of_scale("opacity"),
    ),
    Rule(
        "fill",
        "what the files' tags name, or a value apart at an end of the range",
        "how many images have pixels without a value",
        "fill",
        "none",
        _fill,
        _part_of_scale("fill"),
    ),
    Rule(
        "pages",
        "the first, as in a viewer",
        "how many files have several",
        "pages",
        "all",
        _pages,
        lambda opened: opened.first.options.pages,
    ),
    Rule(
        "mirror",
        "it does, unless names of classes differ by left and right",
        "where names of classes have a side",
        "mirror",
        "false",
        _mirror,
        _is_mirrored,
    ),
    Rule(
        "size",
        "what is larger could fill the memory",
        "the first image that is too large",
        "max_pixels",
        "400000000",
        _largest,
        lambda opened: opened.first.options.max_pixels,
    ),
)


def decide(opened: Opened) -> tuple[list[Decision], list[str]]:
    """Return the decisions, and the lines that belong to none of them."""
    used = {line for rule in RULES for line in rule.reasons(opened.lines)}
    return [rule.decide(opened) for rule in RULES], [line for line in opened.lines if line not in used]
