"""A run's folder: its name, its content, and whether a command may continue it."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sslkit.data.images import Images
from sslkit.data.sources.named import name_of_tables
from sslkit.errors import UserError
from sslkit.files.reading import regular
from sslkit.files.writing import check_name, sweep, write_text
from sslkit.options.members import fill_options
from sslkit.runtime import checkpoint, processes
from sslkit.terminal import say
from sslkit.training.config import Config
from sslkit.training.settled import Settled
from sslkit.zoo import card
from sslkit.zoo.entry import CARD, ZooEntry

# Settings that do not affect the weights.
MAY_CHANGE = (
    *("resume", "dry", "pilot", "out", "cache", "name", "eval", "interpolate"),
    *("device", "workers", "save_seconds", "progress", "root", "counts"),
)
MAY_CHANGE_INSIDE = (
    "source",  # where the images lie: whether they are the same is compared by their content
    "devices",
    "num_nodes",
    "strategy",
    "compile",
    "checkpoint_activations",
    "logger",
    "log_every",
)
JUDGES = ("k", "max_images", "by")  # of eval, which the accuracies of all epochs share
CHOOSERS = ("protocols", "data", "protocol_options")  # likewise, where eval.by chooses weights
UNNAMED = r"[^\w.+-]+"  # what no name of a run has
HOOKS = {  # states that a run needs of its hooks
    "Start": ("judged", "digest", "right"),
    "History": ("rows", "seconds", "terms", "pending"),
    "Best": ("score", "epoch", "since", "ended"),
    "Unreadable": ("paths",),
}


def base_name(config: Config, backbone: str) -> str:
    """`byol+dsa-fashion_mnist-narrow_resnet-e6-s0`, or the name from the config."""
    if config.name is not None:
        return check_name(config.name, "name")
    return re.sub(UNNAMED, "_", backbone).join(_around_network(config))


def _around_network(config: Config) -> list[str]:
    """What stands before and after the network in the name of a run."""
    parts = f"{config.method_name}-{_data_name(config)}-", f"-e{config.epochs}-s{config.seed}"
    return [re.sub(UNNAMED, "_", piece) for piece in parts]


def _data_name(config: Config) -> str:
    kind, _, rest = config.data.source.partition(":")
    if kind == "torchvision":
        return rest.partition(":")[0]
    return name_of_tables(config.data.source) or Path(config.data.folder).stem or "data"


def _folders_by_number(out: Path, pattern: str) -> list[tuple[int, str, Path]]:
    """The folders NAME, NAME-2, NAME-3, ..., oldest first, each with its number and NAME, which the pattern matches."""
    named = re.compile(rf"({pattern})(?:-(\d+))?")
    try:
        matches = [(named.fullmatch(path.name), path) for path in out.glob("*") if path.is_dir()]
    except OSError as error:  # a name too long, a folder without read permission
        raise UserError(f"cannot look into out={out}: {error.strerror}; choose another folder") from error
    return sorted((int(match[2] or 1), match[1], path) for match, path in matches if match)


def of_name(config: Config) -> list[Path]:
    """The runs that have the name of these settings, newest first; NAME-2 may be another run, that was named so.

    In a name that was not given the network may be any: it may have been chosen. A run whose config.yaml is damaged is
    one of them.
    """
    own = re.escape(base_name(config, "")) if config.name else r"[\w.+-]+".join(map(re.escape, _around_network(config)))
    found = []
    for _, name, folder in reversed(_folders_by_number(Path(config.out), own)):
        try:
            begun = settings_of(folder)
        except UserError:
            begun = None
        is_called = begun is None or folder.name == name or begun.asked.name in (None, name)
        if is_called and (begun is None or config.name or _data_name(begun.asked) == _data_name(config)):
            found.append(folder)
    return found


def of_settings(asked: Config) -> list[Path]:
    """The runs that these settings may continue, newest first: those begun with the same, else those that they fit.

    What is not given now fits any choice of a run.
    Raises UserError for a damaged config.yaml of one that is newer.
    """
    fitting, same = [], []
    for folder in of_name(asked):
        try:
            begun = settings_of(folder)
        except UserError:
            if not fitting:
                raise
            continue
        if begun is None or not differences(begun.config, begun.of(asked).config):
            fitting.append(folder)
            same += [] if begun is None or differences(begun.asked, asked) else [folder]
    return same or fitting


def fresh(out: Path, name: str) -> Path:
    """A folder that does not exist yet, so that nothing is overwritten."""
    last = max((number for number, _, _ in _folders_by_number(out, re.escape(name))), default=0)
    return out / (f"{name}-{last + 1}" if last else name)


def begin(out: Path, name: str, settled: Settled) -> Path:
    """Make a folder of this name that no other run has, not even one that starts now; see `create`."""
    while True:
        folder = fresh(out, name)
        try:
            create(folder, settled, exist_ok=False)
        except FileExistsError:
            continue
        return folder


def create(folder: Path, settled: Settled, *, exist_ok: bool = True) -> None:
    """Make the folder and write config.yaml into it, so that a folder that is not writable fails before training.

    Raises UserError, and FileExistsError for a folder that exists if it must not.
    """
    try:
        above = next(parent for parent in folder.absolute().parents if parent.exists())
        (above / folder.name).exists()  # a name that is too long fails before any folder is made
        folder.mkdir(parents=True, exist_ok=exist_ok)
        (folder / "checkpoints").mkdir(exist_ok=True)
    except OSError as error:
        if isinstance(error, FileExistsError) and folder.is_dir():
            raise
        raise UserError(f"cannot make the run folder {folder}: {error.strerror}; choose another with out=") from error
    write_text(folder / "config.yaml", yaml.safe_dump(settled.to_dict(), sort_keys=False))


@dataclass(frozen=True)
class Begun:
    """A run to go on with. settled: its settings, with what is given now; checkpoint: both None if it wrote none."""

    folder: Path
    settled: Settled | None
    checkpoint: Path | None


def to_resume(asked: Config) -> Begun:
    """The newest run that these settings continue, see `of_settings`.

    A damaged checkpoint is replaced by the one before it, with a warning.
    Raises UserError if there is no such run, if all were started with other settings, and if config.yaml or all
    checkpoints are damaged.
    """
    runs = of_name(asked)
    if not runs:
        where = Path(asked.out, asked.name or "...".join(_around_network(asked)))
        raise UserError(f"resume=true, but there is no run {where}; start it without resume=true")
    folder = (of_settings(asked) or runs)[0]
    begun = settings_of(folder)
    settled = begun and begun.of(asked)
    _refuse(folder, differences(begun.config, settled.config) if begun else {})
    whole, note = (None, None) if is_finished(folder) else checkpoint.newest_whole(folder, HOOKS)
    if whole is not None and begun is not None:
        before, now = begun.asked.eval, asked.eval
        names = JUDGES if now.by is None else (*JUDGES, *CHOOSERS)
        other = {f"eval.{name}": (getattr(before, name), getattr(now, name)) for name in names}
        _refuse(folder, {name: (a, b) for name, (a, b) in other.items() if a != b})
    if note and processes.is_main():
        say.warning(f"warning: {note}")
    return Begun(folder, settled, whole)


def _refuse(folder: Path, other: dict[str, tuple[object, object]]) -> None:
    if other:
        told = "; ".join(f"{k} was {a!r}, is {b!r}" for k, (a, b) in other.items())
        raise UserError(f"{folder} was started with other settings ({told}); give the same, or drop resume=true")


def settings_of(folder: Path) -> Settled | None:
    """The settings of a run, None if it has written none. Raises UserError for a damaged config.yaml."""
    written = folder / "config.yaml"
    return settings_in(written) if os.path.lexists(written) else None


def differences(first: Config, second: Config) -> dict[str, tuple[object, object]]:
    """The settings that affect the weights and differ: {name: (first, second)}. What is not said has its default."""
    before, now = first.to_dict(), second.to_dict()
    before["method"], now["method"] = fill_options(before["method"]), fill_options(now["method"])
    other = {k: (before[k], now[k]) for k in now if k not in MAY_CHANGE and _plain(before[k]) != _plain(now[k])}
    if "method" in other and before["method"]["name"] == now["method"]["name"]:
        other |= _apart("method", *other.pop("method"))
    for group in [name for name, (a, b) in other.items() if name != "method" and isinstance(a, dict)]:
        other |= _apart(group, *other.pop(group))
    return other


def _apart(path: str, before: Any, now: Any) -> dict[str, tuple[object, object]]:
    """The settings below `path` that differ, {"method.dsa.nu": (its, now)}."""
    if not (isinstance(before, dict) and isinstance(now, dict)):
        return {} if _plain(before) == _plain(now) else {path: (before, now)}
    found: dict[str, tuple[object, object]] = {}
    for name in _plain(before | now):
        found |= _apart(f"{path}.{name}", before.get(name), now.get(name))
    return found


def settings_in(path: Path) -> Settled:
    """The settings in a config.yaml. Raises UserError, with the file and the fault, for a damaged one."""
    mend = "put the file back as it was, or start a new run without resume=true"
    try:
        content = yaml.safe_load(regular(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}; {mend}") from error
    except Exception as error:  # PyYAML raises any class for invalid tags and dates
        said = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{path} is damaged: {said}; {mend}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} is damaged: it holds {type(content).__name__}, not a mapping of settings; {mend}")
    try:
        settled = Settled.from_dict(content)
    except UserError as error:
        raise UserError(f"{path}: {error}; {mend}") from error
    if settled.config.optimizer.lr is None:  # a run writes the rate that it has chosen
        raise UserError(f"{path} is damaged: it has no optimizer.lr; {mend}")
    return settled


def _plain(value: object) -> object:
    return {k: v for k, v in value.items() if k not in MAY_CHANGE_INSIDE} if isinstance(value, dict) else value


def is_finished(folder: Path) -> bool:
    """Return whether the run has written its entry, whole or damaged, and its card lists nothing still to be made."""
    try:
        return not card.read_card(folder / CARD).get("missing")
    except UserError:
        return (folder / CARD).is_file()


def entry_of(folder: Path, images: Callable[[], Images]) -> ZooEntry:
    """The entry of a finished run. Raises UserError for other images, and a damaged one, with the way to rewrite it."""
    sweep(folder)
    (folder / checkpoint.PREVIOUS).unlink(missing_ok=True)  # not needed any more
    try:
        entry = ZooEntry.load(folder)
    except UserError as error:
        raise UserError(f"{error}; remove {folder / CARD} and resume=true writes it again") from error
    if entry.card.get("data", {}).get("digest") != images().digest:
        raise UserError(f"{folder} is finished, but the images have changed since: start a new run")
    say.line(f"{folder} is already finished; nothing to do")
    return entry
