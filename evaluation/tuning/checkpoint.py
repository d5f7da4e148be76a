"""The file from which a stopped training goes on."""

from pathlib import Path
from typing import Any

import torch

from sslkit.errors import UserError
from sslkit.files import checksums
from sslkit.files.writing import write_whole
from sslkit.runtime.context import SAVE_SECONDS


class Checkpoint:
    """A checkpoint file and the run that it belongs to.

    path: None saves nothing. key: of the run; a file with another key is refused. seconds: between two saves.
    """

    def __init__(self, path: Path | None = None, key: str = "", seconds: float = SAVE_SECONDS) -> None:
        self.path, self.key, self.seconds = path, key, seconds

    def save(self, state: dict[str, Any]) -> None:
        """Write the file whole or not at all, so that a killed process leaves the one before.

        Raises UserError if it cannot be written.
        """
        if self.path is not None:
            with write_whole(self.path) as partial:
                checksums.save({"key": self.key, **state}, partial)

    def load(self) -> dict[str, Any] | None:
        """Return the saved state, its tensors on the CPU; None if there is no file.

        Raises UserError for a damaged file and one of another run; no pickle is executed.
        """
        if self.path is None or not self.path.is_file():
            return None
        if fault := checksums.damage(self.path):
            raise UserError(f"{self.path} {fault}: delete it to start anew")
        try:
            state = torch.load(self.path, map_location="cpu", weights_only=True)
            fits = state.pop("key") == self.key
        except Exception as error:
            reason = checksums.first_line(error)
            raise UserError(f"{self.path} cannot be read ({reason}): delete it to start anew") from error
        if not fits:
            raise UserError(f"{self.path} belongs to a run with other settings: delete it, or give another out")
        return state

    def remove(self) -> None:
        """Delete the file, once the result of its run is recorded."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
