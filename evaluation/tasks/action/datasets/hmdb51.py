"""HMDB51 (Kuehne et al. 2011): 51 actions, three official splits of 70 training and 30 test videos of each.

Each list covers one class: 1 is training, 2 is test, 0 is neither. The rest of about 6,800 videos is unused.
"""

from pathlib import Path

from evaluation.tasks.action.datasets.base import Entry, Listing, by_stem, films_below
from sslkit.errors import UserError
from sslkit.files.reading import regular

LISTS = ("testTrainMulti_7030_splits", "test_train_splits/testTrainMulti_7030_splits", "splits")
FILMS = ("videos", "hmdb51_org", "HMDB51")
MARKS = {"train": "1", "test": "2"}


def list_split(root: Path, split: str, fold: int) -> Listing:
    folder = next(root / name for name in FILMS if (root / name).is_dir())
    lists = next(root / name for name in LISTS if (root / name).is_dir())
    ending = f"_test_split{fold}.txt"
    files = sorted(lists.glob(f"*{ending}"))
    if not files:
        raise UserError(f"{lists} has no list CLASS{ending}: check that test_train_splits.rar is completely unpacked")
    classes = [file.name.removesuffix(ending) for file in files]
    there = by_stem(films_below(folder))
    wanted, y = [], []
    for label, (name, file) in enumerate(zip(classes, files, strict=True)):
        chosen = _with_mark(file, MARKS[split])
        wanted += [f"{name}/{film}" for film in chosen]
        y += [label] * len(chosen)
    return Listing(folder, wanted, [there.get(name.rpartition(".")[0].lower()) for name in wanted], y, classes)


def _with_mark(file: Path, mark: str) -> list[str]:
    """The videos of a list with a given mark. Raises UserError for a line that is not a name and 0, 1 or 2."""
    names = []
    for number, line in enumerate(regular(file).read_text().splitlines(), 1):
        words = line.split()
        if words and (len(words) != 2 or words[1] not in ("0", "1", "2")):
            raise UserError(f"{file} line {number}: {line!r} is not a file name and 0, 1 or 2")
        if words and words[1] == mark:
            names.append(words[0])
    return names


def files(fold: int) -> list[tuple[str, ...]]:
    return [LISTS, FILMS]


ENTRY = Entry(
    title="HMDB51",
    read=list_split,
    classes=51,
    counts={(split, fold): count for fold in (1, 2, 3) for split, count in (("train", 3570), ("test", 1530))},
    folds=(1, 2, 3),
    folders=("HMDB51", "hmdb51"),
    files=files,
    origin=(
        "https://serre-lab.clps.brown.edu/resource/hmdb-a-large-human-motion-database/ (hmdb51_org.rar, 2 GB, whose "
        "51 archives are unpacked into videos/CLASS, and test_train_splits.rar)"
    ),
    licence="CC BY 4.0",
)
