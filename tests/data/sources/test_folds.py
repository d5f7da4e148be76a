"""`columns.split=fold:4`: numbered folds, of which one is held out."""

import re
from pathlib import Path

import pytest
from patients import NAMES, SOURCES, of_folder, patient_of

from sslkit.data.columns import Columns
from sslkit.data.sources.named import open_images, splits
from sslkit.errors import UserError

COLUMNS = {"label": "finding", "split": "patient:no 4", "group": "patient"}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", SOURCES)
def test_the_fold_that_is_named_is_held_out_in_every_source(name: str, tmp_path: Path) -> None:
    source = SOURCES[name](tmp_path)
    assert splits(source, None, Columns(**COLUMNS)) == ("train", "test")
    train, test = (open_images(source, split=part, columns=COLUMNS, cache=None) for part in ("train", "test"))
    assert len(test) == sum(patient_of(name) == 4 for name in NAMES) and len(train) + len(test) == len(NAMES)
    assert len(set(test.groups.tolist())) == 1 and not set(test.groups.tolist()) & set(train.groups.tolist())


def folds(folder: Path, *values: str) -> str:
    of_folder(folder)
    lines = [f"{name},{value}" for name, value in zip(NAMES, values, strict=False)]
    (folder / "folds.csv").write_text("\n".join(["path,fold", *lines]))
    return f"{folder}/folds.csv"


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_numbers_of_spreadsheets_are_the_whole_ones(tmp_path: Path) -> None:
    source = folds(tmp_path, "0.0", "1.0", "2.0", "2.0")
    assert len(open_images(source, split="test", columns={"split": "fold:2"}, cache=None)) == 2


WRONG = {
    None: "line 2: '0' is no split: .* of folds, columns.split=COLUMN:0 holds out that one",
    "fold": "line 2: '0' is no split: .* of folds, columns.split=fold:0 holds out that one",
    "fold:7": re.escape("columns.split=fold:7: no image of "),
    "folds:1": "columns.split=folds: .* has no such column: did you mean 'fold'",
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("word", WRONG)
def test_what_is_wrong_says_what_to_type(word: str | None, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=WRONG[word]) as raised:
        open_images(folds(tmp_path, "0", "1", "2"), columns={"split": word}, cache=None)
    assert "\n" not in str(raised.value) and (word != "fold:7" or "its values are 0, 1, 2" in str(raised.value))
