"""Lightning's Trainer with the settings of a run."""

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.accelerators import CPUAccelerator
from pytorch_lightning.strategies import DDPStrategy
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from sslkit.errors import UserError
from sslkit.training import compiling, launched, loggers
from sslkit.training.config import Config
from sslkit.training.history import MOST_STEPS
from sslkit.training.precision import precision
from sslkit.training.progress import Bar


def check_trainer(config: Config) -> None:
    """Raises UserError for settings that are not possible here, before anything is computed.

    These are settings that Lightning refuses, a logger that is not installed, a launcher that has started another
    number of processes, a batch that the ranks cannot share evenly, and a network that cannot be compiled.
    """
    quiet()
    loggers.check(config)
    launched.check(config)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `train` makes it again and shows them
            trainer = make_trainer(config, Path(config.out), [])
    except (MisconfigurationException, ValueError, TypeError, OverflowError) as error:
        raise UserError(f"trainer: {str(error).strip().splitlines()[0]}{_instead(config)}") from error
    if config.trainer.precision == "16-mixed" and isinstance(trainer.accelerator, CPUAccelerator):
        raise UserError("trainer.precision=16-mixed needs a GPU; on a CPU use bf16-mixed or 32-true")
    if config.data.batch_size % trainer.world_size:
        raise UserError(
            f"data.batch_size={config.data.batch_size} cannot be shared evenly by {trainer.world_size} processes"
        )
    if config.trainer.compile:
        compiling.check(trainer.strategy.root_device)


def _instead(config: Config) -> str:
    """How to go on where a GPU is asked for and PyTorch finds none; "" otherwise."""
    asked = config.trainer.accelerator in ("gpu", "cuda") and not torch.cuda.is_available()
    return (
        " PyTorch finds no GPU here: install a build of it for yours, or set trainer.accelerator=auto" if asked else ""
    )


def make_trainer(config: Config, folder: Path, callbacks: list[pl.Callback]) -> pl.Trainer:
    """Lightning's Trainer with our settings; everything else keeps Lightning's default."""
    t = config.trainer
    return pl.Trainer(
        accelerator=t.accelerator,
        devices=launched.devices(config),
        num_nodes=launched.nodes(config),
        strategy=_strategy(config),
        precision=precision(t.precision, t.accelerator),
        max_epochs=config.epochs,
        accumulate_grad_batches=t.accumulate,
        gradient_clip_val=config.optimizer.clip,
        callbacks=callbacks,
        logger=False,  # `train` sets the started ones
        default_root_dir=folder,
        log_every_n_steps=MOST_STEPS if t.log_every == "auto" else t.log_every,
        use_distributed_sampler=False,
        enable_checkpointing=True,
        enable_progress_bar=any(isinstance(c, Bar) for c in callbacks),
        enable_model_summary=False,
    )


def _strategy(config: Config) -> Any:
    """DDP without broadcast of buffers for several ranks.

    Batch norm is synchronised, and queues and centres are equal on all ranks, so DDP's default, sending rank 0's
    buffers in every forward, would change nothing; a queue has tens of megabytes.
    """
    asked = config.trainer.strategy
    if asked == "auto" and launched.processes(config) <= 1:
        return "auto"
    return DDPStrategy(find_unused_parameters=asked.endswith("unused_parameters_true"), broadcast_buffers=False)


@contextmanager
def deterministic(config: Config) -> Iterator[None]:
    """Let PyTorch use kernels without races only, if trainer.deterministic asks for it; it warns of those without one.

    A CPU's results are the same with and without.
    """
    if not config.trainer.deterministic:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it when it starts
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def leave_group(launched_outside: bool) -> None:
    """Close the process group, which Lightning leaves open, so that a later run here can start its own ranks."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    if not launched_outside:
        for name in ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
            os.environ.pop(name, None)


def quiet() -> None:
    """Silence Lightning's advice, which is meant for user-written loops, and news of its loggers."""
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    for name in ("pytorch_lightning.loggers.mlflow", "mlflow.store.db.utils"):  # each says that it makes a new store
        logging.getLogger(name).setLevel(logging.ERROR)
    for message in (
        ".*does not have many workers.*",
        ".*Checkpoint directory.*",
        ".*LeafSpec.*",
        ".*Trying to infer.*",
        r".*module\(s\) in eval mode.*",  # batch normalisation that is frozen
        ".*smaller than the logging interval.*",
        ".*`broadcast_buffers` is deprecated.*",  # its successor still sends them once
    ):
        warnings.filterwarnings("ignore", message)
