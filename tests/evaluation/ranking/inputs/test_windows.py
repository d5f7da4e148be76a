"""Windows of a segmentation set: their places, their labels, and what is drawn."""

from dataclasses import replace

import numpy as np
import pytest

import evaluation
from evaluation.ranking.inputs import windows as module
from evaluation.ranking.inputs.objects import SIDE
from evaluation.ranking.inputs.regions import parts, recipe_for
from evaluation.ranking.inputs.windows import EACH, GRID, open_windows, window
from evaluation.tasks.segmentation.label_maps import IGNORED, LabelMaps
from evaluation.tasks.segmentation.sources import open_label_maps
from sslkit.errors import UserError


@pytest.fixture(scope="module")
def maps() -> LabelMaps:
    return open_label_maps("clipart_boxes", "test").take(np.arange(20))


def test_a_label_is_the_most_frequent_class_of_the_cell(maps: LabelMaps) -> None:
    split = open_windows(maps, "test")
    row_of = {str(name): row for row, name in enumerate(maps.ids)}
    for label, name in zip(split.y, split.ids, strict=True):
        image, cell = name.rsplit(" ", 1)
        classes = maps[row_of[image]][1].numpy()
        row, column = divmod(int(cell), GRID)
        h, w = (side // GRID for side in classes.shape)
        inside = classes[row * h : (row + 1) * h, column * w : (column + 1) * w]
        counts = np.bincount(inside.ravel(), minlength=len(maps.classes))
        assert counts[maps.classes.index(split.classes[label])] == counts.max()
    assert len(split) == EACH * len(maps) and len(set(split.ids)) == len(split)
    assert split.images[0]["images"].shape == (3, SIDE, SIDE)
    shares = np.bincount(split.y) / len(split)
    assert split.classes[0] == "background" and 0.4 < shares[0] < 0.8, "small classes are drawn too"


def test_a_window_is_about_its_cell_and_larger(maps: LabelMaps) -> None:
    left, upper, right, lower = window(GRID + 2, (80, 160)).tolist()
    assert ((left + right) / 2, (upper + lower) / 2) == (50, 15)
    assert right - left == lower - upper == module.REACH * 20


def test_the_same_seed_draws_the_same_windows(maps: LabelMaps) -> None:
    one, same, other = (open_windows(maps, "test", seed=seed) for seed in (0, 0, 1))
    assert one.ids.tolist() == same.ids.tolist() != other.ids.tolist() and one.digest == same.digest


def test_pixels_that_do_not_count_have_no_window(maps: LabelMaps) -> None:
    class Half:
        """The right half is ignored."""

        def __getitem__(self, row: int) -> np.ndarray:
            classes = maps.maps[row].copy()
            classes[:, classes.shape[1] // 2 :] = IGNORED
            return classes

    split = open_windows(replace(maps, maps=Half()), "test")
    columns = {int(name.rsplit(" ", 1)[1]) % GRID for name in split.ids}
    assert columns <= set(range(GRID // 2))


def test_it_can_be_ranked_and_names_what_judges_it(maps: LabelMaps) -> None:
    split = open_windows(maps, "test")
    found = evaluation.rank(["random:narrow_resnet"], split, ["knn", "logme"], image_size=32, split="test", bootstrap=2)
    assert np.isfinite(found.scores).all()
    assert parts("masks:voc12_seg:data") == ("masks:", "voc12_seg:data") and parts("digits") is None
    assert recipe_for("masks:")[0] == "evaluate" and recipe_for("boxes:")[0] == "detect"


def test_one_class_and_an_unknown_set_are_one_line(maps: LabelMaps) -> None:
    class Empty:
        def __getitem__(self, row: int) -> np.ndarray:
            return np.zeros(tuple(maps.maps[row].shape), np.uint8)

    with pytest.raises(UserError, match="of 1 classes, two are needed"):
        open_windows(replace(maps, maps=Empty()), "test")
    with pytest.raises(UserError, match="no segmentation set 'nowhere'"):
        open_windows("nowhere", split="train")
