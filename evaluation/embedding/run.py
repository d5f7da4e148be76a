"""Embed every image of a source to one file, with neighbours, near-duplicates and a map beside it."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evaluation.datasets import AS_USUAL, Reading
from evaluation.embedding.drawing import MAPS, check_enough, draw_map
from evaluation.embedding.file import check_out, write
from evaluation.embedding.near_duplicates import (
    AUTO,
    Source,
    contact_sheet,
    duplicates,
    write_duplicates,
    write_unique,
)
from evaluation.embedding.neighbours import SEARCHES, check_k, nearest, write_neighbours
from evaluation.embedding.sources import Part, open_parts
from evaluation.embedding.table import Embedding, describe, embed_parts
from evaluation.features.extraction import check
from evaluation.features.plots import check_umap
from sslkit.data import columns
from sslkit.data.image_options import VALUES
from sslkit.errors import UserError
from sslkit.files.leases import own_file
from sslkit.models.loading import Loading, name_of
from sslkit.options.calls import by_keywords
from sslkit.options.settings import setting
from sslkit.runtime.context import Runtime
from sslkit.terminal import say
from sslkit.terminal.say import counted, words


@dataclass(frozen=True, kw_only=True)
class Files:
    """What is embedded, and where to."""

    checkpoint: str | None = setting(
        None, "zoo entry, timm:NAME, timm:NAME:FILE, random:NAME, random:ENTRY, efficientnet_lite0"
    )
    data: str | None = setting(
        None,
        "folder of images, several (A,B), list of files (.txt, .csv), pattern (**/*.jpg), embedded name, .npz, "
        "shards:PATTERN, hf:PATH, published set; needs no classes",
    )
    out: str | None = setting(None, "file of the features, .npz or .parquet; what is made of them is written beside it")
    split: str | None = setting(None, "of the data; null: all its splits")
    against: str | None = setting(None, "second folder or data set, to find its images' duplicates in data too")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the neighbours, the near-duplicates and the map that are made beside the features."""

    neighbours: int | None = setting(None, "nearest images of each image; null: no lists", least=1)
    search: str = setting(
        "exact", "of neighbours; hnsw, ivf: approximate, for 100,000 images and more", choices=SEARCHES
    )
    duplicates: bool = setting(False, "list copies and near-copies, with a contact sheet")
    threshold: float | str = setting(
        AUTO,
        "smallest similarity (cosine of the features) of near-copies; auto: by the pixels and, as far as they can "
        "tell, by the features, found from the images",
        above=0,
        most=1,
        choices=(AUTO,),
    )
    map: str | None = setting(None, f"of all images: {', '.join(MAPS)}; null: none", choices=tuple(MAPS))

    def check(self, n: int, where: str) -> None:
        """Check the values for n images. Raises UserError."""
        if self.neighbours is not None:
            check_k(self.neighbours, n, where)
        if self.map is not None:
            check_enough(n)
        if self.map == "umap":
            check_umap()


@by_keywords
def run(
    files: Files,
    *,
    options: Options,
    loading: Loading,
    reading: Reading,
    runtime: Runtime,
) -> Embedding:
    """Write the features of every image of a source to `out`, what is made of them beside it, and print a summary.

    The seed is that of the map.
    Raises UserError before anything is computed where an argument, the model, the data or `out` cannot be used.
    """
    _check_named(options, files)
    check(runtime)
    runtime, model = replace(runtime, out=files.out), loading.load(files.checkpoint)
    data, against, out = files.data, files.against, Path(files.out)
    parts, others = open_parts(data, files.split, reading), []
    about = describe(model, parts, runtime)
    if against is not None:
        others = open_parts(against, None, reading)
        describe(model, others, runtime)
    n = _count(parts)
    options.check(n, f" in {data}")
    with own_file(out, "embeds to"):
        check_out(out, about)
        _tell("model", f"{model.name}: {model.width} features, images of {model.image_size} px")
        compared = f", against {_count(others):,} of {against}" if others else ""
        _tell("data", f"{about['data']}: {n:,} images{compared}")
        embedding = _write_features(out, lambda: embed_parts(model, parts, reading, runtime))
        options.check(len(embedding), f" in {data} that can be read")
        _make(options, embedding, parts, out, runtime.seed)
        if options.duplicates:
            sources = [Source(data, parts, embedding)]
            sources += [Source(against, others, embed_parts(model, others, reading, runtime))] if others else []
            _make_duplicates(options, sources, out)
    settings = {"split": files.split, "root": reading.root, "image_size": loading.image_size}
    settings |= {"precision": runtime.precision, **reading.values, **reading.columns.words}
    what = {"checkpoint": name_of(files.checkpoint, model), "data": data}
    _tell("next", _following(options, embedding, what, settings, out))
    return embedding


def _check_named(options: Options, files: Files) -> None:
    such = {"checkpoint": "runs/zoo/NAME", "data": "path/to/images", "out": "features.npz"}
    for name, example in such.items():
        if getattr(files, name) in (None, ""):
            raise UserError(f"{name} is not given: {name}={example}")
    if files.against is not None and not options.duplicates:
        raise UserError(f"against={files.against} is compared for duplicates: add duplicates=true")


def _count(parts: Sequence[Part]) -> int:
    return sum(len(opened.split) for opened in parts)


def _write_features(out: Path, extracted: Callable[[], Embedding]) -> Embedding:
    start = time.perf_counter()
    embedding = extracted()
    n, width = embedding.x.shape
    lost = len(embedding.unreadable)
    left_out = f"; {lost:,} unreadable left out, named in {out}" if lost else ""
    _tell("features", f"{n:,} x {width} float32 in {time.perf_counter() - start:.1f} s{left_out}")
    write(embedding, out)
    _tell("written", f"{out}, {out.stat().st_size / 1e6:.1f} MB")
    return embedding


def beside(out: Path, ending: str) -> Path:
    """Return the path of a file beside the features: features.npz, "-map.png" -> features-map.png."""
    return out.with_name(out.stem + ending)


def _make(options: Options, embedding: Embedding, parts: Sequence[Part], out: Path, seed: int) -> None:
    if options.neighbours is not None:
        arrays, table = beside(out, "-neighbours.npz"), beside(out, "-neighbours.csv")
        near = nearest(embedding.x, options.neighbours, options.search)
        write_neighbours(near, embedding.paths, arrays, table)
        recall = "" if options.search == "exact" else f", {100 * near.recall:.1f} % of the exact ones found"
        _tell("nearest", f"{options.neighbours} of each image ({options.search}{recall}): {arrays}; to read: {table}")
    if options.map is not None:
        path = beside(out, f"-{options.map}.png")
        draw_map(embedding, parts, path, options.map, seed=seed)
        _tell("map", str(path))


def _make_duplicates(options: Options, sources: Sequence[Source], out: Path) -> None:
    pairs = duplicates(sources, options.threshold)
    table, sheet = beside(out, "-duplicates.csv"), beside(out, "-duplicates.png")
    write_duplicates(pairs, sources, table)
    n, exact = sum(len(source.embedding) for source in sources), int(pairs.exact.sum())
    if n_unique := write_unique(pairs, sources[0], beside(out, "-unique.txt")):
        _tell("unique", f"{counted(n_unique, 'image')} without exact copies: data={beside(out, '-unique.txt')}")
    _tell("near", f"{pairs.rule} (threshold={options.threshold})")
    if not len(pairs):
        sheet.unlink(missing_ok=True)  # of an earlier run
        _tell("alike", f"no image is a copy or near-copy of another: {table} is empty")
        return
    contact_sheet(pairs, sources, sheet)
    _tell(
        "alike",
        f"{pairs.images:,} of {n:,} images in {counted(pairs.group.max(), 'group')}: {exact:,} of the same content "
        f"as an earlier one, {len(pairs) - exact:,} near-copies: {table}, {sheet}",
    )


def _following(
    options: Options, embedding: Embedding, what: Mapping[str, Any], settings: Mapping[str, Any], out: Path
) -> str:
    """Return the next command: for what was not made yet, to judge the model on these images, or to train on them.

    what: model and data. settings: other options of this command.
    """
    usual = {"split": Files.split, "root": Reading.root, "precision": Runtime.precision, **AS_USUAL.values}
    changed = {name: value for name, value in settings.items() if value not in (usual.get(name), None)}
    more = {"neighbours": 10} if options.neighbours is None else {}
    more |= {} if options.duplicates else {"duplicates": True}
    more |= {"map": "tsne"} if options.map is None else {}
    if more:
        return f"python recipes/embed.py {words({**what, 'out': os.fspath(out), **changed, **more})}"
    changed.pop("split", None)
    if {"train", "test"} <= set(embedding.splits) and len(embedding.classes) > 1:
        return f"python recipes/evaluate.py {words({**what, **changed})}"
    read = {name: changed[name] for name in (*VALUES, *columns.OPTIONS) if name in changed}
    return f"python recipes/train.py method=byol+dsa {words({'data': what['data'], **read})}"


def _tell(label: str, text: str) -> None:
    say.line(f"{label:<10}{text}")
