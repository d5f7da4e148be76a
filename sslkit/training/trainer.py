"""Lightning Fabric with the settings of a run."""

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning_fabric import Fabric
from lightning_fabric.accelerators import CPUAccelerator
from lightning_fabric.strategies import DDPStrategy
from lightning_fabric.utilities.exceptions import MisconfigurationException

from sslkit.errors import UserError
from sslkit.training import compiling, launched, loggers
from sslkit.training.config import Config
from sslkit.training.precision import precision


def check_trainer(config: Config) -> None:
    """Raises UserError for settings that are not possible here, before anything is computed.

    These are settings that Fabric refuses, a logger that is not installed, a launcher that has started another
    number of processes, a batch that the ranks cannot share evenly, and a network that cannot be compiled.
    """
    quiet()
    loggers.check(config)
    launched.check(config)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `train` makes it again and shows them
            fabric = make_fabric(config)
    except (MisconfigurationException, RuntimeError, ValueError, TypeError, OverflowError) as error:
        raise UserError(f"trainer: {str(error).strip().splitlines()[0]}{_instead(config)}") from error
    if config.trainer.precision == "16-mixed" and isinstance(fabric.accelerator, CPUAccelerator):
        raise UserError("trainer.precision=16-mixed needs a GPU; on a CPU use bf16-mixed or 32-true")
    if config.data.batch_size % fabric.world_size:
        raise UserError(
            f"data.batch_size={config.data.batch_size} cannot be shared evenly by {fabric.world_size} processes"
        )
    if config.trainer.compile:
        compiling.check(fabric.device)


def _instead(config: Config) -> str:
    """How to go on where a GPU is asked for and PyTorch finds none; "" otherwise."""
    asked = config.trainer.accelerator in ("gpu", "cuda") and not torch.cuda.is_available()
    return (
        " PyTorch finds no GPU here: install a build of it for yours, or set trainer.accelerator=auto" if asked else ""
    )


def make_fabric(config: Config) -> Fabric:
    """Fabric with the devices, the processes and the precision of a run; it is not launched yet."""
    t = config.trainer
    return Fabric(
        accelerator=t.accelerator,
        devices=launched.devices(config),
        num_nodes=launched.nodes(config),
        strategy=_strategy(config),
        precision=precision(t.precision, t.accelerator),
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
    """Close the process group, which Fabric leaves open, so that a later run here can start its own ranks."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    if not launched_outside:
        for name in ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
            os.environ.pop(name, None)


def quiet() -> None:
    """Silence news of Lightning and of its loggers, and advice on an argument of DDP that has no successor."""
    for name in ("lightning_fabric", "pytorch_lightning"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in ("pytorch_lightning.loggers.mlflow", "mlflow.store.db.utils"):  # each says that it makes a new store
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", ".*`broadcast_buffers` is deprecated.*")  # its successor still sends them once
