"""Image files of detection data sets: check their presence and sizes, and read their pixels."""

import glob
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import ExifTags, Image, ImageOps

from sslkit.data.decode.fill import TAGGED
from sslkit.data.decode.opacity import apply_scale
from sslkit.data.decode.opening import Opening, Picture, open_image, open_picture
from sslkit.data.decode.pixels import rgb
from sslkit.data.decode.scale import Scale
from sslkit.data.decode.survey import scale_of, survey
from sslkit.data.decode.unreadable import UnreadableImage, unreadable
from sslkit.data.file_contents import FileContents
from sslkit.data.image_options import AS_FOUND, CACHE, ImageOptions
from sslkit.data.path_list import PathList
from sslkit.errors import UserError
from sslkit.terminal import say
from sslkit.terminal.say import and_more


@dataclass(frozen=True)
class DiskImages:
    """`Pixels` of files: `paths` below `root`, and the (N, 2) height and width in the annotations.

    A file of another size is transposed by its EXIF orientation if that gives the annotated size; otherwise UserError.
    scale: how stored values become bytes, see `common_scale`. cache: folder that remembers the digests of the files.
    """

    root: Path
    paths: PathList
    sizes: np.ndarray
    scale: Scale = Scale()
    cache: str | Path | None = CACHE

    def __getitem__(self, row: int) -> torch.Tensor:
        try:
            with open_image(self.path(row)) as image:
                return torch.from_numpy(rgb(apply_scale(self._upright(image, row), self.scale), self.scale.range))
        except UnreadableImage as error:
            raise UserError(f"cannot read {self.path(row)}: {error}") from error

    def path(self, row: int) -> str:
        return os.path.join(self.root, self.paths[row])

    def take(self, rows: np.ndarray) -> "DiskImages":
        return replace(self, paths=self.paths.take(np.asarray(rows)), sizes=self.sizes[rows])

    def update_digest(self, digest: Any) -> None:
        FileContents(self.root, self.paths, self.cache).update_content(digest)
        if self.scale.range is not None:
            digest.update(repr(self.scale.range).encode())
        digest.update(b"no opacity" if self.scale.opacity is False else b"")
        digest.update(b"" if self.scale.fill in (None, TAGGED) else repr(self.scale.fill).encode())

    def check_presence(self, name: str) -> None:
        """Raises UserError for missing files, with their number and the first. Each folder is listed once."""
        names = [self.paths[row] for row in range(len(self.paths))]
        present = {folder: _list(self.root / folder) for folder in {os.path.dirname(path) for path in names}}
        missing = [path for path in names if os.path.basename(path) not in present[os.path.dirname(path)]]
        if missing:
            raise UserError(
                f"{name}: {len(missing)} of {len(names)} images are not below {self.root}: {and_more(missing)}: "
                f"{self._advice(missing[0])}"
            )

    def _advice(self, missing: str) -> str:
        """Advice for a missing file, which may lie one folder deeper than given."""
        file = next(iter(sorted(self.root.glob(f"*/{glob.escape(missing)}"))), None)
        if file is None:
            return "check that the archives are completely unpacked"
        path = file.relative_to(self.root)
        return f"found {path} instead: use that as file_name, which is relative to {self.root}"

    def check_headers(self, name: str) -> None:
        """Raises UserError for files that are not images, or not of the annotated size. Nothing is decoded.

        Also refuses images whose EXIF orientation rotates or mirrors them without changing their size: it is then
        ambiguous which of the two the boxes refer to.
        """
        for row in range(len(self.paths)):
            try:
                with open_image(self.path(row)) as image:
                    ambiguous = self._upright(image, row) is image and _turns_unseen(image)
            except UnreadableImage as error:
                raise UserError(f"{name}: cannot read {self.path(row)}: {error}") from error
            if ambiguous:
                raise UserError(
                    f"{self.path(row)} has an EXIF orientation that keeps its size, so it is ambiguous whether its "
                    "boxes refer to the stored or to the rotated image: save it upright, without EXIF orientation"
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
            "the boxes would not match"
        )


def orientation_of_header(image: Image.Image) -> int:
    """Return the EXIF orientation of an opened file by its header: `getexif` decodes a whole PNG."""
    exif = Image.Exif()
    exif.load(image.info.get("exif"))
    return exif.get(ExifTags.Base.Orientation, 1)


def _turns_unseen(image: Image.Image) -> bool:
    """Return True if the EXIF orientation rotates or mirrors the image without changing its size."""
    orientation = orientation_of_header(image)
    return orientation in (2, 3, 4) or (orientation in (5, 6, 7, 8) and image.width == image.height)


@dataclass(frozen=True)
class _Looked:
    """Files as `survey` looks at them."""

    name: str
    root: Path
    paths: PathList
    options: ImageOptions
    channels: int = 3

    def __len__(self) -> int:
        return len(self.paths)

    def path(self, row: int) -> str:
        return os.path.join(self.root, self.paths[row])

    def names(self) -> PathList:
        return self.paths

    def stamps_digest(self) -> str:
        return FileContents(self.root, self.paths, self.options.cache).stamps_digest()

    def _open(self, row: int) -> Picture:
        return open_picture(self.path(row), Opening())


def common_scale(name: str, root: Path, paths: PathList, given: ImageOptions = AS_FOUND) -> Scale:
    """Return how the stored values of a set become bytes, with a warning that says it.

    root, paths: of the images to learn from, of which 256 are read. given: a range of "auto" reads all of them.
    Another warning says if some have several pages.
    """
    images = _Looked(name, root, paths, given)
    seen = survey(images)
    if seen.pages:
        say.warn(f"{name}: some images have up to {max(seen.pages):,} pages; the first is read", stacklevel=2)
    return scale_of(images, seen)


def _list(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return set()
