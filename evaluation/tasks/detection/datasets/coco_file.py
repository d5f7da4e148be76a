"""Read a json file in COCO format into columns, with one-line errors for invalid content.

By hand: the COCO class of faster-coco-eval checks nothing in the file, and keeps a dictionary for each annotation.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.tasks.detection.datasets import run_lengths
from evaluation.tasks.detection.datasets.boxes import Instances
from evaluation.tasks.detection.datasets.plausible import are_corners, corners_line, flaws
from evaluation.tasks.detection.datasets.run_lengths import RunLengths
from sslkit.errors import UserError
from sslkit.files.reading import regular
from sslkit.terminal import say
from sslkit.terminal.say import and_more

LARGEST = 2**63  # of int64
_KEYS = {
    "images": ("id", "file_name", "height", "width"),
    "annotations": ("id", "image_id", "category_id", "bbox"),
    "categories": ("id", "name"),
}


@dataclass(frozen=True)
class CocoFile:
    """N images and M annotations, in the order of the images.

    image_ids: (N,) int64. paths: N file names. sizes: (N, 2) int64 height and width. categories: names by their ids.
    image: (M,) int64, the index of each annotation's image. ids, category: (M,) int64.
    boxes: (M, 4) float64 xyxy. area: (M,) float64. iscrowd: (M,) bool. segmentations: M as in the file, None if absent.
    extents: (M, 4) float64 xyxy of polygons, nan for others.
    """

    path: Path
    image_ids: np.ndarray
    paths: list[str]
    sizes: np.ndarray
    categories: dict[int, str]
    image: np.ndarray
    ids: np.ndarray
    category: np.ndarray
    boxes: np.ndarray
    area: np.ndarray
    iscrowd: np.ndarray
    segmentations: list[Any]
    extents: np.ndarray

    @property
    def categories_with_objects(self) -> set[int]:
        """The ids of categories with an object."""
        return set(np.unique(self.category).tolist())

    def instances(self, category_ids: Sequence[int]) -> Instances:
        """The objects; label k + 1 is category_ids[k]."""
        order = np.argsort(category_ids)
        labels = order[np.searchsorted(np.asarray(category_ids)[order], self.category)] + 1
        counts = np.bincount(self.image, minlength=len(self.paths))
        return Instances.from_counts(counts, self.boxes, labels, iscrowd=self.iscrowd, area=self.area)

    def outlines(self) -> RunLengths | None:
        """The masks, None if no annotation has one. Raises UserError if only some have one, or one is invalid."""
        lacking = [int(self.ids[row]) for row, shape in enumerate(self.segmentations) if not shape]
        if len(lacking) == len(self.segmentations):
            return None
        if lacking:
            raise UserError(
                f"{self.path}: {len(lacking)} of {len(self.ids)} annotations have no segmentation, ids "
                f"{and_more(lacking)}: add the missing ones, or remove all for boxes only"
            )
        run_lengths.mask_functions()
        encoded = []
        for row, shape in enumerate(self.segmentations):
            height, width = self.sizes[self.image[row]].tolist()
            try:
                encoded.append(run_lengths.encode(shape, height, width))
            except (UserError, TypeError, ValueError) as error:
                raise UserError(f"{self.path}: annotation {self.ids[row]}: {error}") from error
        return RunLengths.from_bytes(encoded)


def read_coco(path: Path, masks: bool = True) -> CocoFile:
    """Read a file. masks: False leaves the segmentations out.

    Raises UserError if it is missing, is not json, lacks a key, has no image, no category or no annotation, has a
    duplicate id, or has annotations with an unknown image or category, or whose box is not four finite numbers, or is
    rotated.
    """
    content = _content(path)
    images, annotations, categories = (content[key] for key in _KEYS)
    for key, rows in content.items():
        if not rows:
            raise UserError(f"{path} has no {key}: training and evaluation need at least one")
        _check_unique(path, key, "id", _whole(path, f"id of {key}", [row["id"] for row in rows]).tolist())
    _check_unique(path, "images", "file_name", [str(image["file_name"]) for image in images])
    _check_unique(path, "categories", "name", [str(category["name"]) for category in categories])
    row_of = {image["id"]: row for row, image in enumerate(images)}
    names = {category["id"]: str(category["name"]) for category in categories}
    _check_known(path, annotations, "image_id", row_of)
    _check_known(path, annotations, "category_id", names)
    annotations = sorted(annotations, key=lambda annotation: row_of[annotation["image_id"]])
    _check_upright(path, annotations)
    boxes = _boxes(path, annotations)
    return CocoFile(
        path=path,
        image_ids=np.array(list(row_of), np.int64),
        paths=[str(image["file_name"]) for image in images],
        sizes=_whole(path, "height and width", [(image["height"], image["width"]) for image in images]),
        categories=dict(sorted(names.items())),
        image=np.array([row_of[annotation["image_id"]] for annotation in annotations], np.int64),
        ids=np.array([annotation["id"] for annotation in annotations], np.int64),
        category=np.array([annotation["category_id"] for annotation in annotations], np.int64),
        boxes=boxes,
        area=_areas(path, annotations, boxes),
        iscrowd=_crowds(path, annotations),
        segmentations=[annotation.get("segmentation") if masks else None for annotation in annotations],
        extents=np.array([_extent(annotation.get("segmentation")) for annotation in annotations], np.float64),
    )


def check_boxes(file: CocoFile) -> None:
    """Raises UserError for annotations that cannot be right, see `flaws`; warns of sizes that look like corners."""
    sizes = file.sizes[file.image]
    for wrong, flaw in flaws(file.boxes, sizes, file.area, file.iscrowd, file.extents):
        rows = np.flatnonzero(wrong)
        if len(rows):
            row = rows[0]
            left, top, right, bottom = file.boxes[row].tolist()
            height, width = sizes[row].tolist()
            corners = "; as [left, top, right, bottom] it would be a box, too"
            corners = corners if are_corners(file.boxes[row : row + 1])[0] and "shares" not in flaw else ""
            more = f", {len(rows)} annotations in all" if len(rows) > 1 else ""
            raise UserError(
                f"{file.path}: annotation {file.ids[row]} has {flaw}: x {left:g} to {right:g}, y {top:g} to {bottom:g} "
                f"in {file.paths[file.image[row]]} of {width} x {height}{more}; bbox is [x, y, width, height] in "
                f"pixels{corners}"
            )
    if doubt := corners_line(file.boxes, str(file.path)):
        say.warn(doubt, stacklevel=3)


def _content(path: Path) -> dict[str, list[dict[str, Any]]]:
    try:
        content = json.loads(regular(path).read_bytes())
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing") from error
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read as json: {error}") from error
    for field, keys in _KEYS.items():
        rows = content.get(field) if isinstance(content, dict) else None
        if not isinstance(rows, list):
            raise UserError(f'{path} is not in COCO format: it has no list "{field}"')
        for number, row in enumerate(rows):
            lacking = [key for key in keys if not isinstance(row, dict) or key not in row]
            if lacking:
                raise UserError(f"{path}: {field}[{number}] lacks {', '.join(lacking)}")
    return {key: content[key] for key in _KEYS}


def _check_unique(path: Path, part: str, key: str, values: list[Any]) -> None:
    twice = [value for value, many in Counter(values).items() if many > 1]
    if twice:
        raise UserError(f"{path}: {len(twice)} {key}s of {part} occur more than once: {and_more(twice)}")


def _check_known(path: Path, annotations: list[dict[str, Any]], key: str, known: dict[Any, Any]) -> None:
    wrong = [row for row in annotations if type(row[key]) is not int or row[key] not in known]
    if wrong:
        ids = sorted({str(annotation[key]) for annotation in wrong})
        raise UserError(
            f"{path}: {len(wrong)} annotations have an unknown {key}: {and_more(ids)} (the first is annotation "
            f"{wrong[0]['id']}); known are those of {'images' if key == 'image_id' else 'categories'}"
        )


def _check_upright(path: Path, annotations: list[dict[str, Any]]) -> None:
    """Raises UserError for boxes that are rotated, as CVAT and others write it beside them."""
    rotated = [row for row in annotations if any(map(_turn, (row, row.get("attributes"))))]
    if rotated:
        raise UserError(
            f"{path}: {len(rotated)} of {len(annotations)} annotations are rotated, the first is {rotated[0]['id']}: a "
            "box here is upright; export the upright box around each object, and rotation 0"
        )


def _turn(about: Any) -> bool:
    values = [about.get(name) for name in ("rotation", "angle")] if isinstance(about, dict) else []
    return any(_number(value) and value % 360 != 0 for value in values)


def _extent(segmentation: Any) -> tuple[float, ...]:
    """Left, top, right, bottom of polygons; nan for anything else."""
    try:
        polygons = [polygon for polygon in segmentation if len(polygon) >= 6]
        x, y = ([value for polygon in polygons for value in polygon[start::2]] for start in (0, 1))
        return float(min(x)), float(min(y)), float(max(x)), float(max(y))
    except (TypeError, ValueError, KeyError):  # absent, run lengths, or damaged, which `encode` tells
        return (np.nan,) * 4


def _boxes(path: Path, annotations: list[dict[str, Any]]) -> np.ndarray:
    """(M, 4) float64 xyxy."""
    for annotation in annotations:
        box = annotation["bbox"]
        if not isinstance(box, list) or len(box) != 4 or not all(map(_number, box)):
            raise UserError(f"{path}: the bbox of annotation {annotation['id']} is not [x, y, width, height]: {box}")
    boxes = np.array([annotation["bbox"] for annotation in annotations], np.float64)
    bad = np.flatnonzero(~np.isfinite(boxes).all(1))
    if len(bad):
        raise UserError(f"{path}: the bbox of annotation {annotations[bad[0]]['id']} is not finite")
    boxes[:, 2:] += boxes[:, :2]
    return boxes


def _areas(path: Path, annotations: list[dict[str, Any]], boxes: np.ndarray) -> np.ndarray:
    """(M,) float64: the file's area, or else that of the box."""
    of_boxes = (boxes[:, 2:] - boxes[:, :2]).prod(1).tolist()
    areas = [annotation.get("area", area) for annotation, area in zip(annotations, of_boxes, strict=True)]
    if wrong := [row for row, area in enumerate(areas) if not _number(area)]:
        row = wrong[0]
        raise UserError(f"{path}: the area of annotation {annotations[row]['id']} is not a number: {areas[row]!r}")
    return np.array(areas, np.float64)


def _crowds(path: Path, annotations: list[dict[str, Any]]) -> np.ndarray:
    """(M,) bool."""
    flags = [annotation.get("iscrowd", 0) for annotation in annotations]
    if wrong := [row for row, flag in enumerate(flags) if type(flag) not in (int, bool) or flag not in (0, 1)]:
        row = wrong[0]
        raise UserError(f"{path}: iscrowd of annotation {annotations[row]['id']} is neither 0 nor 1: {flags[row]!r}")
    return np.array(flags, bool)


def _number(value: Any) -> bool:
    """Return True for a number that float64 holds."""
    return type(value) is float or (type(value) is int and abs(value) < LARGEST)


def _whole(path: Path, name: str, values: list[Any]) -> np.ndarray:
    """Convert numbers, or pairs of them, to int64. Raises UserError for values that are not integers."""
    flat = [number for value in values for number in (value if isinstance(value, tuple) else (value,))]
    wrong = [value for value in flat if type(value) is not int or abs(value) >= LARGEST]
    if wrong:
        raise UserError(f"{path}: {name} must be integers, got {wrong[0]!r}")
    return np.array(values, np.int64)
