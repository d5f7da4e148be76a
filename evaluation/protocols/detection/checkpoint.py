"""The file from which a detector's training goes on after a stop."""

from pathlib import Path
from typing import Any

import torch

from sslkit import sealed
from sslkit.errors import UserError
from sslkit.files import write_whole


class Checkpoint:
    """A file, and the key of the run that it belongs to; without a path nothing is kept."""

    def __init__(self, path: Path | None, key: str) -> None:
        self.path, self.key = path, key

    def save(self, state: dict[str, Any]) -> None:
        """Whole or not at all: a kill leaves the file before it."""
        if self.path is not None:
            with write_whole(self.path) as partial:
                torch.save({"key": self.key, **state}, partial)
                sealed.seal(partial)

    def load(self) -> dict[str, Any] | None:
        """What was saved, its tensors on the CPU; None where there is no file.

        Raises UserError for a damaged file and one of another run.
        """
        if self.path is None or not self.path.is_file():
            return None
        if fault := sealed.damage(self.path):
            raise UserError(f"{self.path} {fault}: delete it to start anew")
        try:
            state = torch.load(self.path, map_location="cpu", weights_only=True)
            fits = state.pop("key") == self.key
        except Exception as error:
            reason = sealed.first_line(error)
            raise UserError(f"{self.path} cannot be read ({reason}): delete it to start anew") from error
        if not fits:
            raise UserError(f"{self.path} belongs to a run with other settings: delete it, or give another out")
        return state
