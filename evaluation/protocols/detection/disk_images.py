"""Images of detection sets that are files: their presence, their sizes, their pixels."""

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import ExifTags, Image, ImageOps

from sslkit.data.decode import UnreadableImage, open_image, rgb, unreadable
from sslkit.data.folder import PathList
from sslkit.errors import UserError

SHOWN = 3  # names in a message


@dataclass(frozen=True)
class DiskImages:
    """`Pixels` of files: `paths` below `root`, and the (N, 2) height and width that the annotations say they have.

    A file of another size is turned as its EXIF orientation says, if it has the said size then; else it is refused.
    """

    root: Path
    paths: PathList
    sizes: np.ndarray

    def __getitem__(self, row: int) -> torch.Tensor:
        try:
            with open_image(self.path(row)) as image:
                return torch.from_numpy(rgb(self._upright(image, row)))
        except UnreadableImage as error:
            raise UserError(f"cannot read {self.path(row)}: {error}") from error

    def path(self, row: int) -> str:
        return os.path.join(self.root, self.paths[row])

    def take(self, rows: np.ndarray) -> "DiskImages":
        return DiskImages(self.root, PathList([self.paths[row] for row in rows]), self.sizes[rows])

    def update_digest(self, digest: Any) -> None:
        for row in range(len(self.paths)):
            try:
                stat = os.stat(self.path(row))
            except OSError as error:
                raise UserError(f"{self.path(row)} has gone since the set was opened: {error}") from error
            digest.update(b"%s %d %d\n" % (os.fsencode(self.paths[row]), stat.st_size, stat.st_mtime_ns))

    def check_presence(self, name: str) -> None:
        """Raises UserError when files are missing, with how many and the first. Each folder is listed once."""
        names = [self.paths[row] for row in range(len(self.paths))]
        present = {folder: _listed(self.root / folder) for folder in {os.path.dirname(path) for path in names}}
        missing = [path for path in names if os.path.basename(path) not in present[os.path.dirname(path)]]
        if missing:
            raise UserError(
                f"{name}: {len(missing)} of {len(names)} images are not below {self.root}: {few(missing)}: "
                f"{self._advice(missing[0])}"
            )

    def _advice(self, missing: str) -> str:
        """How to mend a missing file: it may lie one folder deeper than it is said to."""
        found = next(iter(sorted(self.root.glob(f"*/{glob.escape(missing)}"))), None)
        if found is None:
            return "is it unpacked whole?"
        place = found.relative_to(self.root)
        return f"found {place} instead: write that as file_name, which is relative to {self.root}"

    def check_headers(self, name: str) -> None:
        """Raises UserError when files are no images, or of another size than is said. Nothing is decoded.

        Nor does it let pass an image that a viewer turns or mirrors without a change of its size: nothing then says
        which of the two its boxes belong to.
        """
        for row in range(len(self.paths)):
            try:
                with open_image(self.path(row)) as image:
                    ambiguous = self._upright(image, row) is image and _turns_unseen(image)
            except UnreadableImage as error:
                raise UserError(f"{name}: cannot read {self.path(row)}: {error}") from error
            if ambiguous:
                raise UserError(
                    f"{self.path(row)} is to be turned or mirrored by its EXIF data, and its annotations do not say "
                    "whether their boxes are of the image as it is stored: write it upright, without EXIF orientation"
                )

    def _upright(self, image: Image.Image, row: int) -> Image.Image:
        height, width = self.sizes[row].tolist()
        if image.size == (width, height):
            return image
        if image.size == (height, width):
            try:
                turned = ImageOps.exif_transpose(image)
            except Exception as error:
                raise unreadable(error) from error
            if turned.size == (width, height):
                return turned
        raise UserError(
            f"{self.path(row)} is {image.size[0]} x {image.size[1]} pixels, its annotations say {width} x {height}: "
            "boxes of another size would be wrong"
        )


def _turns_unseen(image: Image.Image) -> bool:
    """Whether its EXIF data turn or mirror it, and it has the same size then."""
    exif = Image.Exif()
    exif.load(image.info.get("exif"))  # of the header; `getexif` decodes a PNG to its end
    orientation = exif.get(ExifTags.Base.Orientation, 1)
    return orientation in (2, 3, 4) or (orientation in (5, 6, 7, 8) and image.width == image.height)


def few(names: Sequence[object]) -> str:
    """The first of some names, for a message."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(map(str, names[:SHOWN])) + more


def _listed(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return set()
