"""All processes of a run, and the run that is resumed, must number the same images: row 7 is one, whoever reads it."""

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from sslkit.data.arrays import ArrayImages
from sslkit.data.images import Images
from sslkit.errors import UserError
from sslkit.runtime import distributed
from sslkit.runtime.waiting import from_all
from sslkit.terminal import say

_PATIENCE = 3  # seconds of waiting without a word: what a person takes for a start
_ASSUMED: WeakKeyDictionary[Images, Callable[[], None]] = WeakKeyDictionary()  # images with the digest of a checkpoint


def check(images: Images) -> None:
    """Raises UserError, on every process, if some see other images than the first: another number, name or label.

    Files are not compared by content or time, so that each machine may have a copy of its own.
    """
    if distributed.world_size() == 1:
        return
    summaries = from_all("the comparison of the data", [len(images), fingerprint(images)])
    others = [rank for rank, summary in enumerate(summaries) if summary != summaries[0]]
    if others:
        counts = f"{summaries[others[0]][0]:,} images, process 0 {summaries[0][0]:,}"
        how = "" if summaries[others[0]][0] != summaries[0][0] else ", with other names or labels"
        raise UserError(
            f"the processes see different images in {images.name}: process {others[0]} has {counts}{how}; give every "
            "machine the same data"
        )


def fingerprint(images: Images) -> str:
    """sha256 (hex) of the names and labels of all rows; of arrays the content."""
    if isinstance(images, ArrayImages):
        return images.digest
    digest = hashlib.sha256(repr(images.classes).encode())
    for values in (images.labels, images.multi_labels, images.numbers, images.groups):
        digest.update(b"" if values is None else values.tobytes())
    for row in range(len(images)):
        digest.update(images.image_name(row).encode(errors="surrogateescape") + b"\n")
    return digest.hexdigest()


class Content:
    """The identity of the images of a run, whose files are read for it beside the training.

    A resumed run trains with the digest of its checkpoint until all files are read, for which a copy on another disk
    takes long; before it writes anything, the two are compared.
    read: start that now; a process that writes no checkpoint needs none.
    """

    def __init__(self, images: Images, *, read: bool) -> None:
        self.images = images
        self._digest: str | None = None
        self._error: UserError | None = None
        self._begun: tuple[str, Path] | None = None  # digest of the checkpoint, and the run's folder
        self._reader = threading.Thread(target=self._compute_digest, args=(images._copy(),), daemon=True)
        if read:
            self._reader.start()

    def state(self) -> dict[str, Any]:
        """Return the entries of a checkpoint; digest is None if the files are not all read yet.

        Raises UserError if a resumed run was begun with other images.
        """
        if self._begun is not None:
            self.wait()
        return {"listing": self.images.listing, "digest": self._digest if self.known() else None}

    def known(self) -> bool:
        """Return whether all files are read.

        Raises UserError if a resumed run was begun with other images, if a manifest has another content of one, and for
        one that has gone.
        """
        if self._reader.is_alive():
            return False
        if self._error is not None:
            raise self._error
        if self._digest is None:
            return False
        if self._begun is not None:
            digest, folder = self._begun
            _ASSUMED.pop(self.images, None)
            if digest != self._digest:
                raise _change_error(folder)
            self._begun = None
        return True

    def check(self, state: dict[str, Any], folder: Path) -> None:
        """Compare the images with those of a checkpoint of the run in `folder`: names and sizes now, content once read.

        Raises UserError if they are others.
        """
        if state["listing"] != self.images.listing:
            raise _change_error(folder)
        if state["digest"] is None:
            say.line(
                f"{self.images.name}: the run was stopped before all files were read, so that only names and sizes of "
                f"its {len(self.images):,} images are known to be the same"
            )
            return
        self._begun = state["digest"], folder
        if not self.known():
            self.images.__dict__["digest"], _ASSUMED[self.images] = state["digest"], self.wait

    def wait(self) -> None:
        """Wait until the files are read. Raises UserError as `known` does."""
        if self._reader.is_alive():
            self._reader.join(_PATIENCE)
            if self._reader.is_alive():
                say.line(f"reading {self.images.name} once, to know its content")
                self._reader.join()
        self.known()

    def _compute_digest(self, images: Images) -> None:
        try:
            self._digest = self.images.__dict__["digest"] = images.digest
        except UserError as error:
            self._error = error


def confirm(images: Images) -> None:
    """To be called before anything is kept under the digest of images. Raises UserError if theirs is another."""
    if images in _ASSUMED:
        _ASSUMED[images]()


def _change_error(folder: Path) -> UserError:
    return UserError(f"the images have changed since {folder} was started: start a new run")
