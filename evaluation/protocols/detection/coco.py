"""COCO 2017 (Lin et al. 2014), and sets of the user's own that are written in its form.

COCO's 80 categories have ids from 1 to 90 with gaps; labels are 1 to 80 in the order of the ids, and
`coco_results` turns them back. In train, images without an object to learn from are left out; in test they stay, as
what is found there counts against.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from evaluation.protocols.detection import run_lengths
from evaluation.protocols.detection.boxes import Boxes
from evaluation.protocols.detection.coco_file import CocoFile, check_boxes, read_coco
from evaluation.protocols.detection.disk_images import DiskImages, few
from evaluation.protocols.detection.published import Published
from sslkit.data.folder import PathList
from sslkit.data.images import check_split
from sslkit.errors import UserError

COUNTS = {"train": 118_287, "test": 5_000}
CATEGORIES = 80
_FILES = {"train": "train2017", "test": "val2017"}
_PLACES = ("coco", "coco2017", ".")
_OWN_SPLITS = ("train", "val", "test")
_PUBLISHED = Published(
    "coco2017",
    "COCO 2017 detection",
    "https://cocodataset.org/#download (train2017.zip, val2017.zip, annotations_trainval2017.zip, unpacked in one "
    "folder); torchvision cannot fetch it",
)


def open_coco2017(
    split: str = "train", root: Path = Path("data"), *, masks: bool = True, counts: str = "raise"
) -> Boxes:
    """COCO 2017 from root/coco/annotations, root/coco/train2017 and root/coco/val2017 (or coco2017, or root itself).

    split: "train", 118,287 images of which 117,266 have an object to learn from; or "test", COCO's val, 5,000 images.
        "val" is another name of it; the labels of COCO's own test are not public.
    masks, counts: see `open_boxes`. Images are looked for, but not opened.
    Raises UserError for an unknown split, missing files (all are named) and a file that is not written as published.
    """
    split = {"val": "test"}.get(split, split)
    check_split("coco2017", split, tuple(COUNTS))
    wanted = (f"annotations/instances_{_FILES[split]}.json", _FILES[split])
    folder = _PUBLISHED.folder(root, _PLACES, wanted, split)
    file = read_coco(folder / wanted[0], masks)
    note = _PUBLISHED.check_count(len(file.paths), COUNTS[split], split, counts, [file.path])
    if len(file.categories) != CATEGORIES and counts == "raise":
        raise UserError(
            f"{file.path} has {len(file.categories)} categories instead of {CATEGORIES}: is it another copy?"
        )
    licence = "annotations CC BY 4.0; images of Flickr, each under its own licence"
    pixels = DiskImages(folder / _FILES[split], PathList(file.paths), file.sizes)
    pixels.check_presence("coco2017")
    opened = _boxes(file, pixels, "coco2017", split, file.categories, note, licence)
    return opened.to_learn_from() if split == "train" else opened


def open_coco_folder(folder: Path, split: str = "train", *, masks: bool = True) -> Boxes:
    """A set of the user's own: folder/train.json and folder/test.json (and folder/val.json) in COCO's form.

    file_name of an image is below `folder`. Labels are those of train.json's categories, in the order of their ids, in
    every split. The set has masks where all annotations have a segmentation.
    Raises UserError for what `read_coco` and `check_boxes` refuse, for images that are missing, are no images or have
    another size than the json says, and for a category of a test object that no object of train has.
    """
    files = {name: folder / f"{name}.json" for name in _OWN_SPLITS}
    present = tuple(name for name, path in files.items() if path.is_file())
    if "train" not in present:
        raise UserError(
            f"coco:{folder}: there is no {files['train'].absolute()}; the folder must hold train.json and test.json, "
            "written as COCO's, with file_name relative to it"
        )
    name = f"coco:{folder}"
    check_split(name, split, present)
    train = read_coco(files["train"], masks and split == "train")
    file = train if split == "train" else read_coco(files[split], masks)
    check_boxes(file)
    _check_categories(train, file)
    pixels = DiskImages(folder, PathList(file.paths), file.sizes)
    pixels.check_presence(name)
    pixels.check_headers(name)
    opened = _boxes(file, pixels, name, split, train.categories)
    return opened.to_learn_from() if split == "train" else opened


def coco_results(data: Boxes, row: int, prediction: Mapping[str, torch.Tensor]) -> list[dict[str, Any]]:
    """What is found in an image as the entries of COCO's result files, under the set's own image and category ids.

    prediction: boxes (n, 4) xyxy, scores, labels (n,), and maybe masks (n, H, W); see coco_ap.py.
    """
    boxes = prediction["boxes"].double()
    sides = torch.cat([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], 1).tolist()
    entries = [
        {
            "image_id": int(data.image_ids[row]),
            "category_id": data.category_ids[label - 1],
            "bbox": box,
            "score": score,
        }
        for box, score, label in zip(sides, prediction["scores"].tolist(), prediction["labels"].tolist(), strict=True)
    ]
    if "masks" in prediction:
        for entry, mask in zip(entries, prediction["masks"].cpu().numpy(), strict=True):
            entry["segmentation"] = run_lengths.compress(mask)
    return entries


def _boxes(
    file: CocoFile,
    pixels: DiskImages,
    name: str,
    split: str,
    categories: dict[int, str],
    note: str = "",
    licence: str = "",
) -> Boxes:
    category_ids = tuple(categories)
    return Boxes(
        name=name,
        split=split,
        classes=tuple(categories.values()),
        ids=file.paths,
        image_ids=file.image_ids,
        sizes=file.sizes,
        instances=file.instances(category_ids),
        pixels=pixels,
        outlines=file.outlines(),
        category_ids=category_ids,
        whole=not note,
        note=note,
        licence=licence,
    )


def _check_categories(train: CocoFile, file: CocoFile) -> None:
    """Raises UserError where a file's categories are others than train's, or one of its objects has one train lacks."""
    renamed = [
        f"{number} ({train.categories[number]!r}, here {name!r})"
        for number, name in file.categories.items()
        if train.categories.get(number, name) != name
    ]
    if renamed:
        raise UserError(f"{file.path} has other names than {train.path.name} for the category ids {few(renamed)}")
    lacking: Sequence[str] = [file.categories[number] for number in sorted(file.annotated - train.annotated)]
    if lacking:
        raise UserError(
            f"{file.path} has objects of categories that no object of {train.path.name} has: {few(lacking)}; they "
            "cannot be learnt: leave them out, or add some to train"
        )
