"""Label maps in PNG files, as VOC and ADE20K have them, and the two published sets, from disk.

voc12_seg: PASCAL VOC 2012 segmentation (Everingham et al. 2015), 20 classes and the background, 1,464 images to learn
from and 1,449 (val) to be judged by; pixels of value 255 are on edges, and ignored.
ade20k: ADE20K's scene parsing benchmark (Zhou et al. 2017), 150 classes, 20,210 images to learn from and 2,000 (val) to
be judged by; value 0 is what has no class, and ignored.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from evaluation.tasks.detection.datasets.disk_images import DiskImages, orientation_of_header
from evaluation.tasks.detection.datasets.published import Published
from evaluation.tasks.segmentation.label_maps import IGNORED, LabelMaps
from sslkit.data.decode.opening import open_image
from sslkit.data.decode.tiff import QUARTER_TURN
from sslkit.data.decode.unreadable import UnreadableImage
from sslkit.data.file_contents import FileContents
from sslkit.data.image_options import CACHE
from sslkit.data.images import check_split
from sslkit.data.path_list import PathList
from sslkit.data.published.voc07 import CLASSES as VOC_CLASSES
from sslkit.data.sources.split_words import split_of
from sslkit.errors import UserError

VOC_COUNTS = {"train": 1464, "test": 1449}
ADE_COUNTS = {"train": 20_210, "test": 2_000}
ADE_CLASSES = 150  # of the published set


@dataclass(frozen=True, eq=False)
class PngMaps:
    """`Maps` of PNG files of one channel: `paths` below `root`; first: the value of class 0, 0 below it is ignored.

    cache: folder that remembers the digests of the files.
    """

    root: Path
    paths: Sequence[str]
    first: int = 0
    cache: str | Path | None = CACHE

    def __getitem__(self, row: int) -> np.ndarray:
        path = os.path.join(self.root, self.paths[row])
        try:
            with open_image(path) as image:
                mode, values = image.mode, np.array(image)
        except (UnreadableImage, OSError) as error:
            raise UserError(f"cannot read the label map {path}: {error}") from error
        if mode not in ("L", "P"):
            raise UserError(
                f"the label map {path} has colours ({mode}): give one number for each pixel (modes L and P)"
            )
        shifted = (values.astype(np.int64) - self.first).astype(np.uint8)
        return np.where((values < self.first) | (values == IGNORED), IGNORED, shifted).astype(np.uint8)

    def take(self, rows: np.ndarray) -> "PngMaps":
        return replace(self, paths=[self.paths[row] for row in rows])

    def update_digest(self, digest: Any) -> None:
        FileContents(self.root, PathList(list(self.paths)), self.cache).update_content(digest)


def open_voc12(split: str, root: Path, counts: str) -> LabelMaps:
    """Open VOC 2012 segmentation below root: root/VOCdevkit/VOC2012 or root/VOC2012. split: "train" or "test" (val).

    counts: reaction to a number of images other than the published one: "raise" or "warn".
    Raises UserError for missing files (all are named, with their source) and for lists that are not VOC's.
    """
    split = {"val": "test"}.get(split, split)
    check_split("voc12_seg", split, tuple(VOC_COUNTS))
    listed = f"VOC2012/ImageSets/Segmentation/{'train' if split == 'train' else 'val'}.txt"
    source = "https://thor.robots.ox.ac.uk/pascal/VOC/ (voc2012/VOCtrainval_11-May-2012.tar)"
    published = Published("voc12_seg", "VOC 2012 segmentation", source)
    wanted = [listed, "VOC2012/JPEGImages", "VOC2012/SegmentationClass"]
    folder = published.folder(root, ("VOCdevkit", "."), wanted, split)
    names = (folder / listed).read_text(encoding="utf-8", errors="replace").split()
    note = published.check_count(len(names), VOC_COUNTS[split], split, counts, [folder / listed])
    images = [f"VOC2012/JPEGImages/{name}.jpg" for name in names]
    maps = [f"VOC2012/SegmentationClass/{name}.png" for name in names]
    return _open("voc12_seg", split, ("background", *VOC_CLASSES), folder, images, maps, note)


def open_ade20k(split: str, root: Path, counts: str) -> LabelMaps:
    """Open ADE20K's benchmark below root: root/ADEChallengeData2016 or root. split: "train" or "test" (validation).

    counts, errors: as in `open_voc12`. The classes are named after objectInfo150.txt, where it is there.
    """
    split = "test" if split_of(split) == "val" else split
    check_split("ade20k", split, tuple(ADE_COUNTS))
    folder_name = "training" if split == "train" else "validation"
    published = Published("ade20k", "ADE20K", "http://sceneparsing.csail.mit.edu/ (ADEChallengeData2016.zip)")
    wanted = [f"images/{folder_name}", f"annotations/{folder_name}"]
    folder = published.folder(root, ("ADEChallengeData2016", "."), wanted, split)
    names = sorted(path.stem for path in (folder / wanted[1]).glob("*.png"))
    note = published.check_count(len(names), ADE_COUNTS[split], split, counts, [folder / wanted[1]])
    images = [f"images/{folder_name}/{name}.jpg" for name in names]
    maps = [f"annotations/{folder_name}/{name}.png" for name in names]
    return _open("ade20k", split, _ade_classes(folder), folder, images, maps, note, first=1)


def _ade_classes(folder: Path) -> tuple[str, ...]:
    """Names of the classes, by the table beside the images; their numbers without it."""
    table = folder / "objectInfo150.txt"
    rows = table.read_text(encoding="utf-8", errors="replace").splitlines()[1:] if table.is_file() else []
    names = [row.rstrip().split("\t")[-1].split(",")[0].strip() for row in rows if row.strip()]
    return tuple(names) if len(names) == ADE_CLASSES else tuple(str(number + 1) for number in range(ADE_CLASSES))


def _open(
    name: str,
    split: str,
    classes: Sequence[str],
    folder: Path,
    images: list[str],
    maps: list[str],
    note: str,
    first: int = 0,
) -> LabelMaps:
    pixels = AnySize(folder, PathList(images), np.zeros((len(images), 2), np.int64))
    named = AnySize(folder, PathList(maps), pixels.sizes)
    for paths in (pixels, named):
        paths.check_presence(name)
    return LabelMaps(name, split, tuple(classes), images, pixels.beside(named), PngMaps(folder, maps, first), note)


class AnySize(DiskImages):
    """`Pixels` of files whose size no annotation tells: 0 in `sizes`, where `beside` has not found it."""

    def _upright(self, image: Image.Image, row: int) -> Image.Image:
        return super()._upright(image, row) if self.sizes[row].any() else image

    def beside(self, maps: "AnySize") -> "AnySize":
        """The same images, turned upright by their EXIF orientation where their label maps are upright.

        Only headers are read. Raises UserError for a map of another size, and where the size does not tell which of the
        two a map belongs to.
        """
        sizes = self.sizes.copy()
        for row in range(len(self.paths)):
            try:
                with open_image(self.path(row)) as image:
                    orientation, (width, height) = orientation_of_header(image), image.size
                with open_image(maps.path(row)) as image:
                    size = image.size
            except UnreadableImage:  # told when it is read
                continue
            if orientation == 1:
                if size != (width, height):
                    raise UserError(
                        f"the label map {maps.path(row)} has {size[0]} x {size[1]} pixels, and its image "
                        f"{self.path(row)} {width} x {height}: save both at one size"
                    )
                continue
            if orientation < QUARTER_TURN or width == height or size != (height, width):
                raise UserError(
                    f"{self.path(row)} has an EXIF orientation, and the size of its label map does not tell "
                    "whether that belongs to the stored or to the rotated image: save both upright, without EXIF"
                )
            sizes[row] = width, height
        return replace(self, sizes=sizes)
