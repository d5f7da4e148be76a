"""A run's folder: its name, its content, and whether a command may continue it."""

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from sslkit.data.images import Images
from sslkit.data.sources.named import name_of_tables
from sslkit.errors import UserError
from sslkit.files.reading import regular
from sslkit.files.writing import check_name, sweep, write_text
from sslkit.options.members import filled
from sslkit.runtime import checkpoint, processes
from sslkit.terminal import say
from sslkit.training.config import Config, as_in
from sslkit.training.data import images_of
from sslkit.zoo import card
from sslkit.zoo.entry import CARD, ZooEntry

# Settings that do not affect the weights.
MAY_CHANGE = ("resume", "dry", "out", "name", "eval")
MAY_CHANGE_INSIDE = (
    "source",  # where the images lie: whether they are the same is compared by their content
    "workers",
    "accelerator",
    "devices",
    "num_nodes",
    "strategy",
    "compile",
    "checkpoint_activations",
    "logger",
    "log_every",
    "progress",
)
HOOKS = {"Start": ("judged", "digest"), "History": ("rows", "seconds", "terms"), "Unreadable": ("paths",)}


def base_name(config: Config, backbone: str) -> str:
    """`byol+dsa-fashion_mnist-narrow_resnet-e6-s0`, or the name from the config."""
    if config.name is not None:
        return check_name(config.name, "name")
    parts = (config.method_name, _data_name(config), backbone, f"e{config.epochs}", f"s{config.seed}")
    return re.sub(r"[^\w.+-]+", "_", "-".join(parts))


def _data_name(config: Config) -> str:
    kind, _, rest = config.data.source.partition(":")
    if kind == "torchvision":
        return rest.partition(":")[0]
    return name_of_tables(config.data.source) or Path(config.data.folder).stem or "data"


def numbered(out: Path, name: str) -> list[Path]:
    """The runs of this name, oldest first: NAME, NAME-2, NAME-3, ..."""
    pattern = re.compile(re.escape(name) + r"(?:-(\d+))?")
    try:
        found = [(int(m[1] or 1), p) for p in out.glob("*") if p.is_dir() and (m := pattern.fullmatch(p.name))]
    except OSError as error:  # a name too long, a folder without read permission
        raise UserError(f"cannot look into out={out}: {error.strerror}; choose another folder") from error
    return [path for _, path in sorted(found)]


def newest(out: Path, name: str) -> Path | None:
    """The run of this name with the highest number."""
    return (numbered(out, name) or [None])[-1]


def fresh(out: Path, name: str) -> Path:
    """A folder that does not exist yet, so that nothing is overwritten."""
    last = newest(out, name)
    if last is None:
        return out / name
    number = last.name.removeprefix(name).removeprefix("-")
    return out / f"{name}-{int(number or 1) + 1}"


def create(folder: Path, config: Config) -> None:
    """Make the folder and write config.yaml into it, so that a folder that is not writable fails before training."""
    try:
        above = next(parent for parent in folder.absolute().parents if parent.exists())
        (above / folder.name).exists()  # a name that is too long fails before any folder is made
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the run folder {folder}: {error.strerror}; choose another with out=") from error
    write_text(folder / "config.yaml", yaml.safe_dump(config.to_dict(), sort_keys=False))


def to_resume(out: Path, name: str, config: Config) -> tuple[Path, Path | None]:
    """The folder to continue and its checkpoint, None if the run stopped before the first epoch ended.

    A damaged checkpoint is replaced by the one before it, with a warning.
    Raises UserError if there is no such run, if it was started with other settings, and if config.yaml or all
    checkpoints are damaged.
    """
    folder = newest(out, name)
    if folder is None:
        raise UserError(f"resume=true, but there is no run {out / name}; start it without resume=true")
    if other := changed(folder, config):
        told = "; ".join(f"{k} was {a!r}, is {b!r}" for k, (a, b) in other.items())
        raise UserError(f"{folder} was started with other settings ({told}); give the same, or drop resume=true")
    if finished(folder):
        return folder, None
    whole, note = checkpoint.newest_whole(folder, HOOKS)
    if processes.is_main():
        if note:
            say.warning(f"warning: {note}")
        if whole is None:
            create(folder, config)  # no epoch ended: config.yaml may be missing
    return folder, whole


def settings_of(folder: Path) -> Config | None:
    """The settings of a run, None if it has written none. Raises UserError for a damaged config.yaml."""
    written = folder / "config.yaml"
    return settings_in(written) if os.path.lexists(written) else None


def changed(folder: Path, config: Config) -> dict[str, tuple[object, object]]:
    """The settings that affect the weights and differ from those of the run: {name: (old, new)}.

    What was not said of the method has its default. A `data.range` that was not said is the run's, as is what
    `sslkit.training.build` chooses.
    Raises UserError for a damaged config.yaml.
    """
    settings = settings_of(folder)
    if settings is None:
        return {}
    before, now = settings.to_dict(), as_in(config, settings).to_dict()
    if not isinstance(config.data.range, list):
        now["data"]["range"] = before["data"]["range"]
    before["method"], now["method"] = filled(before["method"]), filled(now["method"])
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


def settings_in(path: Path) -> Config:
    """The settings in a config.yaml. Raises UserError, with the file and the fault, for a damaged one."""
    mend = "put the file back as it was, or start a new run without resume=true"
    try:
        given = yaml.safe_load(regular(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}; {mend}") from error
    except Exception as error:  # PyYAML raises any class for invalid tags and dates
        said = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{path} is damaged: {said}; {mend}") from error
    if not isinstance(given, dict):
        raise UserError(f"{path} is damaged: it holds {type(given).__name__}, not a mapping of settings; {mend}")
    try:
        config = Config.from_mapping(given)
    except UserError as error:
        raise UserError(f"{path}: {error}; {mend}") from error
    if config.optimizer.lr is None:  # a run writes the rate that it has chosen
        raise UserError(f"{path} is damaged: it has no optimizer.lr; {mend}")
    return config


def _plain(value: object) -> object:
    return {k: v for k, v in value.items() if k not in MAY_CHANGE_INSIDE} if isinstance(value, dict) else value


def finished(folder: Path) -> bool:
    """Return whether the run has written its entry, whole or damaged, and its card lists nothing still to be made."""
    try:
        return not card.read(folder / CARD).get("missing")
    except UserError:
        return (folder / CARD).is_file()


def done(config: Config, own: Any = None) -> ZooEntry | None:
    """The entry of the run that `name` names, if it is finished; None for any other, and for a run without a name.

    No network is built and no data to judge by is opened. own: see `data.open_data`.
    Raises UserError for other settings and as `entry_of` does.
    """
    folder = newest(Path(config.out), base_name(config, "")) if config.name else None  # else it is named by its network
    if folder is None or not finished(folder):
        return None
    to_resume(folder.parent, config.name, config)  # refuses other settings
    begun = settings_of(folder)
    if begun is not None and not isinstance(config.data.range, list):
        config = replace(config, data=replace(config.data, range=begun.data.range))
    return entry_of(folder, lambda: images_of(config, own))


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
