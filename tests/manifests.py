"""A small folder of pictures, the manifest that `look` writes of it, and corrections as a person makes them."""

import csv
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

import sslkit
from sslkit.data.images import Images
from sslkit.data.manifest.table import Manifest


def write_folder(folder: Path, *, deep: int = 0) -> Path:
    """Twelve pictures of two classes in train and test. deep: the greatest value of 16 bits; 0 for 8 bits and RGB."""
    rng = np.random.default_rng(0)
    for row in range(12):
        path = folder / ("test" if row % 3 == 2 else "train") / "ab"[row % 2] / f"p{row % 6}_{row}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        plain = rng.integers(0, 255, (8 + row, 9, 3), np.uint8)
        Image.fromarray(rng.integers(0, deep, (8 + row, 9), np.uint16) if deep else plain).save(path)
    return folder


def look(folder: Path, **options) -> Manifest:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        about = {"out": str(folder.parent / "manifest.csv"), "cache": str(folder.parent / "cache"), "progress": False}
        return sslkit.look(folder, **about | options)


def opened(source: Path, split: str = "train", **options) -> Images:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sslkit.open_images(str(source), split=split, **{"image_size": 8, "cache": None} | options)


def table(path: Path) -> tuple[list[list[str]], list[dict[str, str]]]:
    """The lines of the head, and the rows by their columns."""
    lines = list(csv.reader(path.open(newline="", encoding="utf-8")))
    start = next(n for n, cells in enumerate(lines) if not cells[0].startswith("#"))
    return lines[:start], [dict(zip(lines[start], cells, strict=True)) for cells in lines[start + 1 :]]


def rewrite(path: Path, change: Callable[[list[dict[str, str]]], object]) -> None:
    """Correct the rows of a manifest as a person does in a spreadsheet."""
    head, rows = table(path)
    change(rows)
    _write(path, head, rows)


def rewrite_head(path: Path, words: dict[str, str]) -> None:
    """Correct the last cell of some decisions: {"range": "range=[0,900]"}."""
    head, rows = table(path)
    for cells in head[1:]:
        cells[3:] = [words.get(cells[0].removeprefix("# "), cells[3])] if len(cells) > 3 else []
    _write(path, head, rows)


def _write(path: Path, head: list[list[str]], rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerows([*head, list(rows[0]), *(list(row.values()) for row in rows)])


def names(images: Images) -> list[str]:
    return [Path(images.image_name(row)).name for row in range(len(images))]
