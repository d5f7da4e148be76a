"""Sources of detection data sets, and one function that opens any of them.

- clipart_boxes: generated, always available
- voc07, voc0712, voc0712_paper, coco2017, each also as NAME:ROOT: published, from files on disk
- coco:FOLDER: custom, FOLDER/train.json and FOLDER/test.json in COCO format
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from evaluation.tasks.detection.datasets.boxes import Boxes
from evaluation.tasks.detection.datasets.clipart_boxes import open_clipart_boxes
from evaluation.tasks.detection.datasets.coco import open_coco2017, open_coco_folder
from evaluation.tasks.detection.datasets.disk_images import DiskImages
from evaluation.tasks.detection.datasets.plausible import check_plausible
from evaluation.tasks.detection.datasets.voc import open_voc
from sslkit.data.decode.fill import AUTO, Fill
from sslkit.data.image_options import CACHE, ImageOptions
from sslkit.errors import UserError
from sslkit.options.members import nearest

VOC = ("voc07", "voc0712", "voc0712_paper")
NAMES = ("clipart_boxes", *VOC, "coco2017")


def open_boxes(
    source: str | Boxes,
    split: str = "train",
    root: str | Path = "data",
    *,
    masks: bool = True,
    counts: str = "raise",
    range: Sequence[float] | str | None = None,
    opacity: bool | None = None,
    fill: Fill = AUTO,
    empty: str = "skip",
    cache: str | Path | None = CACHE,
) -> Boxes:
    """Open one split of a detection data set. Nothing is downloaded.

    source: see the module; an open `Boxes` of the requested split is returned unchanged.
    split: "train" or "test"; for coco2017 "val" is an alias of "test", for VOC "trainval" of "train".
    root: the folder that contains a published data set, unless source gives it.
    masks: False leaves them out, which saves the memory of COCO's outlines.
    counts: reaction to a number of images other than the published one: "raise" or "warn".
    range: of coco:FOLDER, the values of pixels of more than 8 bits that become 0 and 255 in both splits; "auto": the
        least and the greatest of the training images; None: found in a sample of them. opacity, fill: likewise of
        coco:FOLDER, see `sslkit.open_images`.
    empty: training images without an object: "skip", counted in `left_out`, as published, or "keep" as background.
    cache: folder that remembers the digests of files; None: nothing is remembered.
    Raises UserError for an unknown source or split, missing files (all are named, with their source), and for
    invalid annotations.
    """
    if isinstance(source, Boxes):
        if source.split != split:
            raise UserError(f"{source.name} is open with its split {source.split!r}, not {split!r}")
        opened = source
        check_plausible(opened, refuse=True)
    else:
        values = ImageOptions(range=range, opacity=opacity, fill=fill)
        how = {"masks": masks, "counts": counts, "values": values, "empty": empty}
        opened = _opened(source, split, Path(root).expanduser(), **how)
        if isinstance(opened.pixels, DiskImages):
            opened = replace(opened, pixels=replace(opened.pixels, cache=cache))
    return opened if masks else opened.without_masks()


def _opened(
    source: str, split: str, root: Path, *, masks: bool, counts: str, values: ImageOptions, empty: str
) -> Boxes:
    name, _, own_root = source.partition(":")
    root = Path(own_root).expanduser() if own_root else root
    if source == "clipart_boxes":
        return open_clipart_boxes(split)
    if name in VOC:
        return open_voc(name, split, root, counts, empty)
    if name == "coco2017":
        return open_coco2017(split, root, masks=masks, counts=counts, empty=empty)
    if name == "coco" and own_root:
        return open_coco_folder(root, split, masks=masks, values=values, empty=empty)
    raise UserError(
        f"there is no detection set {source!r}: {nearest(name, (*NAMES, 'coco:FOLDER'))}. For a custom data set use "
        "coco:FOLDER, with FOLDER/train.json and FOLDER/test.json in COCO format"
    )
