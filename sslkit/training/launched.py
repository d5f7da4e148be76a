"""The processes of a run, and those that a launcher outside has already started."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from lightning_fabric.plugins.environments import SLURMEnvironment, TorchElasticEnvironment

from sslkit.errors import RunFailed, UserError, first_line
from sslkit.training.config import Config

LOST = ("gloo/transport", "Connection reset by peer", "Connection closed by peer")  # in torch's errors
LAUNCHERS = {"torchrun": TorchElasticEnvironment, "srun": SLURMEnvironment}


def devices(config: Config) -> int | str | list[int]:
    """`trainer.devices`; auto is the launcher's processes of this machine, all GPUs, or one CPU process."""
    asked = config.trainer.devices
    if asked == "auto" and (local := _per_machine()):
        return local
    return 1 if asked == "auto" and not torch.cuda.is_available() else asked


def nodes(config: Config) -> int:
    """`trainer.num_nodes`, or the launcher's machines."""
    if config.trainer.num_nodes == 1 and (local := _per_machine()):
        started = os.environ["WORLD_SIZE" if TorchElasticEnvironment.detect() else "SLURM_NTASKS"]
        return max(1, int(started) // local)
    return config.trainer.num_nodes


def _per_machine() -> int | None:
    """Processes that torchrun or srun has started on this machine; None without them."""
    if TorchElasticEnvironment.detect():
        return int(os.environ["LOCAL_WORLD_SIZE"])
    each = os.environ.get("SLURM_NTASKS_PER_NODE", "")
    in_step = "SLURM_STEP_ID" in os.environ  # a batch script has the other variables too
    return int(each) if in_step and each.isdecimal() and SLURMEnvironment.detect() else None


def processes(config: Config) -> int:
    """Number of processes of the run, over all machines. Raises UserError for devices that are no numbers."""
    given = devices(config)
    if given in ("auto", -1, "-1"):
        given = torch.cuda.device_count()
    if isinstance(given, str):
        given = _numbers(given)
    return nodes(config) * (len(given) if isinstance(given, Sequence) else given)


def _numbers(text: str) -> int | list[int]:
    """A number of devices, or the list of numbers of "0,1". Raises UserError for other texts."""
    try:
        return [int(one) for one in text.strip(",").split(",")] if "," in text else int(text)
    except ValueError as error:
        raise UserError(f"trainer.devices={text!r}: give a number, a list such as [0,1], or auto") from error


def check(config: Config) -> None:
    """Raises UserError if a launcher has started another number of processes than the settings ask for."""
    asked = processes(config)
    for name, environment in LAUNCHERS.items():
        if not environment.detect():
            continue
        try:
            started = environment().world_size()
        except RuntimeError as error:  # variables of Slurm that Lightning does not support
            raise UserError(f"{name}: {first_line(error)}") from error
        if started != asked:
            raise UserError(
                f"{name} has started {started} processes, and trainer.devices={config.trainer.devices} on "
                f"trainer.num_nodes={config.trainer.num_nodes} asks for {asked}: "
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
            f"for example for lack of memory; resume=true continues {folder} ({why})"
        ) from error
