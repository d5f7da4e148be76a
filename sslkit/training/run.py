"""A run's folder: its name, its content, and whether a command may continue it."""

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
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
from sslkit.training.config import Config, as_in
from sslkit.training.data import images_of
from sslkit.zoo import card
from sslkit.zoo.entry import CARD, ZooEntry

# Settings that do not affect the weights.
MAY_CHANGE = (
    *("resume", "dry", "out", "cache", "name", "eval"),
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
JUDGES = ("k", "max_images")  # of eval, which the accuracies of all epochs share
HOOKS = {"Start": ("judged", "digest"), "History": ("rows", "seconds", "terms", "pending"), "Unreadable": ("paths",)}


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


def _numbers(out: Path, name: str) -> dict[int, Path]:
    """The folders NAME, NAME-2, NAME-3, ..., oldest first; NAME-2 may be another run, that was named so."""
    pattern = re.compile(re.escape(name) + r"(?:-(\d+))?")
    try:
        found = [(int(m[1] or 1), p) for p in out.glob("*") if p.is_dir() and (m := pattern.fullmatch(p.name))]
    except OSError as error:  # a name too long, a folder without read permission
        raise UserError(f"cannot look into out={out}: {error.strerror}; choose another folder") from error
    return dict(sorted(found))


def _is_called(folder: Path, name: str) -> bool:
    """Return whether a folder NAME or NAME-2 is a run that was to have the name; True if its config.yaml is damaged."""
    if folder.name == name:
        return True
    try:
        begun = settings_of(folder)
    except UserError:
        return True
    return begun is None or begun.name in (None, name)


def of_name(out: Path, name: str) -> list[Path]:
    """The runs of this name, newest first."""
    return [folder for folder in reversed(_numbers(out, name).values()) if _is_called(folder, name)]


def of_settings(out: Path, name: str, *configs: Config) -> list[Path]:
    """The runs of this name with the settings of the first of `configs` that any has, newest first.

    Several, since settings as they were given fit runs with any choice of what was not given.
    Raises UserError for a damaged config.yaml of one that is newer.
    """
    runs = of_name(out, name)
    return next(filter(None, (_fitting(runs, config) for config in configs)), [])


def _fitting(runs: Iterable[Path], config: Config) -> list[Path]:
    found: list[Path] = []
    for folder in runs:
        try:
            found += [] if changed(folder, config) else [folder]
        except UserError:
            if not found:
                raise
    return found


def fresh(out: Path, name: str) -> Path:
    """A folder that does not exist yet, so that nothing is overwritten."""
    last = max(_numbers(out, name), default=0)
    return out / (f"{name}-{last + 1}" if last else name)


def begin(out: Path, name: str, config: Config) -> Path:
    """Make a folder of this name that no other run has, not even one that starts now; see `create`."""
    while True:
        folder = fresh(out, name)
        try:
            create(folder, config, exist_ok=False)
        except FileExistsError:
            continue
        return folder


def create(folder: Path, config: Config, *, exist_ok: bool = True) -> None:
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
    write_text(folder / "config.yaml", yaml.safe_dump(config.to_dict(), sort_keys=False))


def to_resume(out: Path, name: str, *configs: Config) -> tuple[Path, Path | None]:
    """The folder to continue and its checkpoint, None if the run stopped before the first one.

    Of several runs the newest with the settings of `configs`, see `of_settings`. A damaged checkpoint is replaced by
    the one before it, with a warning.
    Raises UserError if there is no such run, if all were started with other settings, and if config.yaml or all
    checkpoints are damaged.
    """
    runs = of_name(out, name)
    if not runs:
        raise UserError(f"resume=true, but there is no run {out / name}; start it without resume=true")
    folder, config = (of_settings(out, name, *configs) or runs)[0], configs[-1]
    check_same(folder, config)
    if finished(folder):
        return folder, None
    whole, note = checkpoint.newest_whole(folder, HOOKS)
    begun = settings_of(folder)
    if whole is not None and begun is not None:
        before, now = begun.eval, config.eval
        other = {f"eval.{name}": (getattr(before, name), getattr(now, name)) for name in JUDGES}
        _refuse(folder, {name: (a, b) for name, (a, b) in other.items() if a != b})
    if note and processes.is_main():
        say.warning(f"warning: {note}")
    return folder, whole


def check_same(folder: Path, config: Config) -> None:
    """Raises UserError for a run with other settings, which it names, and for a damaged config.yaml."""
    _refuse(folder, changed(folder, config))


def _refuse(folder: Path, other: dict[str, tuple[object, object]]) -> None:
    if other:
        told = "; ".join(f"{k} was {a!r}, is {b!r}" for k, (a, b) in other.items())
        raise UserError(f"{folder} was started with other settings ({told}); give the same, or drop resume=true")


def settings_of(folder: Path) -> Config | None:
    """The settings of a run, None if it has written none. Raises UserError for a damaged config.yaml."""
    written = folder / "config.yaml"
    return settings_in(written) if os.path.lexists(written) else None


def changed(folder: Path, config: Config) -> dict[str, tuple[object, object]]:
    """The settings that affect the weights and differ from those of the run: {name: (old, new)}.

    What was not said of the method has its default. A scale of the images that was not said is the run's, as is what
    `sslkit.training.build` chooses.
    Raises UserError for a damaged config.yaml.
    """
    settings = settings_of(folder)
    if settings is None:
        return {}
    before, now = settings.to_dict(), as_in(config, settings).to_dict()
    now |= {name: before[name] for name in unsaid(config)}
    before["method"], now["method"] = fill_options(before["method"]), fill_options(now["method"])
    other = {k: (before[k], now[k]) for k in now if k not in MAY_CHANGE and _plain(before[k]) != _plain(now[k])}
    if "method" in other and before["method"]["name"] == now["method"]["name"]:
        other |= _apart("method", *other.pop("method"))
    for group in [name for name, (a, b) in other.items() if name != "method" and isinstance(a, dict)]:
        other |= _apart(group, *other.pop(group))
    return other


def unsaid(config: Config) -> list[str]:
    """The settings of the images' scale that are not given."""
    return [name for name, value in vars(config.scale).items() if value is None]


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
        return not card.read_card(folder / CARD).get("missing")
    except UserError:
        return (folder / CARD).is_file()


def done(config: Config, own: Any = None) -> ZooEntry | None:
    """The entry of the run that `name` names, if it is finished; None for any other, and for a run without a name.

    None also where several runs have these settings, or the size of the images was chosen: data and network tell which
    run is meant. No network is built and no data to judge by is opened. own: see `data.open_data`.
    Raises UserError for other settings and as `entry_of` does.
    """
    if not config.name:  # it is named by its network
        return None
    out, name = Path(config.out), base_name(config, "")
    runs = of_name(out, name)
    mine = of_settings(out, name, config)
    if not runs or len(mine) > 1 or not finished(folder := (mine or runs)[0]):
        return None
    begun = settings_of(folder)
    if config.image_size is None and begun is not None and begun.image_size is not None:
        return None
    check_same(folder, config)
    if begun is not None:
        config = replace(config, **{name: getattr(begun, name) for name in unsaid(config)})
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
