"""One offline page of a data set: its pictures as a network gets them, what is worth mending, and every decision."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sslkit.data.images import Images
from sslkit.data.manifest.decisions import Opened
from sslkit.data.manifest.findings import Finding, unusual
from sslkit.data.manifest.survey import THUMBNAIL
from sslkit.data.manifest.table import Manifest
from sslkit.files import pages
from sslkit.terminal.say import as_started, printable

TEMPLATE = Path(__file__).parent
SAMPLE, EXAMPLES = 24, 24  # pictures: two rows of a wide window, so that a page stays under a megabyte or two
SETS, IN_SET = 8, 6  # of copies that are shown, and of each
HEIGHT = 112  # pixels of a picture on the page
BARS, BINS = 24, 16  # of a histogram: as many as can be read side by side
PIXELS_OF = 5_000  # images whose pixel values are counted: four million values, more than a histogram shows
WIDEST = 2.5  # width / height of a picture that is shown; the widest are squeezed


@dataclass(frozen=True)
class Picture:
    """source: of an `img`, "" for one that cannot be read. lines: below it. width: in pixels."""

    source: str
    lines: Sequence[str]
    width: int


@dataclass(frozen=True)
class Chart:
    """Bars (label, count, share of the largest)."""

    title: str
    bars: Sequence[tuple[str, int, float]]
    note: str = ""


def write_page(path: Path, manifest: Manifest, findings: Sequence[Finding], opened: Opened, out: str) -> Path:
    """Write the page. out: the manifest's file. Raises UserError if it cannot be written."""
    style = (TEMPLATE / "look.css").read_text(encoding="utf-8")
    templates = pages.open_templates(TEMPLATE, style=style)
    context = {
        "manifest": manifest,
        "out": out,
        "findings": [_show_finding(finding, manifest, opened, out) for finding in findings],
        "sample": _pictures(manifest, opened, _evenly(manifest, SAMPLE), whole=False),
        "unusual": _pictures(manifest, opened, unusual(manifest, SAMPLE), shapes=True),
        "charts": list(_charts(manifest)),
        "height": HEIGHT,
    }
    return pages.write_page(path, as_started(templates.get_template("look.html").render(context)))


def _evenly(manifest: Manifest, most: int) -> np.ndarray:
    readable = np.flatnonzero(~manifest.unreadable)
    return readable[np.unique(np.linspace(0, len(readable) - 1, most, dtype=int))] if len(readable) else readable


def _show_finding(finding: Finding, manifest: Manifest, opened: Opened, out: str) -> dict[str, Any]:
    """A finding as the page shows it: its pictures in one row, or each set of copies in one."""
    sets = [rows[:IN_SET] for rows in finding.sets[:SETS]] or [finding.rows[:EXAMPLES]]
    rows = [_pictures(manifest, opened, some, notes=finding.notes, labels=not finding.notes) for some in sets]
    names = [manifest.paths[row] for row in finding.rows]
    return {"title": finding.title, "mend": finding.mend.format(out=out), "sets": rows, "names": names[:1000]}


def _pictures(
    manifest: Manifest,
    opened: Opened,
    rows: np.ndarray,
    *,
    whole: bool = True,
    notes: dict[int, str] | None = None,
    labels: bool = True,
    shapes: bool = False,
) -> list[Picture]:
    """whole: the picture with its own ratio of sides, not the square that a network gets."""
    images, first = {}, 0
    for split, split_images in opened.splits.items():
        shown = _whole(split_images) if whole else split_images
        images |= {split: (shown, first)}
        first += len(split_images)
    pictures = []
    for row in map(int, rows):
        split_images, start = images[manifest.splits[row]]
        source, aspect = ("", 1.0) if manifest.unreadable[row] else _source(split_images, row - start)
        label = _label(manifest, row) if labels else ""
        split = ", ".join(filter(None, (str(manifest.splits[row]), label)))
        shape = "{} x {}".format(*manifest.measures["shape"][row, :2]) if shapes else ""
        name = "/".join(Path(manifest.paths[row]).parts[-2:])
        lines = [name, split, shape, (notes or {}).get(row, "")]
        width = round(HEIGHT * min(max(aspect, 1 / WIDEST), WIDEST))
        pictures.append(Picture(source, [printable(str(line)) for line in lines if line], width))
    return pictures


def _whole(images: Images) -> Images:
    return images.at(image_size=HEIGHT, channels=images.channels, fit="squash")


def _label(manifest: Manifest, row: int) -> str:
    if manifest.labels.ndim == 2:
        return ", ".join(np.array(manifest.classes)[manifest.labels[row] > 0])
    label = int(manifest.labels[row])
    return manifest.classes[label] if label >= 0 else ""


def _source(images: Images, row: int) -> tuple[str, float]:
    """The picture as an address, and width / height."""
    from PIL import Image

    batch = images.__getitems__([row])
    pixels = batch["images"][0].numpy()
    pixels = np.repeat(pixels[:1], 3, 0) if len(pixels) < 3 else pixels[:3]
    image = Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    if max(image.size) > 2 * HEIGHT:
        image = image.resize((2 * HEIGHT, 2 * HEIGHT), Image.Resampling.BILINEAR)
    return pages.picture_source(image), float(batch["aspect"][0])


def _charts(manifest: Manifest) -> Iterable[Chart]:
    readable = ~manifest.unreadable
    shape = manifest.measures["shape"][readable]
    if manifest.classes:
        yield _chart_of_classes(manifest)
    yield _histogram("side in pixels (root of the area)", np.sqrt(shape[:, 0].astype(float) * shape[:, 1]))
    yield _histogram("width / height", shape[:, 0] / np.maximum(shape[:, 1], 1))
    values = manifest.measures[THUMBNAIL][_evenly(manifest, PIXELS_OF)].ravel()
    yield _histogram("pixel values (of thumbnails, after the range)", values, ends=(0, 256))
    if manifest.groups is not None:
        yield _histogram("images of a group", np.unique(manifest.groups, return_counts=True)[1])


def _chart_of_classes(manifest: Manifest) -> Chart:
    several = manifest.labels.ndim == 2
    numbers = np.nonzero(manifest.labels > 0)[1] if several else manifest.labels[manifest.labels >= 0]
    counts = Counter(dict.fromkeys(manifest.classes, 0))
    counts.update(manifest.classes[label] for label in numbers.tolist())
    shown = counts.most_common()
    half = BARS // 2
    note = f"the {half} largest and the {half} smallest of {len(shown):,}" if len(shown) > BARS else ""
    return _chart("images of a class", shown if len(shown) <= BARS else shown[:half] + shown[-half:], note)


def _histogram(title: str, values: np.ndarray, ends: tuple[float, float] | None = None) -> Chart:
    if len(distinct := np.unique(values[: 2**20])) <= BINS and len(values):
        return _chart(title, [(f"{value:.4g}", int((values == value).sum())) for value in distinct])
    counts, edges = np.histogram(values, bins=BINS, range=ends)
    return _chart(title, [(f"{low:.4g}", int(count)) for low, count in zip(edges, counts, strict=False)])


def _chart(title: str, bars: Sequence[tuple[str, int]], note: str = "") -> Chart:
    most = max([count for _, count in bars], default=0) or 1
    return Chart(title, [(printable(label), count, count / most) for label, count in bars], note)
