"""What is worth mending in a data set, most first: found by digests, sizes and thumbnails of 16 pixels."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from sslkit.data.columns import NEAR_COPIES
from sslkit.data.copies import are_too_many, lead_near_copies, nearest_across
from sslkit.data.manifest.sampled import contradictions
from sslkit.data.manifest.survey import DIGEST, LIGHT, LIKENESS, THUMBNAIL, standardize
from sslkit.data.manifest.table import UNREADABLE, Manifest
from sslkit.numerics.neighbours import Own, neighbours
from sslkit.terminal.say import and_more, counted

BLANK = 1.5  # levels of 255, deviation of a thumbnail's pixels: noise of a sensor averages out, drawings have more
FEW = 5  # images of a class: fewer cannot be divided into the fifths of a selection
FAR = 6.0  # robust deviations (of the median) of a side or its ratio, from which a size is odd: 1 of 10^9 if normal
K = 5  # neighbours that must all agree on another label: of unlike images few do by chance
ASKED = 20_000  # images whose labels are compared, a random draw: exact neighbours of these take a minute on two cores
_AT_SOURCE = "these images are no files of their own, so that their source is what can be corrected"
_NO_ROWS = np.empty(0, np.int64)
_HAVE = {True: "have", False: "has"}
_BY_HAND = "write a word into the column 'left out' of {out}, or correct its cells, and type data={out}"


@dataclass(frozen=True)
class Finding:
    """One kind of fault. kind: a word of `options.LEAVE_OUT`, or another. title: a sentence with the number.

    rows: (n,) of the images, the most telling first. sets: rows that belong together, such as copies.
    notes: of some rows, what is said below their picture. mend: what to type, with {out} for the manifest.
    drop: the rows that leave_out=kind marks.
    """

    kind: str
    title: str
    mend: str
    rows: np.ndarray
    notes: dict[int, str] = field(default_factory=dict)
    sets: Sequence[np.ndarray] = ()
    drop: np.ndarray | None = None


def find_faults(manifest: Manifest, cache: str | Path | None = None) -> list[Finding]:
    """Return what is worth mending, in the order of how much it distorts a result.

    cache: folder that keeps which of many images are near-copies.
    """
    findings = [*_copies(manifest, cache), *(finding for find in FINDERS for finding in find(manifest))]
    return findings if manifest.are_files else [replace(finding, mend=_AT_SOURCE) for finding in findings]


def leave_out(manifest: Manifest, findings: Sequence[Finding], wanted: Collection[str]) -> np.ndarray:
    """The column of the manifest (N,): why an image is left out, with the findings that are wanted."""
    reasons = manifest.left_out.copy()
    for finding in findings:
        if finding.kind in wanted and finding.drop is not None:
            for row in finding.drop[reasons[finding.drop] == ""]:
                reasons[row] = finding.kind
    return reasons


def copy_numbers(manifest: Manifest, cache: str | Path | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers (N,) equal for the same content, and for near-copies, and rows of near-copies on the other side.

    The last: (N,) of the nearest one that is not the same, see `nearest_across`; the first split is learned from. Blank
    and unreadable images stand alone.
    """
    alone = manifest.unreadable | _is_blank(manifest)
    digests = np.ascontiguousarray(manifest.measures[DIGEST]).view("<u8").ravel()
    exact = np.unique(digests, return_inverse=True)[1]
    exact[alone] = exact.max(initial=0) + 1 + np.arange(int(alone.sum()))
    if are_too_many(len(manifest)):
        return exact, exact, np.full(len(manifest), -1)
    hashes = np.where(alone[:, None], 0, manifest.measures[LIKENESS])
    other = nearest_across(hashes, manifest.splits == manifest.splits[0], cache)
    return exact, exact[lead_near_copies(hashes, cache)], np.where(exact[other] == exact, -1, other)


def _sets(numbers: np.ndarray, fewest: int = 2) -> list[np.ndarray]:
    """The rows of each number, from 0, that so many have, ascending."""
    order = np.argsort(numbers, kind="stable")
    starts = np.append(np.flatnonzero(np.diff(numbers[order], prepend=-1)), len(order))
    several = np.flatnonzero(np.diff(starts) >= fewest)
    return [order[starts[i] : starts[i + 1]] for i in several.tolist()]


def _by_label(manifest: Manifest) -> np.ndarray | None:
    labels = manifest.labels
    return labels if manifest.classes and labels.ndim == 1 else None


def _copies(manifest: Manifest, cache: str | Path | None) -> Iterator[Finding]:
    exact, near, other = copy_numbers(manifest, cache)
    sets, labels = _sets(exact), _by_label(manifest)
    splits = manifest.splits
    both = [rows for rows in sets if splits[0] in splits[rows] and len(set(splits[rows])) > 1]
    yield from _across(manifest, both, np.concatenate([*both, _NO_ROWS]), "copies", "a copy")
    if labels is not None:
        unlike = [rows for rows in sets if len({label for label in labels[rows].tolist() if label >= 0}) > 1]
        if unlike:
            yield Finding(
                "copies with two labels",
                f"{counted(len(unlike), 'image')} and copies of them have different labels",
                "correct the column label in {out} and type data={out}",
                np.concatenate(unlike),
                sets=unlike,
            )
    alike = [rows for rows in _sets(near) if len(np.unique(exact[rows])) > 1]
    asked = np.flatnonzero((other >= 0) & (splits != splits[0]))
    pairs = [np.append(other[asked[rows[0]]], asked[rows]) for rows in _sets(other[asked], fewest=1)]
    yield from _across(manifest, pairs, np.flatnonzero(other >= 0), "near_copies", "a near-copy")
    yield from _within(manifest, sets, "copies", "copy")
    yield from _within(manifest, alike, "near_copies", "near-copy")


def _across(
    manifest: Manifest, sets: Sequence[np.ndarray], rows: np.ndarray, kind: str, what: str
) -> Iterator[Finding]:
    """Held-out images whose copy is learned from. rows: of all images with a copy on the other side."""
    first = manifest.splits[0]
    is_learned = manifest.splits == first
    if sets:
        held_out, total = int((~is_learned[rows]).sum()), int((~is_learned).sum())
        yield Finding(
            kind,
            f"{held_out:,} of {counted(total, 'held-out image')} {_HAVE[held_out > 1]} {what} in {first}",
            f"leave_out={kind} leaves those in {first} out",
            np.concatenate(sets),
            sets=sets,
            drop=rows[is_learned[rows]],
        )


def _within(manifest: Manifest, sets: Sequence[np.ndarray], kind: str, what: str) -> Iterator[Finding]:
    """Images of one split that are copies of others."""
    within = [rows for rows in sets if len(set(manifest.splits[rows])) == 1]
    if within:
        number = sum(map(len, within)) - len(within)
        noun = f"is a {what} of another" if number == 1 else f"are {what.removesuffix('y')}ies of others"
        yield Finding(
            kind,
            f"{counted(number, 'image')} {noun} of the same split",
            f"leave_out={kind} leaves all but one out; columns.group={NEAR_COPIES} keeps them on one side of a split",
            np.concatenate(within),
            sets=within,
            drop=np.concatenate([rows[1:] for rows in within]),
        )


def _unreadable(manifest: Manifest) -> Iterator[Finding]:
    rows = np.flatnonzero(manifest.unreadable)
    if len(rows):
        reasons = {int(row): manifest.left_out[row].removeprefix(UNREADABLE) for row in rows}
        why = [f"{count:,} {reason}" for reason, count in Counter(reasons.values()).most_common()]
        title = f"{counted(len(rows), 'file')} cannot be read, and left out: {and_more(why, 2)}"
        yield Finding("unreadable", title, "put whole files in their place and look again", rows, reasons)


def _is_blank(manifest: Manifest) -> np.ndarray:
    """(N,) bool"""
    return (manifest.measures[LIGHT][:, 1] < BLANK) & ~manifest.unreadable


def _blank(manifest: Manifest) -> Iterator[Finding]:
    rows = np.flatnonzero(_is_blank(manifest))
    if len(rows):
        mean = manifest.measures[LIGHT][:, 0]
        notes = {int(row): f"all {mean[row]:.0f} of 255" for row in rows}
        title = f"{counted(len(rows), 'image')} {'is' if len(rows) == 1 else 'are'} blank"
        yield Finding("blank", title, "leave_out=blank leaves them out", rows, notes, drop=rows)


def _kinds(manifest: Manifest) -> Iterator[Finding]:
    """Images of another depth, or another number of channels, than nearly all."""
    shape, readable = manifest.measures["shape"], ~manifest.unreadable
    for column, what, option in ((3, "bits", "range=[LOW,HIGH]"), (2, "channels", "channels=3")):
        values, counts = np.unique(shape[readable, column], return_counts=True)
        usual = int(values[counts.argmax()]) if len(values) else 0
        alike = {1, 3} if what == "channels" and usual in (1, 3) else {usual}  # gray and colours become each other
        others = [value for value in values.tolist() if value not in alike]
        if not others:
            continue
        rows = np.flatnonzero(readable & np.isin(shape[:, column], others))
        notes = {int(row): f"{shape[row, column]} {what}" for row in rows}
        kinds = " and ".join(map(str, others))
        title = f"{counted(len(rows), 'image')} of {kinds} {what} among those of {usual}"
        mend = f"say how they are read by {option}, or leave_out=odd"
        yield Finding("odd", title, mend, rows, notes, drop=rows)


def _contradict_sample(manifest: Manifest) -> Iterator[Finding]:
    for contradiction in contradictions(manifest):
        mend = f"look again with {contradiction.option}, or write it into the head of {{out}}"
        yield Finding("sampled", contradiction.title, mend, contradiction.rows, dict(contradiction.notes))


def _classes(manifest: Manifest) -> Iterator[Finding]:
    labels = _by_label(manifest)
    if labels is None:
        return
    first = manifest.splits[0]
    counts = np.bincount(labels[(labels >= 0) & (manifest.splits == first)], minlength=len(manifest.classes))
    few = np.flatnonzero(counts < FEW)
    if len(few):
        named = and_more([f"{manifest.classes[label]} ({counts[label]})" for label in few])
        title = f"{counted(len(few), 'class')} of fewer than {FEW} images in {first}: {named}"
        rows = np.flatnonzero(np.isin(labels, few))
        mend = "add images, or empty the cells of their label in {out} and type data={out}"
        yield Finding("small classes", title, mend, rows, {int(row): manifest.classes[labels[row]] for row in rows})


def _contradict_neighbours(manifest: Manifest) -> Iterator[Finding]:
    labels = _by_label(manifest)
    if labels is None:
        return
    rows = np.flatnonzero((labels >= 0) & ~manifest.unreadable & ~_is_blank(manifest))
    if len(rows) > ASKED:
        rows = np.sort(np.random.default_rng(0).permutation(rows)[:ASKED])
    if len(rows) <= 2 * K or len(set(labels[rows].tolist())) < 2:
        return
    x = standardize(manifest.measures[THUMBNAIL][rows])
    digests = np.ascontiguousarray(manifest.measures[DIGEST][rows]).view("<i8").ravel()
    similarity, near = neighbours(x, np.arange(len(rows)), x, K, Own.from_rows(digests, digests, None), rows)
    of_near = labels[rows][near]
    agree = (of_near == of_near[:, :1]).all(1) & (of_near[:, 0] != labels[rows])
    wrong = np.flatnonzero(agree)[np.argsort(-similarity[agree].min(1), kind="stable")]
    if len(wrong):
        classes = manifest.classes
        notes = {int(rows[i]): f"{classes[labels[rows[i]]]}; its neighbours: {classes[of_near[i, 0]]}" for i in wrong}
        right = float((of_near == labels[rows][:, None]).mean())
        title = (
            f"{counted(len(wrong), 'label')} that all of {K} neighbours by thumbnails contradict (of all neighbours "
            f"{right:.0%} have the label)"
        )
        yield Finding("contradicted", title, _BY_HAND, rows[wrong], notes, drop=rows[wrong])


def _sizes(manifest: Manifest) -> Iterator[Finding]:
    """Images whose area or ratio of sides is far from that of all others."""
    readable = np.flatnonzero(~manifest.unreadable)
    width, height = np.log2(np.maximum(manifest.measures["shape"][readable, :2], 1)).T
    far = np.maximum(_far(width + height), _far(width - height))
    order = np.argsort(-far, kind="stable")
    rows = readable[order][far[order] > FAR]
    if len(rows):
        notes = {int(row): "{} x {} pixels".format(*manifest.measures["shape"][row, :2]) for row in rows}
        title = f"{counted(len(rows), 'image')} of a size or shape unlike all others, such as {notes[int(rows[0])]}"
        yield Finding("odd", title, "leave_out=odd leaves them out", rows, notes, drop=rows)


def _far(values: np.ndarray) -> np.ndarray:
    """Distance to the median in robust standard deviations, of which one is at least a quarter of a doubling."""
    middle = np.median(values) if len(values) else 0.0
    spread = 1.4826 * np.median(np.abs(values - middle)) if len(values) else 0.0
    return np.abs(values - middle) / max(float(spread), 0.25)


FINDERS: tuple[Callable[[Manifest], Iterator[Finding]], ...] = (
    _unreadable,
    _contradict_sample,
    _contradict_neighbours,
    _blank,
    _kinds,
    _classes,
    _sizes,
)


def unusual(manifest: Manifest, most: int) -> np.ndarray:
    """Rows of the images whose size, shape, brightness and contrast lie furthest from the median."""
    readable = np.flatnonzero(~manifest.unreadable)
    width, height = np.log2(np.maximum(manifest.measures["shape"][readable, :2], 1)).T
    mean, deviation = manifest.measures[LIGHT][readable].astype(np.float64).T
    far = sum(_far(values) ** 2 for values in (width + height, width - height, mean / 64, deviation / 32))
    return readable[np.argsort(-far, kind="stable")[:most]]
