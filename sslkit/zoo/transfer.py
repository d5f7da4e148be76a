"""An entry's network in the forms of other libraries, and from them; torch is loaded when one is asked for."""

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
    """Write an entry's network in the form of another library; gives the path. See `sslkit.exporting`.

    to: "timm", "hf" (a hub folder), "torchvision" or "onnx". out: the file or folder to write; None: below `exports`
    in the entry's folder. What stands there is replaced whole, or stays as it was. trust: see `ZooEntry.backbone`.
    Raises UserError for a network that this form cannot hold, with the forms that can.
    """
    from sslkit.zoo import exporting  # it loads torch

    return exporting.export(entry, to, out, trust=trust)


def load(path: str | Path, *, trust: str | Sequence[str] | None = ()) -> Frozen:
    """A frozen network from an entry's folder, or from what `export` wrote; see `sslkit.zoo.frozen.Frozen`.

    Nothing that the files hold is executed, and no connection is opened. trust: "package.module:function", or several:
    functions of your own that an entry's card may name as the maker of its network, and that are then called.
    Raises UserError for a path that is neither, and for a card that names code which is not trusted.
    """
    from sslkit.zoo import exporting  # it loads torch

    return exporting.load(path, trust=trust)
