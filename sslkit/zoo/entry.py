"""The zoo: a folder of entries, each `backbone.safetensors` and the `card.json` that says what it is.

for entry in sslkit.zoo.open("runs/zoo"): ...       # print(sslkit.zoo.open("runs/zoo")) is a table
path = sslkit.zoo.export("runs/zoo/NAME", to="hf")  # or "timm", "torchvision", "onnx"
net = sslkit.zoo.load(path)                         # frozen, with net.image_size, net.mean, net.std
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sslkit.zoo import card as cards
from sslkit.errors import UserError

if TYPE_CHECKING:  # a table of the zoo needs no torch
    from torch import Tensor, nn

    from sslkit.zoo.frozen import Frozen

WEIGHTS, CARD = "backbone.safetensors", "card.json"


@contextmanager
def write_whole(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that is synced and renamed over it at the end; on failure `path` stays as it was.

    Raises UserError when the disk refuses, with its reason.
    """
    if path.is_dir() or not path.name:
        raise UserError(f"cannot write {path}: it is a folder; name a file in it")
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        _sync(partial)
        os.replace(partial, path)
    except OSError as error:
        raise _unwritten(path, error) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


@contextmanager
def write_whole_folder(path: Path) -> Iterator[Path]:
    """As `write_whole`, for a folder of files: a new temporary folder takes the place of `path` at the end."""
    partial, old = (path.with_name(f".{path.name}.{os.getpid()}.{kind}") for kind in ("new", "old"))
    try:
        partial.mkdir(parents=True)
        yield partial
        for file in partial.iterdir():
            _sync(file)
        if path.exists():
            os.replace(path, old)
        os.replace(partial, path)
    except OSError as error:
        raise _unwritten(path, error) from error
    finally:
        if old.exists() and not path.exists():
            os.replace(old, path)
        for left in (partial, old):
            shutil.rmtree(left, ignore_errors=True)


def _sync(file: Path) -> None:
    with file.open("rb") as opened:
        os.fsync(opened.fileno())


def _unwritten(path: Path, error: OSError) -> UserError:
    return UserError(f"cannot write {path}: {error.strerror or error}; what stood there before is untouched")


@dataclass(frozen=True)
class ZooEntry:
    """One pretrained backbone. folder: where it lies. card: what is known of it (method, data, numbers, versions)."""

    folder: Path
    card: dict[str, Any]

    @classmethod
    def load(cls, folder: str | Path) -> ZooEntry:
        """Read an entry's card.

        Raises UserError when the folder holds no finished entry, and for a card that does not fit `sslkit.zoo.card`.
        """
        folder = Path(folder)
        missing = [name for name in (CARD, WEIGHTS) if not (folder / name).is_file()]
        if missing:
            raise UserError(f"{folder} is no zoo entry: {' and '.join(missing)} missing; a run makes one when it ends")
        return cls(folder, cards.read(folder / CARD))

    def state_dict(self) -> dict[str, Tensor]:
        """Return the plain network's weights; no pickle is executed. Raises UserError for a damaged file."""
        from sslkit.zoo import weights

        return weights.read(self.folder / WEIGHTS)

    def backbone(self, net: nn.Module | None = None, *, trust: str | Sequence[str] | None = ()) -> nn.Module:
        """The network with its weights, in eval mode; every key must match.

        net: the network to fill, needed only if the run was given a module object instead of a name.
        trust: "package.module:function", or several: functions of your own that the card may name as its network's
            maker, and that are then called. No other code of a card is run.
        Raises UserError if the card does not say how the network is made or names code that is not trusted, for damaged
        weights, and for weights that do not fit the network.
        """
        from sslkit.zoo import weights

        state = self.state_dict()
        if net is None:
            net = self.untrained(trust=trust)
        return weights.fill(net, state, self.folder / WEIGHTS).eval()

    def untrained(self, *, trust: str | Sequence[str] | None = ()) -> nn.Module:
        """The network as the card makes it, its weights drawn by torch's generator. Raises as `backbone` does."""
        from sslkit.backbones import network_lines

        if "backbone" not in self.card:
            raise UserError(f"{self.folder / CARD} has no field backbone, which says how the network is made")
        lines = self.card["backbone"]["lines"]
        if not lines:
            raise UserError(f"{self.folder} was trained from a module object: pass one, entry.backbone(module)")
        return network_lines.build(lines, str(self.folder / CARD), trust)


class Zoo(list[ZooEntry]):
    """The readable entries of a folder, by name; its `str()` is a table.

    damaged: what is wrong with each entry that could not be read, in one line, by its folder.
    """

    def __init__(self, entries: Iterator[ZooEntry] | list[ZooEntry] = (), damaged: dict[Path, str] | None = None):
        super().__init__(entries)
        self.damaged = damaged or {}

    def table(self) -> str:
        """Name, method, data, epochs, kNN, linear probe, RankMe, size and date of each entry; see `zoo_table`."""
        from sslkit.zoo import table as zoo_table

        return zoo_table.table(self)

    __str__ = __repr__ = table


def load_lines(build: list[str], weights: Path) -> str:
    """Python that loads a backbone without sslkit; the last line is an expression. build: lines that bind `net`."""
    read = f"load_file({str(weights.resolve())!r})"
    if not build:
        return f"from safetensors.torch import load_file\n{read}"
    return "\n".join(
        [*build, "from safetensors.torch import load_file", f"net.load_state_dict({read}, strict=True)", "net.eval()"]
    )


def save(folder: Path, state: dict[str, Tensor], card: dict[str, Any]) -> ZooEntry:
    """Write an entry: the weights first, then the card, each whole or not at all.

    Raises UserError for a card that does not fit `sslkit.zoo.card`, before anything is written, and for a full disk.
    """
    import safetensors.torch

    text = cards.written(card, folder / CARD)
    with write_whole(folder / WEIGHTS) as partial:
        partial.write_bytes(safetensors.torch.save(state))
    with write_whole(folder / CARD) as partial:
        partial.write_text(text)
    return ZooEntry(folder, card)


def update(entry: ZooEntry, **fields: Any) -> ZooEntry:
    """The entry with these fields of its card set, on the disk too; every other field stays as it stands there.

    Raises UserError for a value that does not fit `sslkit.zoo.card`; the card then stays as it was.
    """
    path = entry.folder / CARD
    card = cards.read(path) | fields
    text = cards.written(card, path)
    with write_whole(path) as partial:
        partial.write_text(text)
    return ZooEntry(entry.folder, card)


def open(folder: str | Path) -> Zoo:
    """Every finished entry below a folder, by name; damaged ones are told apart in `.damaged` and hide no other.

    Damaged are cards that cannot be read or do not fit, and weights whose file is missing or not whole.
    Raises UserError if the folder does not exist.
    """
    from sslkit.zoo import weights

    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"there is no zoo folder {folder}; recipes/train.py makes runs/zoo")
    entries, damaged = [], {}
    for card in sorted(folder.glob(f"*/{CARD}")):
        try:
            entry = ZooEntry.load(card.parent)
            weights.shapes(entry.folder / WEIGHTS)
            entries.append(entry)
        except UserError as error:
            damaged[card.parent] = str(error)
    return Zoo(entries, damaged)


def export(
    entry: ZooEntry | str | Path, to: str, out: str | Path | None = None, *, trust: str | Sequence[str] | None = ()
) -> Path:
    """Write an entry's network in the form of another library; gives the path. See `sslkit.exporting`.

    to: "timm", "hf" (a hub folder), "torchvision" or "onnx". out: the file or folder to write; None: below `exports`
    in the entry's folder. What stands there is replaced whole, or stays as it was. trust: see `ZooEntry.backbone`.
    Raises UserError for a network that this form cannot hold, with the forms that can.
    """
    from sslkit.zoo import exporting

    return exporting.export(entry, to, out, trust=trust)


def load(path: str | Path, *, trust: str | Sequence[str] | None = ()) -> Frozen:
    """A frozen network from an entry's folder, or from what `export` wrote; see `sslkit.zoo.frozen.Frozen`.

    Nothing that the files hold is executed, and no connection is opened. trust: "package.module:function", or several:
    functions of your own that an entry's card may name as the maker of its network, and that are then called.
    Raises UserError for a path that is neither, and for a card that names code which is not trusted.
    """
    from sslkit.zoo import exporting

    return exporting.load(path, trust=trust)
