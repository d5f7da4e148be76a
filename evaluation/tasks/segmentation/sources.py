"""Sources of segmentation sets, and one function that opens any of them.

- clipart_boxes: generated, always available
- voc12_seg, ade20k, coco2017, each also as NAME:ROOT: published, from files on disk
- coco:FOLDER: custom, FOLDER/train.json and FOLDER/test.json in COCO format, with masks
"""

from dataclasses import replace
from pathlib import Path

from evaluation.datasets import AS_USUAL, Reading
from evaluation.tasks.detection.datasets.boxes import EMPTY, Boxes
from evaluation.tasks.detection.datasets.sources import boxes_of
from evaluation.tasks.segmentation.label_maps import LabelMaps, of_boxes
from evaluation.tasks.segmentation.png_maps import open_ade20k, open_voc12
from sslkit.errors import UserError
from sslkit.options.members import nearest

PNG = {"voc12_seg": open_voc12, "ade20k": open_ade20k}
MASKS = ("clipart_boxes", "coco2017", "coco")
NAMES = ("clipart_boxes", *PNG, "coco2017", "coco:FOLDER")


def open_label_maps(source: str | LabelMaps | Boxes, split: str, reading: Reading = AS_USUAL) -> LabelMaps:
    """Open one split of a segmentation set. Nothing is downloaded.

    source: see the module; open `Boxes` or `LabelMaps` of the requested split are taken as they are.
    split: "train" or "test". reading: its root, the folder that contains a published set, unless source gives it, its
        counts, the reaction to a number of images other than the published one, and its range, opacity and fill, see
        `open_boxes`.
    Raises UserError for an unknown source or split, and for missing files (all are named, with their source).
    """
    if isinstance(source, LabelMaps):
        if source.split != split:
            raise UserError(f"{source.name} is open with its split {source.split!r}, not {split!r}")
        return source
    if isinstance(source, Boxes):
        return of_boxes(boxes_of(source, split, reading, masks=True, empty=EMPTY[0]))
    name, _, own_root = str(source).partition(":")
    if name in PNG:
        opened = PNG[name](split, Path(own_root or reading.root).expanduser(), reading.counts)
        parts = {name: replace(getattr(opened, name), cache=reading.cache) for name in ("pixels", "maps")}
        return replace(opened, **parts)
    if name in MASKS:
        return of_boxes(boxes_of(str(source), split, reading, masks=True, empty=EMPTY[0]))
    raise UserError(f"there is no segmentation set {source!r}: {nearest(name, NAMES)}")
