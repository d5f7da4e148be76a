"""Sources of detection data sets, and one function that opens any of them.

- clipart_boxes: generated, always available
- voc07, voc0712, voc0712_paper, coco2017, each also as NAME:ROOT: published, from files on disk
- coco:FOLDER: custom, FOLDER/train.json and FOLDER/test.json in COCO format
"""

from dataclasses import replace
from pathlib import Path

from evaluation.datasets import READ, Reading
from evaluation.tasks.detection.datasets.boxes import EMPTY, Boxes
from evaluation.tasks.detection.datasets.clipart_boxes import open_clipart_boxes
from evaluation.tasks.detection.datasets.coco import open_coco2017, open_coco_folder
from evaluation.tasks.detection.datasets.disk_images import DiskImages
from evaluation.tasks.detection.datasets.plausible import check_plausible
from evaluation.tasks.detection.datasets.voc import open_voc
from sslkit.data.image_options import ImageOptions
from sslkit.data.sources.column_values import refuse
from sslkit.errors import UserError
from sslkit.options.members import nearest
from sslkit.runtime.callers import public

VOC = ("voc07", "voc0712", "voc0712_paper")
NAMES = ("clipart_boxes", *VOC, "coco2017")


@public(*READ)
def open_boxes(
    source: str | Boxes, split: str = ImageOptions.split, *, masks: bool = True, empty: str = EMPTY[0], reading: Reading
) -> Boxes:
    """Open one split of a detection data set. Nothing is downloaded.

    source: see the module; an open `Boxes` of the requested split is returned unchanged.
    split: "train" or "test"; for coco2017 "val" is an alias of "test", for VOC "trainval" of "train".
    masks: False leaves them out, which saves the memory of COCO's outlines.
    empty: training images without an object: "skip", counted in `left_out`, as published, or "keep" as background.
    Raises UserError for an unknown source or split, missing files (all are named, with their source), and for
    invalid annotations.
    """
    return boxes_of(source, split, reading, masks=masks, empty=empty)


def boxes_of(source: str | Boxes, split: str, reading: Reading, *, masks: bool, empty: str) -> Boxes:
    """As `open_boxes`. The values of pixels of more than 8 bits are those of coco:FOLDER, in both splits."""
    if isinstance(source, Boxes):
        if source.split != split:
            raise UserError(f"{source.name} is open with its split {source.split!r}, not {split!r}")
        opened = source
        check_plausible(opened, refuse=True)
    else:
        opened = _open(source, split, reading, masks, empty)
        if isinstance(opened.pixels, DiskImages):
            opened = replace(opened, pixels=replace(opened.pixels, cache=reading.cache))
    return opened if masks else opened.without_masks()


def _open(source: str, split: str, reading: Reading, masks: bool, empty: str) -> Boxes:
    name, _, own_root = source.partition(":")
    root = Path(own_root or reading.root).expanduser()
    refuse(reading.columns, source, "has boxes, whose images and classes are those of its annotations")
    if source == "clipart_boxes":
        return open_clipart_boxes(split, seed=0)
    if name in VOC:
        return open_voc(name, split, root, reading.counts, empty)
    if name == "coco2017":
        return open_coco2017(split, root, masks=masks, counts=reading.counts, empty=empty)
    if name == "coco" and own_root:
        return open_coco_folder(root, split, masks=masks, values=ImageOptions(**reading.values), empty=empty)
    raise UserError(
        f"there is no detection set {source!r}: {nearest(name, (*NAMES, 'coco:FOLDER'))}. For a custom data set use "
        "coco:FOLDER, with FOLDER/train.json and FOLDER/test.json in COCO format"
    )
