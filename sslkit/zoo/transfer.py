"""Export an entry's network to the formats of other libraries, and load it; torch is loaded on the first call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sslkit.zoo.entry import ZooEntry

if TYPE_CHECKING:
    from sslkit.zoo.frozen import Frozen


def export(
    entry: ZooEntry | str | Path, to: str, out: str | Path | None = None, *, trust: str | Sequence[str] | None = ()
) -> Path:
    """Write an entry's network in the format of another library; returns the path. See `sslkit.exporting`.

    to: "timm", "hf" (a hub folder), "torchvision" or "onnx". out: the file or folder to write; None: below `exports`
    in the entry's folder. An existing one is replaced whole, or left unchanged. trust: see `ZooEntry.backbone`.
    Raises UserError for a network that this format cannot hold, with the formats that can.
    """
    from sslkit.zoo import exporting  # loads torch

    return exporting.export(entry, to, out, trust=trust)


def load(path: str | Path, *, trust: str | Sequence[str] | None = ()) -> Frozen:
    """A frozen network from an entry's folder, or from an export of `export`; see `sslkit.zoo.frozen.Frozen`.

    Nothing in the files is executed, and no connection is opened. trust: "package.module:function", or several:
    functions of your own that may make the network of an entry's card; they are called.
    Raises UserError for any other path, and for a card that names code which is not trusted.
    """
    from sslkit.zoo import exporting  # loads torch

    return exporting.load(path, trust=trust)
