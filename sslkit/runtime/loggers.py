"""Lightning's loggers by name, `trainer.logger=[tensorboard,wandb]`; metrics.csv is written besides."""

import errno
import importlib.util
import json
import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sslkit.errors import UserError, first_line
from sslkit.files import reading
from sslkit.files.writing import write_text

if TYPE_CHECKING:
    from pytorch_lightning.loggers import Logger

PROJECT = "sslkit"  # of runs for which the tracker's own variable names no other
IDS = "loggers.json"  # in the run's folder: the trackers' identifiers of the run, so that a resumed run goes on there
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)


@dataclass(frozen=True)
class Kind:
    """A logger of Lightning.

    name: its class. module: the package it needs. install: pip's word for that. offline: how it does without a server.
    """

    name: str
    module: str
    install: str
    offline: str = ""


KINDS = {
    "tensorboard": Kind("TensorBoardLogger", "tensorboard", "tensorboard"),
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


def start(asked: str | list[str], folder: Path, settings: dict[str, Any]) -> dict[str, "Logger"]:
    """Start the loggers of a run and log its settings, on the first process only. A resumed run goes on in each.

    Raises UserError, with the reason, for one that cannot start.
    """
    from pytorch_lightning import loggers as lightning

    known, started = _ids(folder), {}
    for name in chosen(asked):
        try:
            logger = getattr(lightning, KINDS[name].name)(**_options(name, folder, known.get(name)))
            _ = logger.experiment  # connects, or opens the files
            if name not in known:
                logger.log_hyperparams(settings)
        except Exception as error:  # trackers raise any class
            if _is_of_the_disk(error):
                raise
            raise UserError(
                f"trainer.logger={name} cannot start: {first_line(error)}; {KINDS[name].offline}trainer.logger=csv no "
                f"tracker; with resume=true the run {folder} goes on"
            ) from error
        started[name] = logger
    found = known | {name: logger.version for name, logger in started.items() if logger.version}
    if found != known:
        write_text(folder / IDS, json.dumps(found, indent=1) + "\n")
    return started


def log(loggers: Iterable["Logger"], values: Mapping[str, float], step: int) -> None:
    """Log values to each logger; a warning says which of them does not take them, and the run goes on."""
    for logger in loggers:
        try:
            logger.log_metrics(dict(values), step=step)
        except Exception as error:  # a server that is gone, for example
            if _is_of_the_disk(error):
                raise
            warnings.warn(
                f"{type(logger).__name__} takes no metrics: {first_line(error)}; metrics.csv has all", stacklevel=2
            )


def finish(loggers: Mapping[str, "Logger"]) -> None:
    """Close W&B's run, which would otherwise take the metrics of the next run of this process as well."""
    if "wandb" in loggers:
        loggers["wandb"].experiment.finish()


def _options(name: str, folder: Path, known: str | None) -> dict[str, Any]:
    """Arguments of a logger. known: its identifier of the run, None for a new one."""
    if name == "tensorboard":
        return {"save_dir": folder, "name": "", "version": ""}
    if name == "wandb":
        project = os.environ.get("WANDB_PROJECT", PROJECT)
        return {"name": folder.name, "project": project, "save_dir": folder, "id": known}
    if name == "mlflow":
        local = folder.absolute()
        return {
            "experiment_name": os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT),
            "run_name": folder.name,
            "tracking_uri": os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{local / 'mlflow.db'}",
            "run_id": known,
        }
    if name == "comet":
        project = os.environ.get("COMET_PROJECT_NAME", PROJECT)
        given = {"name": folder.name, "project": project, "offline_directory": str(folder / "comet")}
        return given | ({"experiment_key": known, "mode": "get_or_create"} if known else {})
    # With save_logs it would start this program once more, to record what it prints.
    return {"root_dir": folder, "name": folder.name, "save_logs": False}


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
