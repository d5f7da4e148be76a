"""Locate published detection data sets on disk, report missing files and check the number of images."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sslkit.data.published.base import as_published
from sslkit.errors import UserError
from sslkit.files.reading import is_there


@dataclass(frozen=True)
class Published:
    """name: as in `open_boxes`. title: for messages. origin: source of the files. fetch: download command, or ""."""

    name: str
    title: str
    origin: str
    fetch: str = ""

    def folder(self, root: Path, places: Sequence[str], wanted: Sequence[str], split: str) -> Path:
        """The first of `places` below root that contains all of `wanted`.

        Raises UserError with the missing files of the place with the fewest missing, and their source.
        """
        absent = [[file for file in wanted if not is_there(root / folder / file)] for folder in places]
        nearest = min(range(len(places)), key=lambda place: len(absent[place]))
        if absent[nearest]:
            below = (root / places[nearest]).absolute()
            fetched = f" To download it: {self.fetch}." if self.fetch else ""
            raise UserError(
                f"{self.title} cannot be opened from {root.absolute()}: files of its split {split!r} are missing below "
                f"{below}: {', '.join(absent[nearest])}. Source: {self.origin}.{fetched} For another folder: "
                f"root=FOLDER or data={self.name}:FOLDER"
            )
        return root / places[nearest]

    def check_count(self, found: int, published: int, split: str, counts: str, lists: Sequence[Path]) -> str:
        """Return a note for results if the number of images differs from the published one, otherwise "".

        counts: "raise" raises UserError instead; "warn" warns. lists: the files that list the images.
        """
        wrong = [] if found == published else [f"{found} images instead of {published}"]
        return as_published(f"{self.name}: the split {split!r}", wrong, counts, f" in {', '.join(map(str, lists))}")
