"""The processes of a training: as Lightning Fabric starts them, or a launcher outside has already started them."""

import logging
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from sslkit.errors import RunFailed, UserError, first_line
from sslkit.runtime import hardware
from sslkit.runtime.checkpoint import how_to_go_on
from sslkit.runtime.distributed import world_size
from sslkit.runtime.light_imports import light_imports

with light_imports():
    from lightning_fabric import Fabric
    from lightning_fabric.accelerators import CPUAccelerator
    from lightning_fabric.plugins.environments import SLURMEnvironment, TorchElasticEnvironment
    from lightning_fabric.strategies import DDPStrategy, SingleDeviceStrategy
    from lightning_fabric.utilities.exceptions import MisconfigurationException
    from lightning_fabric.utilities.rank_zero import rank_zero_only

LOST = ("gloo/transport", "Connection reset by peer", "Connection closed by peer")  # in torch's errors
LAUNCHERS = {"torchrun": TorchElasticEnvironment, "srun": SLURMEnvironment}
PATIENCE = timedelta(days=2)  # where ranks wait in a collective for one that reads a large set alone
Devices = int | str | list[int]  # how many, a list of them, or auto


def is_main() -> bool:
    """Return whether this is the first process, from the launcher's variables, before Lightning connects the ranks."""
    node = os.environ.get("NODE_RANK") or os.environ.get("GROUP_RANK") or "0"
    return not rank_zero_only.rank and int(node) == 0


def make_fabric(accelerator: str, asked: Devices, num_nodes: int, strategy: str, precision: str) -> Fabric:
    """Fabric with these devices (of `devices`), processes and number format; it is not launched yet.

    Raises UserError for what is not possible here: what Fabric refuses, a launcher that has started another number of
    processes, and half precision on a CPU.
    """
    check_launcher(asked, num_nodes, accelerator)
    try:
        fabric = Fabric(
            accelerator=accelerator,
            devices=asked,
            num_nodes=nodes(num_nodes),
            strategy=_strategy(strategy, count(asked, num_nodes, accelerator)),
            precision=hardware.FABRIC[hardware.precision(precision, accelerator)],
        )
    except (MisconfigurationException, RuntimeError, ValueError, TypeError, OverflowError) as error:
        raise UserError(f"trainer: {str(error).strip().splitlines()[0]}{_instead(accelerator)}") from error
    if precision == "float16" and isinstance(fabric.accelerator, CPUAccelerator):
        raise UserError("precision=float16 needs a GPU; on a CPU use bfloat16 or float32")
    # Otherwise Lightning rounds what a step is given, such as the boxes of the crops, to autocast's 8 or 11 bits.
    fabric.strategy.precision.convert_input = lambda given: given
    return fabric


def fabric_on(device: torch.device, precision: str, ranks: int | None = None) -> Fabric:
    """Fabric on this device, or on one device of each of torchrun's processes; it is not launched yet.

    precision: of the networks that it sets up, float32 or bfloat16. ranks: default is that of the open process group.
    """
    ranks = world_size() if ranks is None else ranks
    how: dict[str, Any] = {"precision": hardware.FABRIC[precision]}
    if ranks == 1:  # left to itself, Fabric would take the kind of a GPU that is not asked for
        kind = device.type if device.type in ("cuda", "mps") else "cpu"
        return Fabric(accelerator=kind, devices=1, strategy=_Here(device=device), **how)
    local = int(os.environ.get("LOCAL_WORLD_SIZE", ranks))
    how |= {"devices": local, "num_nodes": ranks // local, "plugins": [TorchElasticEnvironment()]}
    return Fabric(accelerator=device.type, strategy=DDPStrategy(timeout=PATIENCE), **how)


class _Here(SingleDeviceStrategy):
    """One device of any kind, which the caller has made the current one."""

    def setup_environment(self) -> None:
        """Leave the current device alone: Fabric's own knows CPUs and numbered GPUs only."""


def _instead(accelerator: str) -> str:
    """How to go on where a GPU is asked for and PyTorch finds none; "" otherwise."""
    asked = accelerator == "cuda" and not torch.cuda.is_available()
    return " PyTorch finds no GPU here: install a build of it for yours, or set device=auto" if asked else ""


def _strategy(asked: str, processes: int) -> Any:
    """FSDP2 if it is asked for, otherwise DDP without broadcast of buffers, for several ranks.

    Batch norm is synchronised, and queues and centres are equal on all ranks, so DDP's default, sending rank 0's
    buffers in every forward, would change nothing; a queue has tens of megabytes.
    """
    if asked in ("auto", "fsdp") and processes <= 1:
        return "auto"
    if asked == "fsdp":
        from sslkit.runtime.sharded import Sharded  # takes half a second

        return Sharded()
    return DDPStrategy(find_unused_parameters=asked.endswith("unused_parameters_true"), broadcast_buffers=False)


def devices(asked: Devices, accelerator: str = "auto", batch_size: int = 0, *, num_nodes: int) -> Devices:
    """Devices of this machine; auto is the launcher's processes of it, GPUs, or one CPU process.

    GPUs are as many as can share a batch evenly. batch_size: images of all processes; 0: of any number.
    """
    if asked != "auto":
        return asked
    if local := _per_machine():
        return local
    most = 1 if hasattr(sys, "ps1") else gpus(accelerator)  # a notebook cannot start itself again
    each = nodes(num_nodes)
    return next((n for n in range(most, 1, -1) if batch_size % (n * each) == 0), 1)


def gpus(accelerator: str) -> int:
    """GPUs of this machine that `device` lets a run use."""
    return torch.cuda.device_count() if accelerator in ("auto", "cuda") and torch.cuda.is_available() else 0


def nodes(asked: int) -> int:
    """Machines; the launcher's where one is asked for."""
    if asked == 1 and (local := _per_machine()):
        started = os.environ["WORLD_SIZE" if TorchElasticEnvironment.detect() else "SLURM_NTASKS"]
        return max(1, int(started) // local)
    return asked


def _per_machine() -> int | None:
    """Processes that torchrun or srun has started on this machine; None without them."""
    if TorchElasticEnvironment.detect():
        return int(os.environ["LOCAL_WORLD_SIZE"])
    each = os.environ.get("SLURM_NTASKS_PER_NODE", "")
    in_step = "SLURM_STEP_ID" in os.environ  # a batch script has the other variables too
    return int(each) if in_step and each.isdecimal() and SLURMEnvironment.detect() else None


def count(asked: Devices, num_nodes: int, accelerator: str = "auto", batch_size: int = 0) -> int:
    """Number of processes of the run, over all machines. Raises UserError for devices that are no numbers.

    accelerator, batch_size: as for `devices`.
    """
    chosen = devices(asked, accelerator, batch_size, num_nodes=num_nodes)
    if chosen in (-1, "-1"):
        chosen = gpus(accelerator)
    if isinstance(chosen, str):
        chosen = _numbers(chosen)
    return nodes(num_nodes) * (len(chosen) if isinstance(chosen, Sequence) else chosen)


def _numbers(text: str) -> int | list[int]:
    """A number of devices, or the list of numbers of "0,1". Raises UserError for other texts."""
    try:
        return [int(number) for number in text.strip(",").split(",")] if "," in text else int(text)
    except ValueError as error:
        raise UserError(f"trainer.devices={text!r}: give a number, a list such as [0,1], or auto") from error


def check_launcher(asked: Devices, num_nodes: int, accelerator: str = "auto") -> None:
    """Raises UserError if a launcher has started another number of processes than the settings ask for."""
    wanted = count(asked, num_nodes, accelerator)
    for name, environment in LAUNCHERS.items():
        if not environment.detect():
            continue
        try:
            started = environment().world_size()
        except RuntimeError as error:  # variables of Slurm that Lightning does not support
            raise UserError(f"{name}: {first_line(error)}") from error
        if started != wanted:
            raise UserError(
                f"{name} has started {started} processes, and trainer.devices={asked} on "
                f"trainer.num_nodes={num_nodes} asks for {wanted}: "
                f"give both for {started} processes, or neither"
            )


@contextmanager
def others_watched(folder: Path) -> Iterator[None]:
    """Raises RunFailed for a connection to another process that is lost in a step, as when that one was killed."""
    try:
        yield
    except RuntimeError as error:
        lost = isinstance(error, getattr(dist, "DistError", ())) or any(sign in str(error) for sign in LOST)
        if not (lost and dist.is_initialized() and dist.get_world_size() > 1):
            raise
        why = first_line(error).rpartition("] ")[2].partition(". This is")[0]
        raise RunFailed(
            f"process {dist.get_rank()} has lost another one of this run: its own output says why, or it was killed, "
            f"for example for lack of memory; {how_to_go_on(folder)} ({why})"
        ) from error


def leave_group(launched_outside: bool) -> None:
    """Close the process group, which Fabric leaves open, so that a later run here can start its own ranks."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    if not launched_outside:
        for name in ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
            os.environ.pop(name, None)


def quiet() -> None:
    """Silence news of Lightning and of its loggers, and advice on what is chosen here: buffers of DDP, and TF32."""
    for name in ("lightning_fabric", "pytorch_lightning"):  # their own level is set anew when they are imported
        logging.getLogger(f"{name}.utilities.rank_zero").setLevel(logging.WARNING)
    for name in ("pytorch_lightning.loggers.mlflow", "mlflow.store.db.utils"):  # each says that it makes a new store
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", ".*`broadcast_buffers` is deprecated.*")  # its successor still sends them once
    warnings.filterwarnings("ignore", "TensorFloat32 tensor cores .* available but not enabled")
