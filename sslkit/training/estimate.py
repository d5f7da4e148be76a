"""The time and memory of a run on a CPU before it starts, from measured steps, and what would make it shorter."""

import copy
import os
from collections.abc import Iterator, Mapping
from typing import Any

import psutil
import torch
from torch import Tensor

from sslkit.backbones import default
from sslkit.composition.method import Method, method
from sslkit.data.images import Images
from sslkit.options.members import parse
from sslkit.runtime.device import device_of
from sslkit.runtime.hardware import GIB, is_cpu
from sslkit.runtime.step_cost import FEW, LONG, Cost, measure_step
from sslkit.terminal import say
from sslkit.terminal.say import lasting
from sslkit.training.build import build_method, choose, steps
from sslkit.training.config import Config
from sslkit.training.data import CPU_SIZE, Data, open_data
from sslkit.training.machine import ranks_of
from sslkit.training.settled import Settled

MOST = 128  # images of a measured step, see `Item.rows_at_once`; more only where the objective needs them
WORTH = 2  # times shorter: less is within the error of an estimate from one step
WEIGHTS = 4  # copies of the weights: themselves, their gradients, and the two averages of AdamW
DRIVER = "/proc/driver/nvidia"


def announce_cost(config: Config, data: Data, built: Method) -> None:
    """Say what the run will take on this CPU; nothing of a few images, or where processes share a step."""
    if not is_cpu(config.device) or ranks_of(config) > 1:
        return
    images = steps(config, data) * config.trainer.accumulate * config.batch_size
    if images * data.image_size**2 < FEW:
        return
    cost = _measure(_objective_of(built), data, config.batch_size)
    seconds = cost.seconds * images
    held = _memory(config, built, cost)
    say.lines(
        f"time      about {lasting(seconds / config.epochs)} an epoch, {lasting(seconds)} the run, and "
        f"{held / GIB:.1f} GB of memory, from a measured step; without reading files and evaluation"
    )
    notes = [*_too_large(config, held), *_shorter(config, data, built, cost, seconds), *_gpu_notes()]
    if notes:
        say.lines("\n".join(f"hint      {note}" for note in notes))


def seconds_of_epoch(settings: Mapping[str, Any], images: Images) -> float:
    """The seconds of an epoch of a run that is not begun, from a measured step on this device, without reading files.

    settings: as of `sslkit.pretrain`. Raises UserError as it does.
    """
    config = Config.from_mapping(settings)
    data = open_data(config, images)
    built = build_method(Settled(config, choose(config, data)).config, data)
    return measure_epoch(config, data, built)


def measure_epoch(config: Config, data: Data, built: Method) -> float:
    """The seconds of an epoch of a run that is built, as `seconds_of_epoch`."""
    trial = _objective_of(built).to(device_of(config.device))
    return _measure(trial, data, config.batch_size).seconds * len(data.train)


def _objective_of(built: Method) -> Method:
    """A copy of the method without regularisers, whose priors may hold much: nothing of the run is changed."""
    options = {"recipe": built.recipe, "image_size": built.image_size, "normalize": built.normalize, "seed": built.seed}
    return Method(parse(built.name)[0], copy.deepcopy(built.objective), {}, **options)


def _measure(trial: Method, data: Data, batch_size: int) -> Cost:
    """A step on the first images."""
    most = max(data.train.item.rows_at_once(MOST), trial.objective.least_images)
    rows = list(range(min(len(data.train), batch_size, most)))
    batch, device = data.train.__getitems__(rows), next(trial.parameters()).device
    images, index = batch["images"].to(device), batch["index"].to(device)
    labels = batch["label"].clamp(min=0).to(device) if trial.objective.needs_labels else None

    def loss(count: int) -> Tensor:
        first = slice(count)
        y = None if labels is None else labels[first]
        return trial(images[first], index[first], aspect=batch["aspect"][first], labels=y)["loss"]

    return measure_step(loss, trial.objective.least_images, len(rows))


def _memory(config: Config, built: Method, found: Cost) -> float:
    """Bytes of this process so far, of a step's activations, and of the weights with what goes with each."""
    weights = sum(p.numel() * p.element_size() for p in built.parameters() if p.requires_grad)
    return psutil.Process().memory_info().rss + WEIGHTS * weights + found.bytes * config.batch_size


def _too_large(config: Config, held: float) -> Iterator[str]:
    free = psutil.virtual_memory().available
    if held > free:
        batch = max(2, int(config.batch_size * free / held / 2))
        less = "" if config.trainer.checkpoint_activations else " or trainer.checkpoint_activations=true"
        yield f"only {free / GIB:.1f} GB of memory are free: batch_size={batch}{less} needs less"


def _shorter(config: Config, data: Data, built: Method, found: Cost, seconds: float) -> Iterator[str]:
    """The first settings that make a long run much shorter, measured."""
    recipe, size = built.backbone.recipe, data.image_size
    small = default(built.objective.families[0], CPU_SIZE // 2, frames=None)
    if seconds < LONG or recipe.origin is not None or data.train.view_size is not None or ":" in recipe.name:
        return
    sizes = [] if size == CPU_SIZE else [{"image_size": CPU_SIZE}]
    others = [] if recipe.name == small else [{"backbone": small}, *({"backbone": small, **change} for change in sizes)]
    for settings in sizes + others:
        network, pixels = settings.get("backbone", recipe.name), settings.get("image_size", size)
        options = {piece: config.method_options().get(piece) for piece in ("objective", "views")}
        trial = method(
            parse(config.method_name)[0], backbone=network, image_size=pixels, in_chans=data.train.channels, **options
        )
        times = found.seconds / _measure(trial, data, config.batch_size).seconds
        if times > WORTH:
            words = " ".join(f"{name}={value}" for name, value in settings.items())
            yield f"{words} takes 1/{times:.0f} of this time (measured)"
            return


def _gpu_notes() -> Iterator[str]:
    if torch.cuda.is_available():
        yield "there is a GPU, and it is not used: device=cuda"
    elif os.path.isdir(DRIVER) and torch.version.cuda is None:
        yield "there is an NVIDIA GPU, and this torch is made for the CPU alone: install one with CUDA to use it"
