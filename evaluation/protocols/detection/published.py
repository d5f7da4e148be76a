"""Published detection sets on disk: what is missing and where to get it, and whether the set is whole."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evaluation.datasets.base import COUNTS
from sslkit.errors import UserError


@dataclass(frozen=True)
class Published:
    """name: as in `open_boxes`. title: for messages. origin: where the files come from. fetch: a command, or ""."""

    name: str
    title: str
    origin: str
    fetch: str = ""

    def folder(self, root: Path, places: Sequence[str], wanted: Sequence[str], split: str) -> Path:
        """The first of `places` below root that has all of `wanted`.

        Raises UserError with all that is missing in the place that lacks least, and where to get it.
        """
        absent = [[file for file in wanted if not (root / place / file).exists()] for place in places]
        nearest = min(range(len(places)), key=lambda place: len(absent[place]))
        if absent[nearest]:
            below = (root / places[nearest]).absolute()
            fetched = f" To fetch it: {self.fetch}." if self.fetch else ""
            raise UserError(
                f"{self.title} cannot be opened from {root.absolute()}: of its split {split!r} these are missing below "
                f"{below}: {', '.join(absent[nearest])}. From: {self.origin}.{fetched} If it is elsewhere: "
                f"root=FOLDER or data={self.name}:FOLDER"
            )
        return root / places[nearest]

    def check_count(self, found: int, published: int, split: str, counts: str, lists: Sequence[Path]) -> str:
        """What to print beside numbers of a set that has not the published number of images, or "".

        counts: "raise" raises UserError instead; "warn" warns. lists: the files that name the images.
        """
        if counts not in COUNTS:
            raise UserError(f"counts={counts!r} is not an option; known: {', '.join(COUNTS)}")
        if found == published:
            return ""
        message = f"{self.name}: the split {split!r} has {found} images instead of {published}"
        if counts == "raise":
            raise UserError(
                f"{message} in {', '.join(map(str, lists))}: is it unpacked whole, or is it another copy? If it is "
                'meant, open_boxes(..., counts="warn") goes on; its numbers are then not those of the published set'
            )
        warnings.warn(f"{message}; its numbers are not those of the published set", stacklevel=4)
        return f"not the published set: {found} images instead of {published}"
