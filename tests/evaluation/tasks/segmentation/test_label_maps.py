"""Classes of pixels from masks and from PNG files, and the errors of damaged sets."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from evaluation.datasets import Reading
from evaluation.tasks.detection.datasets.boxes import Boxes
from evaluation.tasks.detection.datasets.clipart_boxes import open_clipart_boxes
from evaluation.tasks.segmentation.label_maps import IGNORED, LabelMaps, of_boxes
from evaluation.tasks.segmentation.sources import open_label_maps
from sslkit.errors import UserError


def voc(root: Path, split: str = "train", names: tuple[str, ...] = ("2007_000001", "2007_000002")) -> Path:
    """A small set in VOC's layout: palette PNGs with an ignored edge."""
    folder = root / "VOCdevkit" / "VOC2012"
    for kind in ("JPEGImages", "SegmentationClass", "ImageSets/Segmentation"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    (folder / "ImageSets/Segmentation" / f"{split}.txt").write_text("\n".join(names) + "\n")
    for number, name in enumerate(names):
        Image.new("RGB", (8, 6), (200, 10, 10 * number)).save(folder / "JPEGImages" / f"{name}.jpg")
        values = np.zeros((6, 8), np.uint8)
        values[1:3, 2:5], values[0] = number + 1, 255
        image = Image.fromarray(values, mode="P")
        image.putpalette([value // 3 for value in range(768)])
        image.save(folder / "SegmentationClass" / f"{name}.png")
    return root


def ade(root: Path) -> Path:
    folder = root / "ADEChallengeData2016"
    for part in ("training", "validation"):
        for kind in ("images", "annotations"):
            (folder / kind / part).mkdir(parents=True)
        Image.new("RGB", (5, 4)).save(folder / "images" / part / "ADE_1.jpg")
        values = np.arange(20, dtype=np.uint8).reshape(4, 5)
        Image.fromarray(values).save(folder / "annotations" / part / "ADE_1.png")
    return root


def test_masks_paint_their_classes_on_the_background() -> None:
    boxes = open_clipart_boxes("test", seed=0)
    maps = of_boxes(boxes)
    assert maps.classes == ("background", *boxes.classes) and len(maps) == 150
    for row in (0, 7, 149):
        image, classes = maps[row]
        target = boxes.target(row)
        expected = torch.zeros(128, 128, dtype=torch.uint8)
        for mask, label in zip(target["masks"], target["labels"], strict=True):
            expected[mask > 0] = int(label)
        assert torch.equal(classes, expected) and image.shape == (3, 128, 128)
    some = maps.take(np.array([7, 0]))
    assert torch.equal(some[0][1], maps[7][1]) and some.digest != maps.digest


def test_the_smaller_object_is_in_front_and_crowds_are_ignored() -> None:
    from dataclasses import replace

    boxes = open_clipart_boxes("test", seed=0)

    class Whole:
        def masks(self, objects: np.ndarray, height: int, width: int) -> np.ndarray:
            return np.stack([np.ones((height, width), np.uint8) for _ in objects])

    row = int(np.flatnonzero(boxes.instances.counts >= 2)[0])
    first, last = boxes.instances.ends[row : row + 2]
    area = boxes.instances.area.copy()
    area[first:last] = np.arange(last - first, 0, -1)  # the last object is the smallest
    changed = replace(boxes, outlines=Whole(), instances=replace(boxes.instances, area=area))
    classes = of_boxes(changed).maps[row]
    assert (classes == boxes.instances.labels[last - 1]).all()
    crowd = boxes.instances.iscrowd.copy()
    crowd[last - 1] = True
    changed = replace(changed, instances=replace(changed.instances, iscrowd=crowd))
    assert (of_boxes(changed).maps[row] == IGNORED).all()


def test_a_set_without_masks_is_refused() -> None:
    with pytest.raises(UserError, match="no masks"):
        of_boxes(open_clipart_boxes("test", seed=0).without_masks())


def test_voc_is_read_as_its_palette_numbers_with_edges_ignored(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="2 images instead of 1464"):
        maps = open_label_maps(f"voc12_seg:{voc(tmp_path)}", "train", Reading(counts="warn"))
    assert len(maps.classes) == 21 and maps.classes[0] == "background" and maps.note
    image, classes = maps[1]
    assert image.shape == (3, 6, 8) and image.dtype == torch.uint8
    assert (classes[0] == IGNORED).all() and (classes[1:3, 2:5] == 2).all() and classes[5].sum() == 0
    with pytest.raises(UserError, match="2 images instead of 1464"):
        open_label_maps("voc12_seg", "train", Reading(root=tmp_path))


def test_ade20k_counts_from_1_and_0_is_ignored(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="instead of 2000"):
        maps = open_label_maps("ade20k", "test", Reading(root=ade(tmp_path), counts="warn"))
    classes = maps[0][1]
    assert classes[0, 0] == IGNORED and classes[0, 1] == 0 and classes[3, 4] == 18
    assert maps.classes[:2] == ("1", "2") and len(maps.classes) == 150
    table = "Idx\tRatio\tTrain\tVal\tStuff\tName\n" + "".join(
        f"{i}\t0\t0\t0\t0\tthing {i}, it\n" for i in range(1, 151)
    )
    (tmp_path / "ADEChallengeData2016" / "objectInfo150.txt").write_text(table)
    with pytest.warns(UserWarning):
        assert open_label_maps("ade20k", "test", Reading(root=tmp_path, counts="warn")).classes[149] == "thing 150"


def test_missing_files_are_named_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"voc12_seg|VOC 2012.*ImageSets/Segmentation/train.txt"):
        open_label_maps("voc12_seg", "train", Reading(root=tmp_path))
    root = voc(tmp_path)
    (root / "VOCdevkit/VOC2012/SegmentationClass/2007_000002.png").unlink()
    with pytest.warns(UserWarning), pytest.raises(UserError, match=r"SegmentationClass/2007_000002\.png"):
        open_label_maps("voc12_seg", "train", Reading(root=root, counts="warn"))


@pytest.mark.parametrize(
    ("spoil", "word"),
    [
        (lambda path: Image.new("RGB", (8, 6)).save(path), "has colours"),
        (lambda path: Image.new("L", (8, 6), 99).save(path), "holds class 99"),
        (lambda path: path.write_bytes(b"no image"), "cannot read the label map"),
    ],
)
def test_a_damaged_map_is_one_line(tmp_path: Path, spoil, word: str) -> None:
    root = voc(tmp_path)
    spoil(root / "VOCdevkit/VOC2012/SegmentationClass/2007_000001.png")
    with pytest.warns(UserWarning):
        maps = open_label_maps("voc12_seg", "train", Reading(root=root, counts="warn"))
    with pytest.raises(UserError, match=word):
        maps[0]


def test_a_map_of_another_size_is_one_line_before_anything_is_computed(tmp_path: Path) -> None:
    root = voc(tmp_path)
    Image.new("L", (8, 7)).save(root / "VOCdevkit/VOC2012/SegmentationClass/2007_000002.png")
    with (
        pytest.warns(UserWarning),
        pytest.raises(UserError, match=r"000002\.png has 8 x 7 pixels, and its image .*000002\.jpg 8 x 6") as caught,
    ):
        open_label_maps("voc12_seg", "train", Reading(root=root, counts="warn"))
    assert "\n" not in str(caught.value)


def test_unknown_sources_and_splits_are_named() -> None:
    with pytest.raises(UserError, match="clipart_boxes"):
        open_label_maps("clipart_boxs", split="train")
    opened = open_label_maps("clipart_boxes", "test")
    assert isinstance(opened, LabelMaps) and open_label_maps(opened, "test") is opened
    with pytest.raises(UserError, match="not 'train'"):
        open_label_maps(opened, "train")
    boxes: Boxes = open_clipart_boxes("test", seed=0)
    assert len(open_label_maps(boxes, "test")) == len(boxes)


def stored(path: Path, orientation: int, size: tuple[int, int]) -> None:
    """A photograph that is dark above and bright below once it is turned upright by its orientation."""
    upright = np.zeros((size[1], size[0], 3), np.uint8)
    upright[size[1] // 2 :] = 250
    turn = {1: None, 3: Image.Transpose.ROTATE_180, 6: Image.Transpose.ROTATE_90}[orientation]
    image, exif = Image.fromarray(upright), Image.Exif()
    exif[0x0112] = orientation
    (image if turn is None else image.transpose(turn)).save(path, quality=95, exif=exif)


def test_a_photograph_is_turned_to_its_upright_map(tmp_path: Path) -> None:
    root = voc(tmp_path)
    stored(root / "VOCdevkit/VOC2012/JPEGImages/2007_000001.jpg", 6, (8, 6))
    with pytest.warns(UserWarning):
        maps = open_label_maps(f"voc12_seg:{root}", "train", Reading(counts="warn"))
    image, _ = maps[0]
    assert image.shape == (3, 6, 8) and image[:, :2].float().mean() < 40 and image[:, 4:].float().mean() > 200
    assert torch.equal(maps.take(np.array([1, 0]))[1][0], image) and maps[1][0].shape == (3, 6, 8)


@pytest.mark.parametrize(("orientation", "size"), [(3, (8, 6)), (6, (6, 8)), (6, (7, 7))])
def test_a_turned_photograph_whose_map_may_be_either_is_refused(
    tmp_path: Path, orientation: int, size: tuple[int, int]
) -> None:
    root = voc(tmp_path)
    stored(root / "VOCdevkit/VOC2012/JPEGImages/2007_000001.jpg", orientation, size)
    if size == (7, 7):
        Image.new("L", size).save(root / "VOCdevkit/VOC2012/SegmentationClass/2007_000001.png")
    with (
        pytest.warns(UserWarning),
        pytest.raises(UserError, match=r"000001\.jpg has an EXIF orientation, and"),
    ):
        open_label_maps(f"voc12_seg:{root}", "train", Reading(counts="warn"))
