"""COCO 2017 (Lin et al. 2014), and custom data sets in COCO format.

COCO's 80 categories have ids from 1 to 90 with gaps; labels are 1 to 80 in the order of the ids, and
`coco_results` converts them back. Train leaves out images without a trainable object, unless empty="keep"; test keeps
them, since detections there are false positives.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from evaluation.tasks.detection.datasets import run_lengths
from evaluation.tasks.detection.datasets.boxes import Boxes
from evaluation.tasks.detection.datasets.coco_file import CocoFile, check_boxes, read_coco
from evaluation.tasks.detection.datasets.disk_images import DiskImages, common_scale
from evaluation.tasks.detection.datasets.plausible import check_plausible
from evaluation.tasks.detection.datasets.published import Published
from sslkit.data.image_options import ImageOptions
from sslkit.data.images import check_split
from sslkit.data.path_list import PathList
from sslkit.errors import UserError
from sslkit.terminal.say import and_more

COUNTS = {"train": 118_287, "test": 5_000}
CATEGORIES = 80  # of the published set
_FILES = {"train": "train2017", "test": "val2017"}
_PLACES = ("coco", "coco2017", ".")
_OWN_SPLITS = ("train", "val", "test")
_PUBLISHED = Published(
    "coco2017",
    "COCO 2017 detection",
    "https://cocodataset.org/#download (train2017.zip, val2017.zip, annotations_trainval2017.zip, unpacked in one "
    "folder); torchvision cannot download it",
)


def open_coco2017(split: str, root: Path, *, masks: bool, counts: str, empty: str) -> Boxes:
    """Open COCO 2017 from root/coco/annotations, root/coco/train2017 and root/coco/val2017 (or coco2017, or root).

    split: "train", 118,287 images of which 117,266 have a trainable object; or "test", COCO's val, 5,000 images.
        "val" is an alias of "test"; the labels of COCO's own test set are not public.
    masks, counts, empty: see `open_boxes`. Image files must exist, but are not opened.
    Raises UserError for an unknown split, missing files (all are named) and a file not in the published format.
    """
    split = {"val": "test"}.get(split, split)
    check_split("coco2017", split, tuple(COUNTS))
    wanted = (f"annotations/instances_{_FILES[split]}.json", _FILES[split])
    folder = _PUBLISHED.folder(root, _PLACES, wanted, split)
    file = read_coco(folder / wanted[0], masks)
    note = _PUBLISHED.check_count(len(file.paths), COUNTS[split], split, counts, [file.path])
    if len(file.categories) != CATEGORIES and counts == "raise":
        raise UserError(
            f"{file.path} has {len(file.categories)} categories instead of {CATEGORIES}: it is not COCO 2017's file"
        )
    licence = "annotations CC BY 4.0; images of Flickr, each under its own licence"
    pixels = DiskImages(folder / _FILES[split], PathList(file.paths), file.sizes)
    pixels.check_presence("coco2017")
    opened = _boxes(file, pixels, "coco2017", split, file.categories, note, licence)
    check_plausible(opened, refuse=False)
    return opened.to_learn_from(empty) if split == "train" else opened


def open_coco_folder(folder: Path, split: str, *, masks: bool, values: ImageOptions, empty: str) -> Boxes:
    """Open a custom data set: folder/train.json and folder/test.json (and folder/val.json) in COCO format.

    file_name of an image is relative to `folder`. In every split, labels number the categories of train.json in the
    order of their ids. The data set has masks if all annotations have a segmentation.
    Raises UserError as `read_coco` and `check_boxes` do, for images that are missing, unreadable or not of the size in
    the json, and for a category of a test object without an object in train. Stored values become bytes alike
    in all splits: as `values` say, or as a sample of the images to learn from, see `open_boxes`.
    """
    files = {name: folder / f"{name}.json" for name in _OWN_SPLITS}
    present = tuple(name for name, path in files.items() if path.is_file())
    if "train" not in present:
        raise UserError(
            f"coco:{folder}: there is no {files['train'].absolute()}; the folder must hold train.json and test.json "
            "in COCO format, with file_name relative to it"
        )
    name = f"coco:{folder}"
    check_split(name, split, present)
    train = _as_on_disk(read_coco(files["train"], masks and split == "train"), folder)
    file = train if split == "train" else _as_on_disk(read_coco(files[split], masks), folder)
    check_boxes(file)
    _check_categories(train, file)
    pixels = DiskImages(folder, PathList(file.paths), file.sizes)
    pixels.check_presence(name)
    pixels.check_headers(name)
    pixels = replace(pixels, scale=common_scale(name, folder, PathList(train.paths), values))
    opened = _boxes(file, pixels, name, split, train.categories)
    check_plausible(opened, refuse=True)
    return opened.to_learn_from(empty) if split == "train" else opened


def coco_results(data: Boxes, row: int, prediction: Mapping[str, torch.Tensor]) -> list[dict[str, Any]]:
    """Convert the detections of an image to entries of COCO's result files, with the data set's own ids.

    prediction: boxes (n, 4) xyxy, scores, labels (n,), and optionally masks (n, H, W); see coco_ap.py.
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


def _as_on_disk(file: CocoFile, folder: Path) -> CocoFile:
    r"""The file with the names of files of Windows, `images\1.jpg`, as of this system, unless there are such files."""
    is_other = ["\\" in path and not (folder / path).is_file() for path in file.paths]
    paths = [path.replace("\\", "/") if other else path for path, other in zip(file.paths, is_other, strict=True)]
    return replace(file, paths=paths) if any(is_other) else file


def _check_categories(train: CocoFile, file: CocoFile) -> None:
    """Raises UserError if categories differ from train's names, or an object's category has no object in train."""
    renamed = [
        f"{number} ({train.categories[number]!r}, here {name!r})"
        for number, name in file.categories.items()
        if train.categories.get(number, name) != name
    ]
    if renamed:
        raise UserError(f"{file.path} has other names than {train.path.name} for the category ids {and_more(renamed)}")
    lacking: Sequence[str] = [
        file.categories[number] for number in sorted(file.categories_with_objects - train.categories_with_objects)
    ]
    if lacking:
        raise UserError(
            f"{file.path} has objects of categories without an object in {train.path.name}: {and_more(lacking)}; leave "
            "them out, or add some to train"
        )
