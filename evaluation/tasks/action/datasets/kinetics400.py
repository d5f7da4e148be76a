"""Kinetics-400 (Kay et al. 2017, arXiv 1705.06950): 400 actions, videos of ten seconds; test is the validation list.

YouTube links expire: about a tenth of the listed videos is missing from a usual copy (deepmind/kinetics-i3d#51), copies
differ by thousands of videos, and some files are damaged (cvdfoundation/kinetics-dataset#3). Missing videos are left
out, counted and listed in the result, which contains the digest of the available videos.
"""

import csv
import os
from pathlib import Path

from evaluation.tasks.action.datasets.base import Entry, Listing, films_below
from sslkit.errors import UserError

PARTS = {"train": ("train",), "test": ("val", "validate")}
COLUMNS = {"label", "youtube_id", "time_start", "time_end"}


def list_split(root: Path, split: str, fold: int) -> Listing:
    rows = _rows(_list(root, split))
    classes = sorted({row["label"] for row in _rows(_list(root, "train"))})
    if unknown := sorted({row["label"] for row in rows} - set(classes)):
        raise UserError(f"{_list(root, split)}: the classes {', '.join(unknown)} are not in {_list(root, 'train')}")
    label = {name: number for number, name in enumerate(classes)}
    folder = next(root / name for name in _folders(split) if (root / name).is_dir())
    there = {os.path.splitext(os.path.basename(path))[0]: path for path in films_below(folder)}
    wanted = [f"{row['youtube_id']}_{int(row['time_start']):06d}_{int(row['time_end']):06d}" for row in rows]
    paths = [there.get(name, there.get(row["youtube_id"])) for name, row in zip(wanted, rows, strict=True)]
    return Listing(folder, wanted, paths, [label[row["label"]] for row in rows], classes)


def _list(root: Path, split: str) -> Path:
    return next(root / name for name in _lists(split) if (root / name).is_file())


def _rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as opened:
        reader = csv.DictReader(opened)
        if lacking := COLUMNS - set(reader.fieldnames or ()):
            raise UserError(f"{file} has no column {', '.join(sorted(lacking))} in its first line")
        return list(reader)


def _lists(split: str) -> tuple[str, ...]:
    return tuple(f"{folder}{name}.csv" for folder in ("annotations/", "", "kinetics_") for name in PARTS[split])


def _folders(split: str) -> tuple[str, ...]:
    return tuple(f"{folder}{name}" for folder in ("", "videos/") for name in PARTS[split])


def files(fold: int) -> list[tuple[str, ...]]:
    return [names(split) for names in (_lists, _folders) for split in PARTS]


ENTRY = Entry(
    title="Kinetics-400",
    read=list_split,
    classes=400,
    counts={},
    folds=(1,),
    folders=("kinetics400", "k400", "kinetics-400"),
    files=files,
    origin=(
        "https://github.com/cvdfoundation/kinetics-dataset (the archives of k400/train and k400/val, those of "
        "k400/replacement over them, and annotations/train.csv, annotations/val.csv; 450 GB)"
    ),
    licence="videos of YouTube; the annotations are CC BY 4.0",
    may_miss=True,
)
