"""What a manifest says of the content of its files, which is compared as soon as this is known."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sslkit.errors import UserError
from sslkit.terminal.say import and_more, counted

SHA256, PIXELS = "sha256:", "pixels:"  # before a digest, which a spreadsheet would take for a number
BYTES = 8  # of the sha256 of a file, as a manifest has them: of 10^7 rewritten files none agrees by chance


@dataclass(frozen=True, eq=False)
class Expected:
    """digests: (N,) of `BYTES`, b"" for a file of which nothing is said. file: the manifest. again: how to renew it."""

    digests: np.ndarray
    file: str
    again: str

    @classmethod
    def of_cells(cls, cells: Sequence[bytes | None], file: str, again: str) -> "Expected":
        return cls(np.array([cell or b"" for cell in cells], f"S{BYTES}"), file, again)

    def take(self, rows: np.ndarray) -> "Expected":
        return replace(self, digests=self.digests[rows])

    def check(self, contents: np.ndarray, names: Sequence[str]) -> None:
        """Raises UserError for files of another content. contents: (N,) of 16 bytes, b"" for one that is not known."""
        is_known = (self.digests != b"") & (contents != b"")
        changed = np.flatnonzero(is_known & (contents.astype(f"S{BYTES}") != self.digests))
        if len(changed):
            verb = "has" if len(changed) == 1 else "have"
            raise UserError(
                f"{self.file}: {len(changed):,} of {counted(len(contents), 'file')} {verb} another content than when "
                f"it was written: {and_more([names[row] for row in changed.tolist()])}. Write it anew, {self.again}, "
                "or remove its column digest"
            )
