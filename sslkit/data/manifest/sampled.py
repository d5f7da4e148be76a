"""What all images say against a decision that a sample of them made."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from sslkit.data.decode.opacity import MOSTLY
from sslkit.data.decode.scale import Range, Values, number
from sslkit.data.manifest import head_options
from sslkit.data.manifest.decisions import SAMPLED
from sslkit.data.manifest.survey import ENDS, OPACITY
from sslkit.data.manifest.table import Manifest
from sslkit.terminal.say import counted

_COLOURS = (3, 4)  # channels as stored of an image that is more than gray


@dataclass(frozen=True)
class Contradiction:
    """title: a sentence with the number. option: that mends it, as typed. rows: (n,), the worst first.

    notes: of some rows, what is said below their picture.
    """

    title: str
    option: str
    rows: np.ndarray
    notes: Mapping[int, str]


def contradictions(manifest: Manifest) -> Iterator[Contradiction]:
    """Return what the measures of all images say against the range, the channels and the opacity of a sample."""
    words = {decision.subject: decision.word for decision in manifest.decisions}
    sampled = {decision.subject for decision in manifest.decisions if decision.reason.startswith(SAMPLED)}
    value = {name: head_options.parse(name, words[name].partition("=")[2]) for name in ("range", "channels", "opacity")}
    if "range" in sampled:
        yield from _beyond(manifest, value["range"])
    channels = manifest.measures["shape"][:, 2]
    coloured = np.flatnonzero(np.isin(channels, _COLOURS) & ~manifest.unreadable)
    if "channels" in sampled and value["channels"] == 1 and len(coloured):
        title = (
            f"{counted(len(coloured), 'image')} of several channels read as gray, since none of a sample was coloured"
        )
        yield Contradiction(title, "channels=3", coloured, {})
    if "opacity" in sampled and value["opacity"] is not None:
        yield from _other_opacity(manifest, is_opacity=value["opacity"])
    four = np.flatnonzero(np.isin(channels, (2, 4)) & ~manifest.unreadable)
    if value["opacity"] is None and len(four) and value["channels"] in (1, 3):
        title = f"{counted(len(four), 'image')} of a last plane that may be opacity, and no image of a sample had one"
        option = "opacity=true or opacity=false"
        yield Contradiction(title, option, four, {int(row): f"{channels[row]} channels" for row in four})


def _other_opacity(manifest: Manifest, *, is_opacity: bool) -> Iterator[Contradiction]:
    """Images whose last plane is opacity by its values, where that of a sample is not, or the other way round."""
    share = manifest.measures[OPACITY]
    rows = np.flatnonzero(share < MOSTLY if is_opacity else share >= MOSTLY)  # NaN is neither
    if len(rows):
        are = "is none" if is_opacity else "is opacity"
        title = f"{counted(len(rows), 'image')} whose last plane {are} by its values, unlike those of a sample"
        notes = {int(row): f"{share[row]:.0%} of its values above 0 are full" for row in rows}
        yield Contradiction(title, head_options.word("opacity", not is_opacity), rows, notes)


def _beyond(manifest: Manifest, limits: Range) -> Iterator[Contradiction]:
    """Images whose values lie outside the range, where they are cut off."""
    least, most = manifest.measures[ENDS].T
    outside = np.fmax(limits[0] - least, most - limits[1])  # of 8 bits NaN
    rows = np.flatnonzero(outside > 0)
    if len(rows):
        rows = rows[np.argsort(-outside[rows], kind="stable")]
        every = (float(np.nanmin(least)), float(np.nanmax(most)))
        whole = all(value.is_integer() for value in every)
        better = Values(kind="16-bit" if whole else "float", images=1, least=every[0], most=every[1]).usual()
        notes = {int(row): f"values {number(float(least[row]))} to {number(float(most[row]))}" for row in rows}
        title = (
            f"{counted(len(rows), 'image')} with values beyond the range of a sample, {notes[int(rows[0])]}: cut off"
        )
        yield Contradiction(title, head_options.word("range", better), rows, notes)
