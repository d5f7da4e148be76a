"""look(data) -> Manifest: open a data set, look at every image once, and write what it is and what is wrong with it."""

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from sslkit.data.image_options import DataOptions, FileOptions, ReadOptions
from sslkit.data.images import Images
from sslkit.data.manifest.decisions import Opened
from sslkit.data.manifest.findings import Finding, find_faults, leave_out
from sslkit.data.manifest.options import LEAVE_OUT, OUT, SHARED, Options
from sslkit.data.manifest.page import write_page
from sslkit.data.manifest.survey import measure
from sslkit.data.manifest.table import Manifest, check_ending, manifest_of
from sslkit.data.sources.column_values import refuse_numbers
from sslkit.data.sources.named import open_images, splits
from sslkit.errors import UserError
from sslkit.files.leases import own_file
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime
from sslkit.terminal import say
from sslkit.terminal.say import words

_MENDED = 3  # findings that the terminal names: more would not be read


@public(*SHARED)
def look(data: Any, *, options: Options, reading: DataOptions, files: FileOptions, runtime: Runtime) -> Manifest:
    """Look at every image of a data set once, and write a table of them and a page of what is worth mending.

        manifest = sslkit.look("path/to/images", out="manifest.csv")  # and manifest.html
        manifest.decisions[0].reason, manifest.left_out
        images = sslkit.open_images("manifest.csv")  # corrected by hand, perhaps

    data: a source, see `sslkit.open_images`; all of its splits are read.
    A stopped call goes on where it stopped, from the blocks in the cache.
    Raises UserError as `open_images` does, and for `out` that cannot be written.
    """
    out = None if options.out is None else check_ending(options.out)
    _check_leave_out(options.leave_out)
    opened = _open(data, options, reading, files, runtime)
    name = opened.first.name
    out = out or Path(OUT.format(name=re.sub(r"[^\w.+-]", "_", name)))
    source = os.fspath(data) if isinstance(data, (str, Path)) else str(opened.first.source or "")
    with own_file(out, "looks into"):
        manifest = manifest_of(opened, source, [measure(images, runtime) for images in opened.splits.values()])
        findings = find_faults(manifest, runtime.cache)
        manifest = replace(manifest, left_out=leave_out(manifest, findings, options.leave_out or ()))
        manifest.write(out)
        page = write_page(out.with_suffix(".html"), manifest, findings, opened, str(out))
    _tell(manifest, findings, out, page, _words_of_training(reading, files))
    return manifest


def _check_leave_out(wanted: list[str] | None) -> None:
    for word in wanted or ():
        if word not in LEAVE_OUT:
            raise UserError(f"leave_out={word}: it is a list of {', '.join(LEAVE_OUT)}")


def _open(data: Any, options: Options, reading: DataOptions, files: FileOptions, runtime: Runtime) -> Opened:
    """Every split, and the lines that the readers say on it. Raises UserError for videos."""
    if isinstance(data, str) and data.startswith("video:"):
        raise UserError(f"data={data} are videos, and look reads images: cut frames, or give a folder of images")
    how = {name: getattr(reading, name) for name in ReadOptions.__dataclass_fields__} | vars(files)
    square = {"image_size": options.image_size, "fit": "crop"}
    with _lines_collected() as lines:
        refuse_numbers(reading.columns, "a manifest holds")
        names = splits(data, runtime.cache, reading.columns)
        if isinstance(data, Images) and data.source is None:  # it cannot be opened anew
            images = open_images(data, split=data.split, **how)
            opened = {data.split: images.at(channels=images.channels, **square)}
        else:
            opened = {split: open_images(data, split=split, cache=runtime.cache, **how, **square) for split in names}
    return Opened(opened, reading.mirror, list(dict.fromkeys(lines)))


@contextmanager
def _lines_collected() -> Iterator[list[str]]:
    """The lines of warnings meanwhile, which are said at the end as they would have been."""
    lines: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield lines
    for warning in caught:
        lines.append(str(warning.message))
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def _words_of_training(reading: DataOptions, files: FileOptions) -> dict[str, Any]:
    """The options of values and of files that were given, in the words of train.py; a manifest holds them itself."""
    values = {name: value for name, value in reading.values.items() if value != getattr(DataOptions, name)}
    of_files = {f"data.{name}": value for name, value in vars(files).items() if value != getattr(FileOptions, name)}
    return values | of_files


def _tell(manifest: Manifest, findings: list[Finding], out: Path, page: Path, typed: dict[str, Any]) -> None:
    """One paragraph, what is most worth mending, and the next command. typed: options of reading, for it."""
    say.line(f"data      {manifest}")
    for number, finding in enumerate(findings[:_MENDED], start=1):
        say.line(f"mend {number}    {finding.title}: {finding.mend.format(out=out)}")
    if not findings:
        say.line("mend      nothing was found that is worth it")
    if len(findings) > _MENDED:
        say.line(f"          {len(findings) - _MENDED} more on the page")
    say.line(f"written   {out} and {page}")
    data = {"data": out} if manifest.are_files else {"data": manifest.source, **manifest.columns, **typed}
    if data["data"]:
        say.line(f"next      python recipes/train.py {words({'method': 'byol+dsa', **data})}")
