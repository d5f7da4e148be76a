"""Export formats of the zoo. One file each; the file name is the name in `export(checkpoint, to=...)`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sslkit.errors import UserError
from sslkit.files.writing import write_text, write_whole, write_whole_folder
from sslkit.options import members
from sslkit.options.settings import setting
from sslkit.runtime.callers import public
from sslkit.zoo.entry import CARD, ZooEntry, is_ready_made

if TYPE_CHECKING:  # they load torch, which a table of the zoo does without
    from sslkit.zoo.exporting.base import Loaded, Source, Target


def names() -> tuple[str, ...]:
    """The name of every format."""
    return members.names(__name__)


def find(name: str) -> "type[Target]":
    """The class of a format by its name, or `package.module:Class`."""
    return members.find(__name__, name)


@dataclass(frozen=True)
class Options:
    """How `export` writes a network."""

    to: str | None = setting(None, f"format: {', '.join(names())}, or package.module:Class")
    out: str | Path | None = setting(
        None,
        "file (torchvision: and a .json beside it) or folder to write; an earlier export is replaced, other files of a "
        "folder stay, as the .git of a clone of the hub; null: exports/ in the entry's folder, or here for ready-made "
        "weights",
    )
    trust: str | Sequence[str] | None = setting(
        None, "package.module:function, or a list: own code that a card may name and that is run"
    )


@public()
def export(checkpoint: ZooEntry | str | Path, options: Options) -> Path:
    """Write a network in the format of another library; returns the path.

        path = sslkit.zoo.export("runs/zoo/NAME", to="timm")
        print(*sslkit.exporting.lines(path))  # the Python that loads it without sslkit

    checkpoint: a zoo entry, or ready-made weights, `timm:NAME`, `published:NAME:FILE`, efficientnet_lite0.
    Raises UserError for a network that this format cannot hold, with the formats that can.
    """
    from sslkit.zoo.exporting.base import Source

    to, out = options.to, options.out
    if to is None:
        raise UserError(f"give to=, the format: {', '.join(names())}")
    target = find(to)()
    entry = checkpoint if isinstance(checkpoint, ZooEntry) else None
    source = (entry is None and _of_word(str(checkpoint))) or Source.from_entry(
        entry or ZooEntry.load(checkpoint), options.trust
    )
    folder = source.entry.folder
    if reason := target.refusal(source):
        possible = ", ".join(name for name in names() if not find(name)().refusal(source)) or "none"
        raise UserError(f"{folder} cannot be exported to {to}: {reason}; possible for this network: {possible}")
    source, path = target.prepare(source), _place(target, source, to, out)
    with write_whole(path) if target.suffix else write_whole_folder(path, target.last) as partial:
        target.write(source, partial, path.name)
    if side := target.side(source, path):
        write_text(path.with_suffix(".json"), side)
    return path


def lines(path: str | Path) -> list[str]:
    """Python that loads an exported network without sslkit: run here, it binds `net`, `transform` and `read`.

    `read(path)` is the batch of one picture, see `sslkit.zoo.loading`; networks of clips have none. Of a classifier
    `classes` are the names of its outputs.
    """
    path = Path(path)
    target = _owner(path)
    about = target.about(path)
    classes = [f"classes = {list(about.classes)}"] if about.classes else []
    return [*target.lines(about, path.as_posix()), *classes]


def load(path: Path) -> "Loaded":
    """The network of an export, or of timm's folder of the Hugging Face hub, its metadata and its classifier.

    Nothing in the files is executed, and no connection is opened. Raises UserError for any other path.
    """
    return _owner(path).load(path)


def is_export(path: Path) -> bool:
    """Return whether `load` takes a path that is no entry: an export, or a folder of the hub in timm's format."""
    return not (path / CARD).is_file() and any(find(name)().owns(path) for name in names())


def _owner(path: Path) -> "Target":
    """The format of a path. Raises UserError if it has none."""
    for name in names():
        target = find(name)()
        if target.owns(path):
            return target
    if not path.exists():
        raise UserError(f"there is no {path}; give the folder of a zoo entry, or a path written by sslkit.zoo.export")
    if entries := sorted(card.parent for card in path.glob(f"*/{CARD}")):
        raise UserError(f"{path} is a folder of entries: name one of them: {', '.join(map(str, entries[:5]))}")
    raise UserError(
        f"{path} is neither a zoo entry nor an export of sslkit.zoo.export ({', '.join(names())}): "
        "nothing in it says which network its weights belong to"
    )


def _of_word(word: str) -> "Source | None":
    if not is_ready_made(word):
        return None
    from sslkit.zoo.exporting._ready_made import source

    return source(word)


def _place(target: "Target", source: "Source", to: str, out: str | Path | None) -> Path:
    """The path to write. Raises UserError for a file of another suffix, and for a folder with other content."""
    name = f"{source.about.name}-{to}{target.suffix}"
    if out is None:
        folder = source.entry.folder
        return (Path() if is_ready_made(str(folder)) else folder) / "exports" / name
    path = Path(out).expanduser()
    path = path if path.name else path.resolve()
    if target.suffix:
        path = path / name if path.is_dir() else path
        if path.suffix != target.suffix:
            raise UserError(f"out={out}: a file for {to} must end in {target.suffix}")
    if other := target.find_obstacle(path):
        raise UserError(
            f"out={out}: {other} exists and is no earlier export to {to}: give a new name, it would be replaced"
        )
    return path
