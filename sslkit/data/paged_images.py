"""Each page of files that have several as an image of its numbers."""

import copy
from typing import Any

import numpy as np
from tqdm import tqdm

from sslkit.data.columns import group_numbers
from sslkit.data.decode.budget import PAGES_IN_A_ROW
from sslkit.data.decode.opening import Picture, check_picture
from sslkit.data.decode.pages import Pages
from sslkit.data.decode.scale import Scale
from sslkit.data.decode.survey import pages_of
from sslkit.data.decode.unreadable import UnreadableImage, unreadable
from sslkit.data.decoded_images import DecodedImages
from sslkit.data.file_contents import bar_is_off
from sslkit.data.images import Identity, ImageOptions
from sslkit.data.path_list import PathList
from sslkit.terminal import say


class PagedImages(DecodedImages):
    """The pages of other images, `NAME#1`, `NAME#2`, ...; a file of one page keeps its name.

    rows: (N,) row of each page in `images`. pages: (N,) its number in the file, from 0; -1 for a file of one page.
    places: (N,) where it begins in the file, as of `decode.pages.Pages`.
    """

    def __init__(self, images: DecodedImages, rows: np.ndarray, pages: np.ndarray, places: np.ndarray) -> None:
        self.images, self.rows, self.pages, self.places = images, rows, pages, places
        labels = None if images.labels is None else images.labels[rows]
        several = None if images.multi_labels is None else images.multi_labels[rows]
        numbers = None if images.numbers is None else images.numbers[rows]
        groups = _numbers_of_files(images)[rows] if images.groups is None else images.groups[rows]
        identity = (images.name, images.source, images.splits, labels, images.classes, images.licence, several, groups)
        about = {"scale": images._known, "mirror": images.mirror, "numbers": numbers}
        super().__init__(Identity(*identity, **about), images.options)

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
        of_files = self.images.names()
        return None if of_files is None else of_files.take(self.rows)

    def stamps_digest(self) -> str | None:
        return self.images.stamps_digest()

    def path(self, row: int) -> str:
        return self.images.path(int(self.rows[row])) + self._page(row)

    def image_name(self, row: int) -> str:
        return self.images.image_name(int(self.rows[row])) + self._page(row)

    def _page(self, row: int) -> str:
        return f"#{self.pages[row] + 1}" if self.pages[row] >= 0 else ""

    def _take(self, rows: np.ndarray) -> None:
        self.rows, self.pages, self.places = self.rows[rows], self.pages[rows], self.places[rows]

    def _open(self, row: int) -> Picture:
        image = self.images._open(int(self.rows[row]))
        try:
            if self.pages[row] > 0:
                image.seek(int(self.pages[row]), int(self.places[row]))
            return check_picture(image, self.options.max_pixels)
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
    every, cut = [], []
    for row in tqdm(range(len(images)), desc="pages", unit="file", delay=2, disable=bar_is_off()):
        in_file = _pages(images, row)
        if in_file.total > len(in_file.places):
            cut.append((row, in_file.total))
        every.append(in_file.places)
    if cut:
        row, total = cut[0]
        number = "" if len(cut) == 1 else f", and as many of {len(cut) - 1} other files"
        remark = f"the first {PAGES_IN_A_ROW:,} of its {total:,} pages are read{number}: each needs all before it"
        say.warn(f"{images.name}: {images.path(row)}: {remark}", stacklevel=4)
    rows = np.repeat(np.arange(len(images)), [len(places) for places in every])
    pages, places = np.concatenate(every).T.copy()
    return PagedImages(images, rows, pages, places)


def _numbers_of_files(images: DecodedImages) -> np.ndarray:
    """(N,) int64, another for each file, in all splits: its pages stay together."""
    names = [f"{images.split}/{images.image_name(row)}" for row in range(len(images))]
    return group_numbers(names, names)


def _pages(images: DecodedImages, row: int) -> Pages:
    try:
        with images._open(row) as image:
            pages = pages_of(image)
            return pages if len(pages.places) > 1 else _ONE
    except UnreadableImage:
        return _ONE


_ONE = Pages(np.array([[-1, 0]]), 1)
