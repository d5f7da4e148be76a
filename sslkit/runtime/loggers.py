"""Lightning's loggers by name, `trainer.logger=[tensorboard,wandb]`; metrics.csv is written besides."""

import errno
import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from sslkit.errors import UserError, first_line
from sslkit.files import reading
from sslkit.files.writing import write_text
from sslkit.runtime.callers import environment_kept
from sslkit.terminal import say

if TYPE_CHECKING:
    from lightning_fabric.loggers import Logger

PROJECT = "sslkit"  # of runs for which the tracker's own variable names no other
IDS = "loggers.json"  # in the run's folder: the trackers' identifiers of the run, so that a resumed run goes on there
SENT = Path("checkpoints", "logged")  # in the run's folder: step of the last row that was sent, and 1 for an epoch's
EVENTS = "events.out.tfevents*"  # files of TensorBoard
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)


@dataclass(frozen=True)
class Kind:
    """A logger of Lightning.

    name: its class. module: the package it needs. install: pip's word for that. offline: how it does without a server.
    lightning: the package that has the class; Fabric's takes a tenth of the time to import.
    """

    name: str
    module: str
    install: str
    offline: str = ""
    lightning: str = "pytorch_lightning"

    def find(self) -> "type[Logger]":
        """Import the class."""
        return getattr(importlib.import_module(f"{self.lightning}.loggers"), self.name)


KINDS = {
    "tensorboard": Kind("TensorBoardLogger", "tensorboard", "tensorboard", lightning="lightning_fabric"),
    "wandb": Kind("WandbLogger", "wandb", "sslkit[wandb]", "WANDB_MODE=offline needs no account, "),
    "mlflow": Kind("MLFlowLogger", "mlflow", "sslkit[mlflow]", "without MLFLOW_TRACKING_URI no server is needed, "),
    "comet": Kind("CometLogger", "comet_ml", "comet-ml", "COMET_START_ONLINE=0 needs no account, "),
    "litlogger": Kind("LitLogger", "litlogger", "litlogger"),
}


def chosen(asked: str | list[str]) -> list[str]:
    """The names besides csv, each once."""
    names = [asked] if isinstance(asked, str) else asked
    return [name for name in dict.fromkeys(names) if name != "csv"]


def check(asked: str | list[str]) -> None:
    """Raises UserError for a logger whose package is not installed."""
    for name in chosen(asked):
        kind = KINDS[name]
        if importlib.util.find_spec(kind.module) is None:
            raise UserError(
                f"trainer.logger={name} needs the package {kind.module}, which is not installed: "
                f'pip install "{kind.install}"'
            )


@contextmanager
def open_trackers(asked: str | list[str], folder: Path, settings: dict[str, Any]) -> Iterator["Trackers"]:
    """The loggers of a run for the block, on the first process only, with its settings. A resumed run goes on in each.

    They are closed with the block: as failed where it raises an error or is stopped. The process's variables are left
    as they were. Raises UserError, with the reason, for one that cannot start.
    """
    trackers = Trackers(folder)
    try:
        with environment_kept():
            trackers.start(chosen(asked), settings)
        yield trackers
    except BaseException:
        trackers.close("failed")
        raise
    trackers.close("success")


class Trackers:
    """The trackers of one run, which alone opens and closes them; each row is sent to them once, also over a crash.

    folder: of the run. The place of the last row that was sent is written down before it is sent, so that a run that
    goes on from an earlier checkpoint does not send its rows twice.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.loggers: dict[str, Logger] = {}
        self._sent = (-1, 0)
        self._mark: IO[bytes] | None = None

    def start(self, names: Sequence[str], settings: dict[str, Any]) -> None:
        """Start the loggers of these names, see `open_trackers`."""
        if not names:
            return
        ids = _ids(self.folder)
        for name in names:
            is_new = not any(self.folder.glob(EVENTS)) if name == "tensorboard" else name not in ids
            try:
                logger = KINDS[name].find()(**_options(name, self.folder, ids.get(name)))
                _ = logger.experiment  # connects, or opens the files
                self.loggers[name] = logger
                if is_new:
                    logger.log_hyperparams(settings)
            except Exception as error:  # trackers raise any class
                if _is_of_the_disk(error):
                    raise
                raise UserError(
                    f"trainer.logger={name} cannot start: {first_line(error)}; {KINDS[name].offline}trainer.logger=csv "
                    f"no tracker; with resume=true the run {self.folder} goes on"
                ) from error
        ids_now = ids | {name: logger.version for name, logger in self.loggers.items() if logger.version}
        if ids_now != ids:
            write_text(self.folder / IDS, json.dumps(ids_now, indent=1) + "\n")
        self._open_mark()

    def log(self, values: Mapping[str, float], step: int, *, closes_epoch: bool) -> None:
        """Send a row to each; a warning says which of them does not take it, and the run goes on."""
        position = (step, int(closes_epoch))
        if not self.loggers or position <= self._sent:
            return
        self._sent = position
        self._mark.seek(0)
        self._mark.write(b"%15d %d\n" % position)  # at once, since it is not buffered
        for logger in self.loggers.values():
            try:
                logger.log_metrics(dict(values), step=step)
                if hasattr(logger.experiment, "flush"):  # TensorBoard would lose what it holds
                    logger.experiment.flush()
            except Exception as error:  # a server that is gone, for example
                if _is_of_the_disk(error):
                    raise
                say.warn(
                    f"{type(logger).__name__} takes no metrics: {first_line(error)}; metrics.csv has all", stacklevel=2
                )

    def close(self, status: str) -> None:
        """Close the trackers. status: "success" or "failed". A warning says which of them cannot be."""
        if self._mark is not None:
            self._mark.close()
        for name, logger in self.loggers.items():
            try:
                _close(name, logger, status)
            except Exception as error:
                say.warn(f"{type(logger).__name__} cannot be closed: {first_line(error)}", stacklevel=2)
        if status == "success" and self.loggers:
            (self.folder / SENT).unlink(missing_ok=True)
        self.loggers = {}

    def _open_mark(self) -> None:
        path = self.folder / SENT
        path.parent.mkdir(exist_ok=True)
        path.touch()
        self._mark = path.open("r+b", buffering=0)
        if written := self._mark.read().split():
            self._sent = tuple(map(int, written))


def _close(name: str, logger: "Logger", status: str) -> None:
    if name == "tensorboard":
        logger.experiment.close()  # its `finalize` would write the settings once more
        return
    logger.finalize(status)
    if name == "wandb":
        logger.experiment.finish(exit_code=0 if status == "success" else 1)
    if name == "comet":
        logger.experiment.end()


def _options(name: str, folder: Path, known: str | None) -> dict[str, Any]:
    """Arguments of a logger. known: its identifier of the run, None for a new one."""
    if name == "tensorboard":
        return {"root_dir": folder, "name": "", "version": ""}
    if name == "wandb":
        project = os.environ.get("WANDB_PROJECT", PROJECT)
        of_wandb = {"name": folder.name, "project": project, "save_dir": folder, "id": known}
        return of_wandb | _beside_another(of_wandb)
    if name == "mlflow":
        return {
            "experiment_name": os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT),
            "run_name": folder.name,
            "tracking_uri": os.environ.get("MLFLOW_TRACKING_URI") or _database(folder),
            "run_id": known,
        }
    if name == "comet":
        project = os.environ.get("COMET_PROJECT_NAME", PROJECT)
        of_comet = {"name": folder.name, "project": project, "offline_directory": str(folder / "comet")}
        return of_comet | ({"experiment_key": known, "mode": "get_or_create"} if known else {})
    # With save_logs it would start this program once more, to record what it prints.
    return {"root_dir": folder, "name": folder.name, "save_logs": False}


def _database(folder: Path) -> str:
    """The address of a run's own database. Raises UserError for a folder that MLflow would take for another one."""
    path = folder.absolute() / "mlflow.db"
    if set(str(path)) & set("?%"):
        raise UserError(f"MLflow takes ? and % in {folder} for parts of an address: choose another out= or name=")
    return f"sqlite:///{path}"


def _beside_another(own: Mapping[str, Any]) -> dict[str, Any]:
    """A run of its own where the caller has one of W&B open, into which Lightning would write; {} otherwise."""
    wandb = sys.modules.get("wandb")
    if getattr(wandb, "run", None) is None:
        return {}
    how = {"name": own["name"], "project": own["project"], "dir": own["save_dir"], "id": own["id"]}
    return {"experiment": wandb.init(**how, resume="allow", reinit="create_new")}


def _is_of_the_disk(error: Exception) -> bool:
    """Return whether a file could not be written; errors of connections are OSErrors too."""
    return isinstance(error, OSError) and error.errno in DISK


def _ids(folder: Path) -> dict[str, str]:
    path = folder / IDS
    if not os.path.lexists(path):
        return {}
    remedy = "remove it, and the trackers start a new run"
    content = reading.read_json(path, remedy)
    if not isinstance(content, dict) or not all(isinstance(value, str) for value in content.values()):
        raise UserError(f"{path} is damaged: {remedy}")
    return content
