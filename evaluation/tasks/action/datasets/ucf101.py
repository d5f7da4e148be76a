"""UCF101 (Soomro et al. 2012, arXiv 1212.0402): 13,320 videos of 101 actions, three official splits.

The videos of one group (g01 to g25) share footage, so a random split would leak: the lists keep groups together.
The test lists have no labels; the class is the folder.
"""

import re
from pathlib import Path

from evaluation.tasks.action.datasets.base import Entry, Listing, by_stem, films_below
from sslkit.errors import UserError
from sslkit.files.reading import regular

LISTS, FILMS = ("ucfTrainTestlist", "."), ("UCF-101", "videos", "UCF101")
COUNTS = {1: (9537, 3783), 2: (9586, 3734), 3: (9624, 3696)}


def list_split(root: Path, split: str, fold: int) -> Listing:
    lists = next(root / name for name in LISTS if (root / name / "classInd.txt").is_file())
    numbers = [line.split() for line in (lists / "classInd.txt").read_text().splitlines() if line.strip()]
    classes = [name for _, name in sorted((int(number), name) for number, name in numbers)]
    wanted = _names(lists, split, fold)
    other = _names(lists, "test" if split == "train" else "train", fold)
    if shared := {_group(name) for name in wanted} & {_group(name) for name in other}:
        raise UserError(f"{lists}: split {fold} has videos of group {min(shared)} in both lists; download them again")
    label = {name.lower(): number for number, name in enumerate(classes)}
    y = [label[name.partition("/")[0].lower()] for name in wanted]
    folder = next(root / name for name in FILMS if (root / name).is_dir())
    there = by_stem(films_below(folder))
    return Listing(folder, wanted, [there.get(name.rpartition(".")[0].lower()) for name in wanted], y, classes)


def _names(lists: Path, split: str, fold: int) -> list[str]:
    """The first word of each line; in the training list the class number follows it."""
    lines = regular(lists / f"{split}list{fold:02d}.txt").read_text().splitlines()
    return [line.split()[0] for line in lines if line.strip()]


def _group(name: str) -> str:
    """Class and group: "ApplyEyeMakeup/v_ApplyEyeMakeup_g08"."""
    return re.sub(r"_c\d+\.\w+$", "", name)


def files(fold: int) -> list[tuple[str, ...]]:
    lists = ("classInd.txt", f"trainlist{fold:02d}.txt", f"testlist{fold:02d}.txt")
    return [*(tuple(str(Path(folder) / name) for folder in LISTS) for name in lists), FILMS]


ENTRY = Entry(
    title="UCF101",
    read=list_split,
    classes=101,
    counts={(split, fold): COUNTS[fold][split == "test"] for fold in COUNTS for split in ("train", "test")},
    folds=(1, 2, 3),
    folders=("UCF101", "ucf101"),
    files=files,
    origin=(
        "https://www.crcv.ucf.edu/data/UCF101.php (UCF101.rar, 6.5 GB, and "
        "UCF101TrainTestSplits-RecognitionTask.zip, unpacked beside each other)"
    ),
    licence="videos of YouTube, for research",
)
