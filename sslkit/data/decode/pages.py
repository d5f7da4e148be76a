"""Each page of files that have several as an image of its numbers."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from sslkit.data.decode.looked_at import pages_of
from sslkit.data.decode.opening import Picture, checked
from sslkit.data.decode.scale import Scale
from sslkit.data.decode.unreadable import UnreadableImage, unreadable
from sslkit.data.decoded import DecodedImages
from sslkit.data.file_contents import bar_is_off
from sslkit.data.images import Identity, ImageOptions
from sslkit.data.path_list import PathList


class PagedImages(DecodedImages):
    """The pages of other images, `NAME#1`, `NAME#2`, ...; a file of one page keeps its name.

    rows: (N,) row of each page in `images`. pages: (N,) its number in the file, from 0; -1 for a file of one page.
    """

    def __init__(self, images: DecodedImages, rows: np.ndarray, pages: np.ndarray) -> None:
        self.images, self.rows, self.pages = images, rows, pages
        labels = None if images.labels is None else images.labels[rows]
        several = None if images.multi_labels is None else images.multi_labels[rows]
        known = (images.name, images.source, images.splits, labels, images.classes, images.licence, several)
        super().__init__(Identity(*known), images.options)

    @property
    def options(self) -> ImageOptions:
        return self.images.options

    @options.setter
    def options(self, options: ImageOptions) -> None:
        self.images = copy.copy(self.images)
        self.images.options = options

    def __len__(self) -> int:
        return len(self.rows)

    def names(self) -> PathList | None:
        known = self.images.names()
        return None if known is None else known.take(self.rows)

    def path(self, row: int) -> str:
        return self.images.path(int(self.rows[row])) + self._page(row)

    def image_name(self, row: int) -> str:
        return self.images.image_name(int(self.rows[row])) + self._page(row)

    def _page(self, row: int) -> str:
        return f"#{self.pages[row] + 1}" if self.pages[row] >= 0 else ""

    def _take(self, rows: np.ndarray) -> None:
        self.rows, self.pages = self.rows[rows], self.pages[rows]

    def _open(self, row: int) -> Picture:
        image = self.images._open(int(self.rows[row]))
        try:
            image.seek(max(0, int(self.pages[row])))
            return checked(image, self.options.max_pixels)
        except Exception as error:
            image.close()
            raise unreadable(error) from error

    def _update_listing(self, digest: Any) -> None:
        self.images._update_listing(digest)
        self._update_pages(digest)

    def _update_digest(self, digest: Any) -> None:
        self.images._update_digest(digest)
        self._update_pages(digest)

    def _update_pages(self, digest: Any) -> None:
        digest.update(self.rows.tobytes())
        digest.update(self.pages.tobytes())


def of_pages(images: DecodedImages) -> PagedImages:
    """The pages of all images, each file opened once for their number; one that cannot be opened is one page."""
    images.scale = Scale()  # that of the pages is decided by them all
    rows, pages = [], []
    bar = tqdm(range(len(images)), desc="pages", unit="file", delay=2, disable=bar_is_off())
    for row in bar:
        numbers = _pages(images, row)
        rows += [row] * len(numbers)
        pages += numbers
    return PagedImages(images, np.array(rows, np.int64), np.array(pages, np.int64))


def _pages(images: DecodedImages, row: int) -> Sequence[int]:
    try:
        with images._open(row) as image:
            numbers = pages_of(image)
            return numbers if len(numbers) > 1 else [-1]
    except UnreadableImage:
        return [-1]
