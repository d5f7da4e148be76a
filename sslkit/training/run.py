"""A run's folder: its name, what stands in it, and whether a command may continue it."""

import os
import re
from pathlib import Path

import yaml

from sslkit import file_names
from sslkit.errors import UserError
from sslkit.training.config import Config
from sslkit.zoo import CARD, write_whole

# Settings that leave the weights as they are.
MAY_CHANGE = ("resume", "out", "name", "eval")
MAY_CHANGE_INSIDE = ("workers", "accelerator", "devices", "num_nodes", "strategy", "log_every", "progress")


def is_main() -> bool:
    """Whether this is the first process, as the launchers say it before Lightning has met the others."""
    from pytorch_lightning.utilities import rank_zero_only

    node = os.environ.get("NODE_RANK") or os.environ.get("GROUP_RANK") or "0"
    return not rank_zero_only.rank and int(node) == 0


def base_name(config: Config, backbone: str) -> str:
    """`byol+dsa-fashion_mnist-narrow_resnet-e6-s0`, unless the config names the run."""
    if config.name is not None:
        return file_names.check(config.name, "name")
    kind, _, rest = config.data.source.partition(":")
    source = rest.partition(":")[0] if kind == "torchvision" else Path(config.data.folder).stem or "data"
    parts = (config.method_name, source, backbone, f"e{config.epochs}", f"s{config.seed}")
    return re.sub(r"[^\w.+-]+", "_", "-".join(parts))


def numbered(out: Path, name: str) -> list[Path]:
    """The runs of this name, oldest first: NAME, NAME-2, NAME-3, ..."""
    pattern = re.compile(re.escape(name) + r"(?:-(\d+))?")
    found = [(int(m[1] or 1), p) for p in out.glob("*") if p.is_dir() and (m := pattern.fullmatch(p.name))]
    return [path for _, path in sorted(found)]


def newest(out: Path, name: str) -> Path | None:
    """The run of this name with the highest number."""
    return (numbered(out, name) or [None])[-1]


def fresh(out: Path, name: str) -> Path:
    """A folder that does not exist yet, so that nothing already written is lost."""
    last = newest(out, name)
    if last is None:
        return out / name
    number = last.name.removeprefix(name).removeprefix("-")
    return out / f"{name}-{int(number or 1) + 1}"


def create(folder: Path, config: Config) -> None:
    """Make the folder and write config.yaml into it: shows before any compute that it can be written."""
    try:
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the run folder {folder}: {error.strerror}; choose another with out=") from error
    with write_whole(folder / "config.yaml") as partial:
        partial.write_text(yaml.safe_dump(config.to_dict(), sort_keys=False))


def to_resume(out: Path, name: str, config: Config) -> tuple[Path, Path | None]:
    """The folder to continue and its checkpoint, None if it was stopped before the first epoch ended.

    Raises UserError if there is no such run or if it was started with other settings.
    """
    folder = newest(out, name)
    if folder is None:
        raise UserError(f"resume=true, but there is no run {out / name}; start it without resume=true")
    if other := changed(folder, config):
        told = "; ".join(f"{k} was {a!r}, is {b!r}" for k, (a, b) in other.items())
        raise UserError(f"{folder} was started with other settings ({told}); give the same, or drop resume=true")
    checkpoint = folder / "checkpoints" / "last.ckpt"
    return folder, checkpoint if checkpoint.is_file() else None


def changed(folder: Path, config: Config) -> dict[str, tuple[object, object]]:
    """The settings, of those that the weights depend on, in which a run differs: {name: (its, now)}."""
    written = folder / "config.yaml"
    if not written.is_file():
        return {}
    before = Config.from_mapping(yaml.safe_load(written.read_text())).to_dict()
    now = config.to_dict()
    return {k: (before[k], now[k]) for k in now if k not in MAY_CHANGE and _plain(before[k]) != _plain(now[k])}


def _plain(value: object) -> object:
    return {k: v for k, v in value.items() if k not in MAY_CHANGE_INSIDE} if isinstance(value, dict) else value


def finished(folder: Path) -> bool:
    return (folder / CARD).is_file()


def sweep(folder: Path) -> None:
    """Remove what a killed writer left behind."""
    for partial in folder.rglob(".*.part"):
        pid = int(partial.suffixes[-2].lstrip(".")) if len(partial.suffixes) > 1 else 0
        if not _alive(pid):
            partial.unlink(missing_ok=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
