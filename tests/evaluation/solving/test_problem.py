"""A part is held back that nothing sees: whole groups and near-copies, of every class; labels of a part; bad input."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from evaluation.datasets import Reading
from evaluation.solving.problem import open_problem
from sslkit.data.columns import Columns
from sslkit.errors import UserError


def picture(path: Path, seed: int, shade: int = 0) -> Path:
    """A picture of a few large squares, a little darker by `shade`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    blocks = np.random.default_rng(seed).integers(40, 255, (4, 4, 3)).repeat(12, 0).repeat(12, 1)
    Image.fromarray((blocks - shade).astype(np.uint8)).save(path)
    return path


def reading(tmp_path: Path, **columns: str) -> Reading:
    return Reading(cache=tmp_path / "cache", columns=Columns(**columns))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """20 pictures of two classes, and each a second time, a little darker."""
    for number in range(20):
        for shade in (0, 3):
            picture(tmp_path / "set" / "ab"[number % 2] / f"{number}-{shade}.png", number, shade)
    return tmp_path / "set"


def test_near_copies_stay_on_one_side_and_every_class_is_on_both(folder: Path, tmp_path: Path) -> None:
    problem = open_problem(folder, reading(tmp_path), 0)
    known, held_back = (
        {Path(name).name.split("-")[0] for name in split.ids} for split in (problem.development, problem.held_back)
    )
    assert not known & held_back and len(problem.development) + len(problem.held_back) == 40
    assert set(problem.development.y) == set(problem.held_back.y) == {0, 1} and problem.classes == ("a", "b")
    assert "near-copies stay on one side" in problem.notes[0]


def test_what_is_pretrained_on_has_no_label_and_no_held_back_image(folder: Path, tmp_path: Path) -> None:
    problem = open_problem(folder, reading(tmp_path), 0)
    names = {problem.pretrainable.image_name(row) for row in range(len(problem.pretrainable))}
    assert names == set(problem.development.ids) and not names & set(problem.held_back.ids)
    assert problem.pretrainable.labels is None and problem.pretrainable.source is None


def test_images_without_a_label_are_pretrained_on_but_those_like_held_back_ones(tmp_path: Path) -> None:
    rows = ["path,label"]
    for number in range(20):
        rows.append(f"{picture(tmp_path / f'{number}.png', number).name},{'ab'[number % 2]}")
    for number in range(30):
        rows.append(f"{picture(tmp_path / f'more{number}.png', number, 2).name},")
    (tmp_path / "list.csv").write_text("\n".join(rows) + "\n")
    problem = open_problem(str(tmp_path / "list.csv"), reading(tmp_path, label="label"), 0)
    assert len(problem.development) + len(problem.held_back) == 20
    assert problem.count_unlabelled() == 30 - len(problem.held_back)


def test_test_images_of_the_data_are_held_back(tmp_path: Path) -> None:
    problem = open_problem("digits", reading(tmp_path), 0)
    assert (len(problem.development), len(problem.held_back)) == (1438, 359)
    assert len(problem.pretrainable) == 1438 and problem.pretrainable.labels is None


def test_another_seed_holds_others_back(folder: Path, tmp_path: Path) -> None:
    first, second = (set(open_problem(folder, reading(tmp_path), seed).held_back.ids) for seed in (0, 1))
    assert first != second


def test_no_labels_one_class_and_classes_of_one_image_are_refused(tmp_path: Path) -> None:
    for number in range(3):
        picture(tmp_path / "none" / "a" / f"{number}.png", number)
        picture(tmp_path / "alone" / f"class{number}" / "x.png", number)
    table = tmp_path / "one.csv"
    table.write_text("path,label\nnone/a/0.png,a\nnone/a/1.png,a\n")
    with pytest.raises(UserError, match="has one class, 'a': a classifier needs at least 2"):
        open_problem(table, reading(tmp_path, label="label"), 0)
    with pytest.raises(UserError, match="has no labels in its split 'all'"):
        open_problem(tmp_path / "none", reading(tmp_path), 0)
    with pytest.raises(UserError, match="no class has 2 labelled images, so none can be held out to measure on"):
        open_problem(tmp_path / "alone", reading(tmp_path), 0)


def test_a_class_of_test_alone_is_refused(tmp_path: Path) -> None:
    for number in range(4):
        picture(tmp_path / "set" / "train" / "ab"[number % 2] / f"{number}.png", number)
        picture(tmp_path / "set" / "test" / "abcd"[number] / f"t{number}.png", 50 + number)
    with pytest.raises(UserError, match="classes that train has no image of: c, d"):
        open_problem(tmp_path / "set", reading(tmp_path), 0)
