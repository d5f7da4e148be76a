"""VOC's layout, written to disk from generated pictures; torchvision's reader says the same of it."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from evaluation.tasks.detection.datasets import voc
from evaluation.tasks.detection.datasets.boxes import Boxes
from evaluation.tasks.detection.datasets.clipart_boxes import open_clipart_boxes
from evaluation.tasks.detection.datasets.sources import open_boxes
from sslkit.data.published.voc07 import CLASSES
from sslkit.errors import UserError

NAMES = ("cat", "dog", "person", "car")  # what the four categories of drawings are called here


def write(root: Path, year: str, image_set: str, rows: range, source: Boxes) -> None:
    """Images and annotations of some rows; coordinates from 1, both ends inside. Every fifth object is difficult."""
    base = root / "VOCdevkit" / f"VOC{year}"
    for folder in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (base / folder).mkdir(parents=True, exist_ok=True)
    names = []
    for row in rows:
        image, target = source[row]
        name = f"{row:06d}" if year == "2007" else f"2008_{row:06d}"
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(base / f"JPEGImages/{name}.jpg", quality=95)
        objects = ""
        for k, (label, box) in enumerate(zip(target["labels"].tolist(), target["boxes"].int().tolist(), strict=True)):
            sides = zip(("xmin", "ymin", "xmax", "ymax"), (box[0] + 1, box[1] + 1, box[2], box[3]), strict=True)
            inside = "".join(f"<{side}>{value}</{side}>" for side, value in sides)
            part = "<part><name>head</name><bndbox><xmin>1</xmin></bndbox></part>"  # of VOC 2012's people
            difficult = int((row + k) % 5 == 0)
            objects += f"<object><name>{NAMES[label - 1]}</name><difficult>{difficult}</difficult>"
            objects += f"{part}<bndbox>{inside}</bndbox></object>\n"
        size = "<size><width>128</width><height>128</height><depth>3</depth></size>"
        (base / f"Annotations/{name}.xml").write_text(f"<annotation>{size}{objects}</annotation>")
        names.append(name)
    (base / f"ImageSets/Main/{image_set}.txt").write_text("\n".join(names) + "\n")


LISTS = {("2007", "trainval"): 6, ("2007", "test"): 4, ("2012", "trainval"): 5, ("2012", "train"): 3}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    source = open_clipart_boxes("test", seed=0)
    for (year, image_set), rows in zip(LISTS, (range(6), range(6, 10), range(10, 15), range(10, 13)), strict=True):
        write(tmp_path, year, image_set, rows, source)
    monkeypatch.setattr(voc, "_LISTS", LISTS)
    return tmp_path


def test_the_published_counts_add_up() -> None:
    counts = {
        name: {split: sum(voc._LISTS[one] for one in lists) for split, lists in splits.items()}
        for name, splits in voc.SETS.items()
    }
    assert counts["voc07"] == {"train": 5011, "test": 4952}
    assert counts["voc0712"] == {"train": 16551, "test": 4952}
    assert counts["voc0712_paper"] == {"train": 10728, "test": 4952}


def test_boxes_come_back_as_they_were_before_voc_counted_from_one(root: Path) -> None:
    source, data = open_clipart_boxes("test", seed=0), open_boxes("voc07", "train", root=root)
    assert len(data) == 6 and data.classes == tuple(CLASSES) and not data.has_masks and data.voc_form == "11point"
    for row in range(6):
        image, target = data[row]
        wanted = source.target(row)
        assert torch.equal(target["boxes"], wanted["boxes"])
        assert [CLASSES[label - 1] for label in target["labels"]] == [NAMES[label - 1] for label in wanted["labels"]]
        assert target["difficult"].tolist() == [(row + k) % 5 == 0 for k in range(len(target["labels"]))]
        assert not target["iscrowd"].any() and target["image_id"] == row
        assert (image.float() - source[row][0].float()).abs().mean() < 6  # JPEG


def test_torchvision_reads_the_same(root: Path) -> None:
    from torchvision.datasets import VOCDetection

    data = open_boxes("voc07", "trainval", root=root)
    for row, (image, told) in enumerate(VOCDetection(str(root), year="2007", image_set="trainval")):
        pixels, target = data[row]
        assert np.array_equal(pixels.permute(1, 2, 0).numpy(), np.asarray(image))
        boxes = [{side: float(one["bndbox"][side]) for side in one["bndbox"]} for one in told["annotation"]["object"]]
        wanted = [[box["xmin"] - 1, box["ymin"] - 1, box["xmax"], box["ymax"]] for box in boxes]
        assert target["boxes"].tolist() == wanted


def test_both_years_stand_one_after_the_other(root: Path) -> None:
    data = open_boxes("voc0712", "train", root=root)
    assert len(data) == 11 and data.ids[0] == "VOC2007/000000" and data.ids[-1] == "VOC2012/2008_000014"
    assert data.image_ids.tolist() == [*range(6), *range(2008000010, 2008000015)]
    assert data[10][0].shape == (3, 128, 128)
    literal = open_boxes(f"voc0712_paper:{root}", "train")
    assert literal.ids == data.ids[:9] and literal.digest != data.digest
    assert open_boxes("voc0712", "test", root=root).ids == open_boxes("voc07", "test", root=root).ids


def test_the_folder_of_years_may_be_the_root(root: Path) -> None:
    assert len(open_boxes(f"voc07:{root}/VOCdevkit", "test")) == 4


def test_images_without_an_object_are_left_out_of_train_alone(root: Path) -> None:
    for name in ("000002", "000007"):
        path = root / f"VOCdevkit/VOC2007/Annotations/{name}.xml"
        path.write_text("<annotation><size><width>128</width><height>128</height></size></annotation>")
    assert len(open_boxes("voc07", "train", root=root)) == 5
    test = open_boxes("voc07", "test", root=root)
    assert len(test) == 4 and test.target(1)["boxes"].shape == (0, 4)


def test_all_that_is_missing_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        open_boxes("voc0712", "train", root=tmp_path)
    message = str(caught.value)
    assert "\n" not in message and message.startswith(f"VOC 2007 + 2012 detection cannot be opened from {tmp_path}")
    for year in ("2007", "2012"):
        for file in ("JPEGImages", "Annotations", "ImageSets/Main/trainval.txt"):
            assert f"VOC{year}/{file}" in message
        assert f"VOCDetection({str(tmp_path)!r}, year='{year}', image_set='trainval', download=True)" in message
    assert "https://" in message and message.endswith("voc0712:FOLDER") and not any(tmp_path.iterdir())


def test_another_number_of_images_is_an_error_unless_it_is_meant(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(voc._LISTS, ("2007", "test"), 4952)
    with pytest.raises(UserError, match="'test' has 4 images instead of 4952"):
        open_boxes("voc07", "test", root=root)
    with pytest.warns(UserWarning, match="4 images instead of 4952"):
        data = open_boxes("voc07", "test", root=root, counts="warn")
    assert not data.whole and open_boxes("voc07", "train", root=root).whole
    assert data.note == "not the published set: 4 images instead of 4952"
    with pytest.raises(UserError, match="counts must be raise or warn, got 'ignore'"):
        open_boxes("voc07", "test", root=root, counts="ignore")


def test_bad_files_are_named(root: Path) -> None:
    base = root / "VOCdevkit/VOC2007"
    path = base / "Annotations/000001.xml"
    good = path.read_text()
    for text, message in (
        (good[:50], "ParseError"),
        (good.replace("<name>", "<title>").replace("</name>", "</title>"), "<object> has no name"),
        (good.replace("<ymax>", "<ymax>x"), "could not convert string to float"),
        (good.replace("<name>", "<name>sea"), "unknown category 'seacat'; known: aeroplane"),
    ):
        path.write_text(text)
        with pytest.raises(UserError, match=message) as caught:
            open_boxes("voc07", "train", root=root)
        assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    names = base / "ImageSets/Main/trainval.txt"
    listed = names.read_bytes()
    for text in (listed[:3] + b"\xff" + listed[4:], b"../../000001\n", b"\0" * 40):
        names.write_bytes(text)
        with pytest.raises(UserError, match=r"Main/trainval.txt is not in VOC's list format: .* is not an image name"):
            open_boxes("voc07", "train", root=root)
    names.write_bytes(listed)
    path.unlink()
    with pytest.raises(UserError, match=r"1 annotation files of images in .* are missing below .*000001\.xml"):
        open_boxes("voc07", "train", root=root)
    path.write_text(good)
    (base / "JPEGImages/000003.jpg").unlink()
    with pytest.raises(UserError, match=r"1 of 6 images are not below .*JPEGImages/000003\.jpg"):
        open_boxes("voc07", "train", root=root)


def test_an_image_of_another_size_is_refused_when_it_is_read(root: Path) -> None:
    path = root / "VOCdevkit/VOC2007/JPEGImages/000003.jpg"
    Image.new("RGB", (64, 128)).save(path)
    data = open_boxes("voc07", "train", root=root)
    with pytest.raises(UserError, match=r"000003\.jpg is 64 x 128 pixels, its annotations say 128 x 128"):
        data[3]
    path.write_bytes(b"no image")
    with pytest.raises(UserError, match=r"cannot read .*000003\.jpg"):
        data[3]


def test_an_unknown_split_is_said(root: Path) -> None:
    with pytest.raises(UserError, match="voc07 has no split 'val'"):
        open_boxes("voc07", "val", root=root)


def spoil(root: Path, old: str, new: str, name: str = "*") -> None:
    for path in root.rglob(f"VOC2007/Annotations/{name}.xml"):
        path.write_text(re.sub(old, new, path.read_text()))


def test_boxes_that_cannot_be_right_are_counted_in_a_published_set(root: Path) -> None:
    spoil(root, r"<xmax>\d+</xmax>", "<xmax>1</xmax>", "000001")  # a width of 1 in the place of the right edge
    with pytest.warns(UserWarning, match=r"voc07 \(train\): \d+ of \d+ objects have no area"):
        open_boxes("voc07", "train", root=root)


@pytest.mark.parametrize(
    "added",
    [
        "<attributes><attribute><name>rotation</name><value>30.0</value></attribute></attributes>",
        "<robndbox><cx>1</cx><cy>1</cy><w>1</w><h>1</h><angle>0.2</angle></robndbox>",
    ],
)
def test_rotated_boxes_are_refused(root: Path, added: str) -> None:
    spoil(root, "</object>", f"{added}</object>")
    with pytest.raises(UserError, match=r"000000\.xml .*a rotated box, where boxes are upright"):
        open_boxes("voc07", "train", root=root)
