"""All processes of a run, and the run that is resumed, must number the same images: row 7 is one, whoever reads it."""

import hashlib
import threading
from pathlib import Path
from typing import Any

from sslkit.data.arrays import ArrayImages
from sslkit.data.images import Images
from sslkit.errors import UserError
from sslkit.runtime import distributed
from sslkit.runtime.waiting import from_all
from sslkit.terminal import say

_PATIENCE = 3  # seconds of waiting without a word


def check(images: Images) -> None:
    """Raises UserError, on every process, if some see other images than the first: another number, name or label.

    Files are not compared by content or time, so that each machine may have a copy of its own.
    """
    if distributed.world_size() == 1:
        return
    found = from_all("the comparison of the data", [len(images), fingerprint(images)])
    others = [rank for rank, one in enumerate(found) if one != found[0]]
    if others:
        counts = f"{found[others[0]][0]:,} images, process 0 {found[0][0]:,}"
        how = "" if found[others[0]][0] != found[0][0] else ", with other names or labels"
        raise UserError(
            f"the processes see different images in {images.name}: process {others[0]} has {counts}{how}; give every "
            "machine the same data"
        )


def fingerprint(images: Images) -> str:
    """sha256 (hex) of the names and labels of all rows; of arrays the content."""
    if isinstance(images, ArrayImages):
        return images.digest
    digest = hashlib.sha256(repr(images.classes).encode())
    for labels in (images.labels, images.multi_labels):
        digest.update(b"" if labels is None else labels.tobytes())
    for row in range(len(images)):
        digest.update(images.image_name(row).encode(errors="surrogateescape") + b"\n")
    return digest.hexdigest()


class Content:
    """The identity of the images of a run, whose files are read for it beside the training.

    read: start that now; a process that writes no checkpoint needs none.
    """

    def __init__(self, images: Images, *, read: bool) -> None:
        self.images = images
        self._error: UserError | None = None
        self._reader = threading.Thread(target=self._read, daemon=True)
        if read:
            self._reader.start()

    def state(self) -> dict[str, Any]:
        """Return the entries of a checkpoint; digest is None if the files are not all read yet."""
        return {"listing": self.images.listing, "digest": self.images.digest if self.is_known else None}

    @property
    def is_known(self) -> bool:
        """True once all files are read."""
        return not self._reader.is_alive() and self._error is None and "digest" in vars(self.images)

    def check(self, state: dict[str, Any], folder: Path) -> None:
        """Raises UserError if a checkpoint of the run in `folder` was made with other images."""
        self.wait()
        if state["listing"] != self.images.listing or state["digest"] not in (None, self.images.digest):
            raise UserError(f"the images have changed since {folder} was started: start a new run")
        if state["digest"] is None:
            say.line(
                f"{self.images.name}: the run was stopped before all files were read, so that only names and sizes of "
                f"its {len(self.images):,} images are known to be the same"
            )

    def wait(self) -> None:
        """Wait until the files are read. Raises UserError for one that has gone."""
        if self._reader.is_alive():
            self._reader.join(_PATIENCE)
            if self._reader.is_alive():
                say.line(f"reading {self.images.name} once, to know its content")
                self._reader.join()
        if self._error is not None:
            raise self._error

    def _read(self) -> None:
        try:
            _ = self.images.digest
        except UserError as error:
            self._error = error
