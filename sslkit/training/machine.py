"""How the settings of a run use this machine: its processes, compiled networks, and what a card says of them."""

import warnings
from typing import TYPE_CHECKING, Any

import torch

from sslkit.composition.method import Method
from sslkit.data.loader import workers_for
from sslkit.errors import UserError
from sslkit.runtime import loggers, processes
from sslkit.runtime.compiling import GRAPHS, Compiled, check_compiler, no_graphs
from sslkit.runtime.hardware import Demand, is_cpu, precision
from sslkit.runtime.jobs import cores
from sslkit.runtime.loop import Loop
from sslkit.terminal import say
from sslkit.terminal.say import counted
from sslkit.training.config import Config
from sslkit.training.data import Data
from sslkit.training.step import parts_to_compile

if TYPE_CHECKING:
    from lightning_fabric import Fabric

# parameters, and steps of a run, from which compiling is proposed: it takes a minute or two and gives 1.5 times
# (recipes/benchmarks/gpu)
LARGE, LONG = 10_000_000, 5_000


def check_trainer(config: Config) -> None:
    """Raises UserError for settings of the trainer that are not possible here, before anything is computed.

    These are a logger that is not installed, what `processes.make_fabric` refuses, a batch that the ranks cannot share
    evenly, and a network that cannot be compiled.
    """
    processes.quiet()
    loggers.check(config.trainer.logger)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `make_loop` makes it again and shows them
        fabric = fabric_of(config)
    size, ranks = config.batch_size, fabric.world_size
    if size % ranks:
        fitting = " or ".join(str(n * ranks) for n in (size // ranks, size // ranks + 1) if n)
        raise UserError(f"batch_size={size} cannot be shared evenly by {ranks} processes: take {fitting}")
    if config.trainer.compile:
        check_compiler(fabric.device)


def fabric_of(config: Config) -> "Fabric":
    """The run's Fabric, which is not launched yet. Raises UserError as `processes.make_fabric` does."""
    t, (kind, asked) = config.trainer, device_of(config)
    devices = processes.devices(asked, kind, config.batch_size, num_nodes=t.num_nodes)
    return processes.make_fabric(kind, devices, t.num_nodes, t.strategy, config.precision)


def device_of(config: Config) -> tuple[str, processes.Devices]:
    """The kind of device, and how many of it; `cuda:1` is that one alone, unless trainer.devices says otherwise."""
    kind, _, index = config.device.partition(":")
    devices = config.trainer.devices
    return kind, [int(index)] if index and devices == "auto" else devices


def ranks_of(config: Config) -> int:
    """The number of processes of the run, over all machines."""
    kind, devices = device_of(config)
    return processes.count(devices, config.trainer.num_nodes, kind, config.batch_size)


def describe_share(config: Config) -> str:
    """The part of each process, and why they are fewer than the GPUs; "" for one process that uses all there is."""
    size, ranks, (kind, devices) = config.batch_size, ranks_of(config), device_of(config)
    parts = [f"{size // ranks} on each of {ranks} processes"] if ranks > 1 else []
    every = processes.count(devices, config.trainer.num_nodes, kind)
    if every > ranks:
        parts.append(f"{every} GPUs cannot share {size} evenly")
    return f" ({'; '.join(parts)})" if parts else ""


def reading(config: Config, data: Data) -> list[str]:
    """A line on the number of processes that decode files, where it was chosen; none for images in memory."""
    if config.workers != "auto" or not data.train.decodes:
        return []
    kind = "cpu" if is_cpu(config.device) else "cuda"
    ranks = ranks_of(config)
    each = f" for each of {ranks} ranks" if ranks > 1 else ""
    workers = counted(workers_for(data.train, "auto", ranks, kind), "process")
    return [f"reading   files are decoded by {workers}{each}, of {counted(cores(), 'core')} (workers)"]


def compile_networks(config: Config, method: Method) -> Compiled:
    """The compiled networks and views of a run; where CUDA graphs are asked for and not possible, a line says why."""
    trainer, vary = config.trainer, method.objective.lengths_vary
    method.compiled_views = True
    graphs = trainer.compile == GRAPHS
    how = {"ranks": ranks_of(config), "accumulate": trainer.accumulate, "recomputed": trainer.checkpoint_activations}
    if graphs and (why := no_graphs(fabric_of(config).device, **how, lengths_vary=vary)):
        graphs = False
        if processes.is_main():
            say.line(f"note      compiled without CUDA graphs: {why}")
    return Compiled(parts_to_compile, lambda: method.shares.due, lengths_vary=vary, graphs=graphs)


def compile_hint(config: Config, method: Method, steps: int) -> list[str]:
    """A note on a long run of a large network on a GPU that does not compile it."""
    parameters = sum(p.numel() for p in method.backbone.parameters())
    on_gpu = torch.cuda.is_available() and not is_cpu(config.device)
    possible = not config.trainer.compile and config.trainer.strategy != "fsdp"
    if not (on_gpu and possible and parameters >= LARGE and steps >= LONG):
        return []
    return [
        "note      trainer.compile=true made steps of a ResNet-50 and of a ViT-S/16 1.5 times as fast on an H200; it "
        "compiles for a minute or two first"
    ]


def demand(config: Config, data: Data) -> Demand:
    t = config.trainer
    return Demand(
        batch_size=config.batch_size,
        image_size=data.image_size,
        processes=ranks_of(config),
        workers=config.workers,
        optimizer=config.optimizer.name,
        precision=config.precision,
        recomputed=t.checkpoint_activations,
    )


def describe_computation(loop: Loop, config: Config) -> dict[str, Any]:
    """Return device, processes, threads of each and precision, on which the last bits of the weights depend."""
    name = torch.cuda.get_device_name(loop.device) if loop.device.type == "cuda" else loop.device.type
    number = precision(config.precision, config.device)
    return {"device": name, "processes": loop.world_size, "threads": torch.get_num_threads(), "precision": number}
