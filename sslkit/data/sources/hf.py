"""Hugging Face data sets with an image column: on disk (Arrow or Parquet), or by their name on the hub."""

import atexit
import hashlib
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from tqdm import tqdm

from sslkit.data.columns import Columns
from sslkit.data.decode.formats import EXTENSIONS
from sslkit.data.decode.opening import Picture, open_picture
from sslkit.data.decode.unreadable import UnreadableImage
from sslkit.data.decoded_images import DecodedImages
from sslkit.data.file_contents import FileContents, bar_is_off, remember_digest
from sslkit.data.images import Identity, ImageOptions, check_split
from sslkit.data.path_list import PathList
from sslkit.data.sources.hf_columns import (
    check_columns,
    divide_table,
    filter_tables,
    groups_of,
    image_column,
    warn_of_other_splits,
)
from sslkit.data.sources.hf_labels import labels_of
from sslkit.data.sources.split_words import resolve_split, split_of, usual
from sslkit.errors import UserError, first_line
from sslkit.files.reading import regular
from sslkit.files.stamps import stamp_of, wait_for_tick
from sslkit.terminal import say

PREFIX = "hf:"
_ROWS_AT_ONCE = 1000  # labels and names alone: no image is decoded


class HfImages(DecodedImages):
    """The rows of one split of a data set, each read when it is asked for."""

    def __init__(self, table: Any, column: str, identity: Identity, options: ImageOptions) -> None:
        import datasets

        self._table = table.select_columns([column]).cast_column(column, datasets.Image(decode=False))
        self._column = column
        super().__init__(identity, options)

    def __len__(self) -> int:
        return len(self._table)

    def path(self, row: int) -> str:
        return f"{self.name}, {self.split}, row {row}"

    def image_name(self, row: int) -> str:
        """The number of the row in the data set's split."""
        return str(row)

    def _take(self, rows: np.ndarray) -> None:
        self._table = self._table.select(rows)

    def content(self, row: int) -> bytes:
        """The encoded image; b"" of a row without one. Raises OSError."""
        image = self._table[row][self._column]
        if image is None:
            return b""
        return regular(Path(image["path"])).read_bytes() if image["bytes"] is None else image["bytes"]

    def content_size(self, row: int) -> int:
        """Bytes of `content`."""
        return len(self.content(row))

    def _open(self, row: int) -> Picture:
        try:
            image = self._table[row][self._column]
        except Exception as error:  # Arrow raises its own
            raise UnreadableImage(first_line(error)) from error
        if image is None:
            raise UnreadableImage("the row has no image")
        return open_picture(io.BytesIO(image["bytes"]) if image["bytes"] is not None else image["path"], self.opening)

    def _update_listing(self, digest: Any) -> None:
        digest.update(f"{len(self)} {self._column}".encode())

    def _update_digest(self, digest: Any) -> None:
        self._update_listing(digest)
        digest.update(remember_digest(self.options.cache, self._state(), self._content).encode())
        if outside := self._outside():
            outside.update_content(digest)

    def stamps_digest(self) -> str | None:
        if not self._table.cache_files:  # a table in memory
            return None
        outside = self._outside()
        return f"{self._state()} {outside and outside.stamps_digest()}"

    def _state(self) -> str:
        """What changes with the table: its fingerprint, and the stamps of its files."""
        stamps = [stamp_of(os.stat(file["filename"])) for file in self._table.cache_files]
        wait_for_tick(np.array([stamp.changed for stamp in stamps], np.int64))
        return repr((self._table._fingerprint, self._column, stamps))

    def _outside(self) -> FileContents | None:
        """The files of the rows whose images are not in the table."""
        import pyarrow.compute as pc  # comes with datasets

        paths: list[str] = []
        for batch in self._table.with_format("arrow").iter(_ROWS_AT_ONCE):
            for chunk in batch.column(self._column).chunks:
                is_outside = pc.and_(pc.is_null(chunk.field("bytes")), pc.is_valid(chunk.field("path")))
                paths += chunk.field("path").filter(is_outside).to_pylist()
        if not paths:
            return None
        root = os.path.commonpath([os.path.dirname(path) for path in paths])
        return FileContents(Path(root), PathList([os.path.relpath(path, root) for path in paths]), self.options.cache)

    def _content(self) -> str:
        """sha256 (hex) of the images in the table, whose own fingerprint depends on where it lies."""
        digest = hashlib.sha256()
        for row in tqdm(range(len(self)), desc="content", unit="image", delay=2, disable=bar_is_off()):
            image = self._table[row][self._column]
            digest.update(hashlib.sha256((image and image["bytes"]) or b"").digest())
        return digest.hexdigest()


def splits_of_hf(source: str, cache: str | Path | None, columns: Columns) -> tuple[str, ...]:
    """cache, columns: as of `open_hf`."""
    return tuple(_tables(source, cache, columns))


def _tables(source: str, cache: str | Path | None, columns: Columns) -> dict[str, Any]:
    """The table of each split, "train" first."""
    name, tables = name_of_hf(source), _load(_parse_source(source), cache)
    tables = filter_tables(tables, columns, name)
    if columns.split is not None:
        return divide_table(tables, columns, name)
    splits = _usual(tables)
    _warn_of_splits(name, splits, tables)
    tables = {split: tables[original] for split, original in splits.items()}
    warn_of_other_splits(tables, name)
    return tables


def open_hf(source: str, options: ImageOptions) -> HfImages:
    """One split of `hf:PATH` or `hf:NAME`.

    PATH: a folder that `save_to_disk` wrote, or one with Parquet or Arrow files, which the library converts once below
    `options.cache`. NAME: on the hub, from where the library downloads to its cache.
    Splits: "train" first, or the first there is, with a warning, as of those that are not read; they are called as of a
    folder, and a single held-out split is "test". Labels: see `hf_labels.labels_of`.
    options.columns: those that are not given are the only column of images, and of labels the usual.
    Raises UserError if the package datasets is missing, for what cannot be loaded, for a data set without images, and
    for streamed ones.
    """
    tables = _tables(source, options.cache, options.columns)
    wanted = resolve_split(options.split, tables)
    check_split(source, wanted, tuple(tables))
    return of_tables(tables, wanted, name_of_hf(source), source, options)


def name_of_hf(source: str) -> str:
    """A name for tables: the last part of the path, or of the name on the hub."""
    return _parse_source(source).rstrip("/").rpartition("/")[2] or "hf"


def of_tables(tables: dict[str, Any], split: str, name: str, source: str | None, options: ImageOptions) -> HfImages:
    """Images of one split of several `datasets.Dataset`.

    Raises UserError for a streamed one, for one without rows, and one without a column of images.
    """
    import datasets

    table, columns = tables[split], options.columns

    if not isinstance(table, datasets.Dataset):
        raise UserError(
            f"{name} is a streamed data set, whose rows have no numbers, so that they cannot be shuffled or resumed: "
            "load it without streaming, or write it to disk with save_to_disk"
        )
    if not len(table):
        raise UserError(f"{name}, split {options.split}: there are no rows")
    check_columns(table, columns, name)
    identity = Identity(
        name,
        source,
        tuple(tables),
        **labels_of(table, list(tables.values()), name, columns),
        groups=groups_of(tables, split, columns, name),
    )
    return HfImages(table, image_column(table, columns, name), identity, options)


def is_table(source: Any) -> bool:
    """Return whether an object is a split of a Hugging Face data set, or several, without importing the package."""
    datasets = sys.modules.get("datasets")
    return datasets is not None and isinstance(
        source, (datasets.Dataset, datasets.DatasetDict, datasets.IterableDataset, datasets.IterableDatasetDict)
    )


def _parse_source(source: str) -> str:
    where, mark, columns = source.removeprefix(PREFIX).partition("#")
    if mark:
        raise UserError(
            f"{source}: columns are named by columns.image= and columns.label={columns}, with data=hf:{where}"
        )
    return where


def _load(where: str, cache: str | Path | None) -> dict[str, Any]:
    """The splits of a data set by their own names."""
    try:
        import datasets
    except ImportError as error:
        raise UserError(f"hf:{where} needs the package datasets: pip install datasets") from error
    if not where:
        raise UserError("hf: names no data set: give hf:PATH of a folder, or hf:NAME on the hub")
    path = Path(where).expanduser()
    if path.is_file():
        raise UserError(
            f"hf:{where} is a file: give the folder that holds the Arrow or Parquet files, hf:{path.parent}"
        )
    whole = any((path / name).is_file() for name in ("dataset_dict.json", "state.json"))
    if os.sep in where and not path.exists() and where.count("/") != 1:
        raise UserError(f"hf:{where}: there is no folder {path}")
    load = datasets.load_from_disk if whole else datasets.load_dataset
    if path.is_dir():
        _check_local(path, whole)
    try:
        how = {"cache_dir": _conversion_folder(path, cache)} if path.is_dir() and not whole else {}
        tables = load(str(path) if path.exists() else where, **how)
    except IndexError as error:  # of datasets, which does not look whether there is a file
        raise UserError(f"cannot load hf:{where}: it has no rows") from error
    except Exception as error:  # of datasets, the hub and Arrow
        raise UserError(f"cannot load hf:{where}: {type(error).__name__}: {first_line(error)}") from error
    return dict(tables) if isinstance(tables, datasets.DatasetDict) else {"train": tables}


def _conversion_folder(folder: Path, cache: str | Path | None) -> str:
    """The folder for what the library makes of a local one, which it would use again for changed files of equal times.

    Its name tells the names of all files, and the content of those that are no images: of an image file the library
    keeps the path alone. Without a cache it is removed when the process ends.
    """
    if cache is None:
        scratch = tempfile.mkdtemp(prefix="sslkit-hf-")
        atexit.register(shutil.rmtree, scratch, ignore_errors=True)
        return scratch
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    digest = hashlib.sha256(os.fsencode("\0".join([str(folder.resolve()), *files])))
    read = [name for name in files if name.rpartition(".")[2].lower() not in EXTENSIONS]
    FileContents(folder, PathList(read), cache).update_content(digest)
    return str(Path(cache).absolute() / f"tables-{digest.hexdigest()[:32]}")


def _check_local(folder: Path, whole: bool) -> None:
    """Raises UserError if the library would leave the folder for a URL that its files name, or wait at one of them.

    whole: `save_to_disk` wrote the folder, whose other files name no data.
    """
    try:
        for file in folder.rglob("*"):
            if file.exists():
                regular(file)
        named = {} if whole else _data_entries(folder)
    except Exception as error:  # of YAML and the hub
        raise UserError(f"cannot load hf:{folder}: {first_line(error)}") from error
    for file, content in named.items():
        for text in _texts(content):
            if "://" in text or "::" in text:
                raise UserError(
                    f"cannot load hf:{folder}: its {file} names data at {text[:200]!r}, and a local folder is read "
                    "without the network: download the data into it, and name the files there"
                )


def _data_entries(folder: Path) -> dict[str, Any]:
    """Return the entries on data in the settings of a folder, by the name of their file."""
    from datasets import config
    from huggingface_hub import DatasetCard

    card, more = folder / config.REPOCARD_FILENAME, folder / config.REPOYAML_FILENAME
    contents = {card.name: DatasetCard.load(card).data.to_dict()} if card.is_file() else {}
    if more.is_file():
        contents[more.name] = yaml.safe_load(more.read_text(encoding="utf-8"))
    return {name: content.get("configs") for name, content in contents.items() if isinstance(content, dict)}


def _texts(content: Any) -> Iterator[str]:
    """The texts in nested lists and mappings, each of which is looked at once: YAML can repeat them without end."""
    pending, seen = [content], set()
    while pending:
        node = pending.pop()
        if isinstance(node, str):
            yield node
        elif isinstance(node, (dict, list)) and id(node) not in seen:
            seen.add(id(node))
            pending += [*node, *node.values()] if isinstance(node, dict) else node


def _usual(tables: dict[str, Any]) -> dict[str, str]:
    """The data set's split for each of the usual names."""
    names = {split_of(name) or name: name for name in tables}
    first = "train" if "train" in names else next(iter(names))
    held_out = {name: original for name, original in names.items() if name in ("val", "test") and name != first}
    return usual({"train": names[first], **held_out}) or {"train": names[first]}


def _warn_of_splits(name: str, known: Mapping[str, str], tables: Mapping[str, Any]) -> None:
    """Warn of splits that are not read, and if one of another name is learned from."""
    if split_of(known["train"]) != "train" and len(tables) > 1:
        say.warn(f"{name} has no split train: its split {known['train']} is learned from", stacklevel=5)
    if others := [split for split in tables if split not in known.values()]:
        say.warn(f"{name}: its splits {', '.join(others)} are not read", stacklevel=5)
