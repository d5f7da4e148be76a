"""Where detection sets come from: one function that opens any of them.

- clipart_boxes: generated, always at hand
- voc07, voc0712, voc0712_paper, coco2017, each also as NAME:ROOT: published, from files on disk
- coco:FOLDER: your own, FOLDER/train.json and FOLDER/test.json written as COCO's
"""

from pathlib import Path

from evaluation.protocols.detection.boxes import Boxes
from evaluation.protocols.detection.clipart_boxes import open_clipart_boxes
from evaluation.protocols.detection.coco import open_coco2017, open_coco_folder
from evaluation.protocols.detection.voc import open_voc
from sslkit.errors import UserError
from sslkit.members import nearest

VOC = ("voc07", "voc0712", "voc0712_paper")
NAMES = ("clipart_boxes", *VOC, "coco2017")


def open_boxes(
    source: str | Boxes, split: str = "train", root: str | Path = "data", *, masks: bool = True, counts: str = "raise"
) -> Boxes:
    """One split of a detection set. Nothing is downloaded.

    source: see the module; a `Boxes` that is open already is returned, if it is the split asked for.
    split: "train" or "test"; of coco2017 "val" is another name of "test", of VOC "trainval" of "train".
    root: the folder that a published set lies below, where source does not say it.
    masks: False leaves them out, which spares the memory of COCO's outlines.
    counts: what a published set does that has not the published number of images: "raise", or "warn".
    Raises UserError for an unknown source or split, missing files (all are named, with where to get them), and for
    annotations that cannot be meant.
    """
    if isinstance(source, Boxes):
        if source.split != split:
            raise UserError(f"what is open of {source.name} is its split {source.split!r}, not {split!r}")
        opened = source
    else:
        opened = _opened(source, split, Path(root).expanduser(), masks, counts)
    return opened if masks else opened.without_masks()


def _opened(source: str, split: str, root: Path, masks: bool, counts: str) -> Boxes:
    name, _, own_root = source.partition(":")
    root = Path(own_root).expanduser() if own_root else root
    if source == "clipart_boxes":
        return open_clipart_boxes(split)
    if name in VOC:
        return open_voc(name, split, root, counts)
    if name == "coco2017":
        return open_coco2017(split, root, masks=masks, counts=counts)
    if name == "coco" and own_root:
        return open_coco_folder(root, split, masks=masks)
    raise UserError(
        f"there is no detection set {source!r}: {nearest(name, (*NAMES, 'coco:FOLDER'))}. A folder of your own is "
        "coco:FOLDER, with FOLDER/train.json and FOLDER/test.json written as COCO's"
    )
