"""views.png: captions of rows and columns, proportions, the parts that MAE sees, and that all text is inside."""

from pathlib import Path

import numpy as np
import pytest
import torch
from photographs import write_jpegs
from PIL import Image, ImageDraw

from sslkit.composition.method import Method
from sslkit.data.thumbnails import captions_of
from sslkit.data.views.sheet import Sheet
from sslkit.numerics.captions import SIZE, _font, caption
from sslkit.training import pictures
from sslkit.training.build import build_method
from sslkit.training.config import Config
from sslkit.training.data import open_data, rows_to_learn
from sslkit.training.pictures import add_hidden, blank_views, over_classes


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[float, float, float, float]]]:
    """Every text written on a picture, with its box (left, top, right, bottom) in pixels."""
    texts = []
    draw = ImageDraw.ImageDraw.text

    def record(self, xy, text, *args, **options) -> None:
        font, anchor = options["font"], options["anchor"]
        texts.append((text, self.textbbox(xy, text, font=font, anchor=anchor)))
        draw(self, xy, text, *args, **options)

    monkeypatch.setattr(ImageDraw.ImageDraw, "text", record)
    return texts


def saved(tmp_path: Path, method: str, source: str, **options: int) -> Image.Image:
    """views.png of a run that would start."""
    config = Config.from_mapping({"method": method, "batch_size": 4, "data.source": source, **options})
    found = open_data(config)
    model = build_method(config, found)
    path = tmp_path / "the name of the run" / "views.png"
    pictures.save_views(model, rows_to_learn(config, found, model, whole=True), path)
    with Image.open(path) as picture:
        return picture.convert("RGB")


def sheet_of(method: Method, views: list[torch.Tensor]) -> Sheet:
    """The sheet of black images with these views, and what masks leave of them."""
    black = torch.zeros_like(views[0], dtype=torch.uint8)
    sheet = Sheet.of_views(black, views, torch.ones(len(black)), [f"row {row}" for row in range(len(black))])
    add_hidden(sheet, method, views)
    return sheet


def overlapping(texts: list[tuple[str, tuple]]) -> list[tuple[str, str]]:
    boxes = [(a, b) for i, a in enumerate(texts) for b in texts[:i]]
    return [
        (a, b)
        for (a, (left, top, right, bottom)), (b, (x, y, z, w)) in boxes
        if left < z and x < right and top < w and y < bottom
    ]


def test_captions_name_rows_classes_views_and_sizes(tmp_path: Path, written) -> None:
    picture = saved(tmp_path, "byol", "digits")
    said = [text for text, _ in written]
    assert said[0] == "Views of the name of the run"
    assert said[1:6] == ["as read", "view 1", "8 px", "view 2", "8 px"]
    rows = [text for text in said if text.startswith("row ")]
    assert len(rows) == len(set(rows)) == 8
    kinds = [text for text in said if text.startswith("class ")]
    assert sorted(kinds) == [f"class {kind}" for kind in (0, 1, 2, 3, 5, 6, 7, 8)], "eight of ten, evenly spaced"
    assert " ".join(said).endswith("views, drawn as in training. 8 of 1,438 are shown, over the classes.")
    assert overlapping(written) == []
    assert all(box[0] >= 0 and box[2] <= picture.width and box[3] <= picture.height for _, box in written)


def test_a_file_is_named_and_keeps_its_proportions_and_pixels(tmp_path: Path, written) -> None:
    source = write_jpegs(tmp_path / "jpegs" / "a flower with a long name of its class", 6, (240, 120))
    picture = saved(tmp_path, "simclr", str(source.parent), image_size=224)
    said = " ".join(text for text, _ in written)
    assert "00.jpg" in said and "224 px" in said and "05.jpg" not in said, "four rows of 224 px are enough"
    assert overlapping(written) == []
    left, top = _first_cell(written, 226, 3)
    cell = np.asarray(picture)[top : top + 226, left : left + 226]
    assert (cell[20:50] == 255).all() and (cell[180:206] == 255).all(), "twice as wide as high: white above and below"
    assert cell[112].std() > 5


def test_classes_of_a_folder_mix(tmp_path: Path, written) -> None:
    for kind in ("ants", "bees", "cats", "dogs"):
        write_jpegs(tmp_path / "jpegs" / kind, 20, (24, 24))
    saved(tmp_path, "byol", str(tmp_path / "jpegs"), image_size=24)
    said = [text for text, _ in written]
    assert [said.count(kind) for kind in ("ants", "bees", "cats", "dogs")] == [2, 2, 2, 2]


def test_rows_are_a_sample_over_classes() -> None:
    labels = np.repeat([0, 1, 2], [90, 6, 4])
    rows = over_classes(labels, 100, 8)
    assert np.bincount(labels[rows]).tolist() == [3, 3, 2] and rows == sorted(set(rows))
    assert over_classes(None, 100, 4) == [0, 25, 50, 75]
    assert over_classes(np.zeros(100, int), 100, 4) == [0, 25, 50, 75]
    assert over_classes(np.arange(3), 3, 8) == [0, 1, 2]


def test_a_blank_view_is_said_and_marked(tmp_path: Path, written, monkeypatch) -> None:
    make = Method.make_views

    def made(self, *args, **options):
        views = make(self, *args, **options)
        views[1][2] = 1.0  # white
        return views

    monkeypatch.setattr(Method, "make_views", made)
    picture = saved(tmp_path, "byol", "digits")
    (box,) = [box for text, box in written if text == "blank"]
    assert 0 < box[0] < box[2] < picture.width
    said = " ".join(text for text, _ in written)
    assert "1 of 16 views are blank, of one colour." in said
    assert blank_views([torch.rand(2, 3, 8, 8), torch.full((2, 3, 8, 8), 0.4)]) == [(0, 1), (1, 1)]
    assert blank_views([torch.rand(1, 3, 4, 8, 8)]) == []


def test_small_crops_have_captions_of_their_own(tmp_path: Path, written) -> None:
    saved(tmp_path, "swav", "clipart")
    said = [text for text, _ in written]
    assert [said.count(name) for name in ("view 2", "crop 1", "crop 6", "48 px")] == [1, 1, 1, 2]
    assert "Smaller views" in " ".join(said) and overlapping(written) == []


@pytest.mark.parametrize(("name", "visible"), [("mae", {"visible"}), ("mae+koleo", {"visible 1", "visible 2"})])
def test_what_mae_sees_is_shown_and_said(name: str, visible: set, tmp_path: Path, written) -> None:
    saved(tmp_path, name, "clipart")
    said = [text for text, _ in written]
    assert visible == {text for text in said if text.startswith("visible")} and overlapping(written) == []
    assert "sees the patches that are not gray, 25 % of a view" in " ".join(said)


def test_masks_lie_on_their_view_and_the_note_tells_context_from_target(tmp_path: Path, written) -> None:
    config = Config.from_mapping({"method": "ibot", "data": "clipart"})
    views = [torch.full((8, 3, 48, 48), shade) for shade in (0.25, 0.5)]
    _, _, first, second = sheet_of(build_method(config, open_data(config)), views).views
    assert first.unique().tolist() == pytest.approx([0.25, 0.82])
    assert second.unique().tolist() == pytest.approx([0.5, 0.82])
    saved(tmp_path, "ijepa", "clipart")
    said = " ".join(text for text, _ in written)
    assert "Of target 1 it predicts those that are not gray." in said and said.count(" % of a view") == 1


def test_visible_sets_hold_that_share_of_the_view_and_do_not_overlap() -> None:
    config = Config.from_mapping({"method": "mae+koleo", "data": "clipart"})
    method = build_method(config, open_data(config))
    view = torch.full((3, 3, 48, 48), 0.25)
    sheet = sheet_of(method, [view])
    sets = sheet.views[1:]
    assert [float((one == 0.25).float().mean()) for one in sets] == [0.25, 0.25]
    assert not ((sets[0] == 0.25) & (sets[1] == 0.25)).any()
    assert sheet.columns == ["as read", "view 1\n48 px", "visible 1", "visible 2"]


def test_a_video_has_a_caption_for_each_view_and_frame(tmp_path: Path, written) -> None:
    pytest.importorskip("av")
    from moving_films import write_folder

    films = write_folder(tmp_path / "films", 2, split="train")
    saved(tmp_path, "byol", f"video:{films}", image_size=16, **{"data.frames": 4, "data.stride": 3})
    said = [text for text, _ in written]
    assert [said.count(name) for name in ("as read", "frame 1", "frame 4", "view 1", "view 2")] == [1, 1, 1, 3, 3]
    assert overlapping(written) == []


def test_a_path_that_is_no_text_and_one_without_spaces_are_wrapped(written) -> None:
    grid = Image.new("RGB", (40, 80))
    caption(grid, ["a caption wider than its cell"], ["broken\udcff" + 40 * "long", ""], title="t", note="n")
    assert all(_font(SIZE).getlength(text) <= 168 for text, _ in written) and overlapping(written) == []


def test_rows_without_known_classes_have_no_class(digits) -> None:
    digits.labels[1] = -1
    assert captions_of(digits, [0, 1]) == ["row 0\nclass 0", "row 1"]
    digits.classes = digits.labels = None
    assert captions_of(digits, [0]) == ["row 0"]


@pytest.fixture
def digits():
    from sslkit.data.sources.named import open_images

    found = open_images("digits")
    found.labels = found.labels.copy()
    return found


def _first_cell(written: list, side: int, columns: int) -> tuple[int, int]:
    """Left and top of the first cell, from the captions around it."""
    first = next(box for text, box in written if text == "as read")
    second = next(box for text, box in written if text == "view 1")
    assert (second[0] + second[2]) / 2 - (first[0] + first[2]) / 2 == pytest.approx(side, abs=2)
    return round((first[0] + first[2]) / 2 - side / 2), round(first[3]) + 4
