"""The zoo: a folder of entries, each `backbone.safetensors` and the `card.json` that says what it is."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from sslkit.errors import UserError

WEIGHTS, CARD = "backbone.safetensors", "card.json"


@contextmanager
def write_whole(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that is synced and renamed over it at the end; on failure `path` stays as it was.

    Raises UserError when the disk refuses, with its reason.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"cannot write {path}: {reason}; what stood there before is untouched") from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


@dataclass(frozen=True)
class ZooEntry:
    """One pretrained backbone. folder: where it lies. card: what is known of it (method, data, numbers, versions)."""

    folder: Path
    card: dict[str, Any]

    @classmethod
    def load(cls, folder: str | Path) -> "ZooEntry":
        """Read an entry's card. Raises UserError when the folder holds no finished entry."""
        folder = Path(folder)
        missing = [name for name in (CARD, WEIGHTS) if not (folder / name).is_file()]
        if missing:
            raise UserError(f"{folder} is no zoo entry: {' and '.join(missing)} missing; a run makes one when it ends")
        return cls(folder, json.loads((folder / CARD).read_text()))

    def state_dict(self) -> dict[str, Tensor]:
        """The plain network's weights; no pickle is executed."""
        from safetensors.torch import load_file

        return load_file(self.folder / WEIGHTS)

    def backbone(self, net: nn.Module | None = None) -> nn.Module:
        """The network with its weights, in eval mode; every key must match.

        net: the network to fill, needed only if the run was given a module object instead of a name.
        """
        if net is None:
            net = self._rebuild()
        net.load_state_dict(self.state_dict(), strict=True)
        return net.eval()

    def _rebuild(self) -> nn.Module:
        lines = self.card["backbone"]["lines"]
        if not lines:
            raise UserError(f"{self.folder} was trained from a module object: pass one, entry.backbone(module)")
        scope: dict[str, Any] = {}
        exec("\n".join(lines), scope)
        return scope["net"]


def load_lines(build: list[str], weights: Path) -> str:
    """Python that loads a backbone without sslkit; the last line is an expression. build: lines that bind `net`."""
    read = f"load_file({str(weights.resolve())!r})"
    if not build:
        return f"from safetensors.torch import load_file\n{read}"
    return "\n".join(
        [*build, "from safetensors.torch import load_file", f"net.load_state_dict({read}, strict=True)", "net.eval()"]
    )


def save(folder: Path, state: dict[str, Tensor], card: dict[str, Any]) -> ZooEntry:
    """Write an entry: the weights first, then the card, each whole or not at all."""
    import safetensors.torch

    with write_whole(folder / WEIGHTS) as partial:
        partial.write_bytes(safetensors.torch.save(state))
    with write_whole(folder / CARD) as partial:
        partial.write_text(json.dumps(card, indent=2) + "\n")
    return ZooEntry(folder, card)


def open(folder: str | Path) -> list[ZooEntry]:
    """Every finished entry below a folder, by name. Raises UserError if the folder does not exist."""
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"there is no zoo folder {folder}; recipes/train.py makes runs/zoo")
    cards = sorted(folder.glob(f"*/{CARD}"))
    return [ZooEntry.load(card.parent) for card in cards if (card.parent / WEIGHTS).is_file()]
