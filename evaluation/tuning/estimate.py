"""The time of fine-tuning on a CPU before it starts, from a measured step of each network."""

from collections.abc import Sequence

import torch

from evaluation.tuning.classifier import classification_loss, with_head
from sslkit.models.model import Model
from sslkit.runtime.context import Runtime
from sslkit.runtime.device import device_of
from sslkit.runtime.distributed import world_size
from sslkit.runtime.step_cost import FEW, measure_step
from sslkit.terminal.say import counted, lasting

CPU = torch.device("cpu")
CLASSES = 10  # of the measured head, a small part of a step


def seconds_of_step(model: Model, batch_size: int, device: torch.device = CPU) -> float:
    """Measure a step, without reading images."""
    net = with_head(model, CLASSES).to(device).train()
    shape = (batch_size, model.in_chans, model.image_size, model.image_size)
    images = torch.rand(shape, generator=torch.Generator().manual_seed(0)).to(device)
    labels = (torch.arange(batch_size) % CLASSES).to(device)
    cost = measure_step(lambda n: classification_loss(net(images[:n]), labels[:n]), min(2, batch_size), batch_size)
    return cost.seconds * batch_size


def announce(work: Sequence[tuple[Model, int]], runs: int, batch_size: int, runtime: Runtime) -> None:
    """Say how long fine-tuning takes; nothing on a GPU, of few small images, or where processes share a step.

    work: the models, each with its number of steps. runs: of all models.
    """
    pixels = sum(steps * batch_size * model.image_size**2 for model, steps in work)
    clips = any(model.item.axes for model, _ in work)  # are refused later, each with its name
    if device_of(runtime.device).type != "cpu" or world_size() > 1 or pixels < FEW or clips:
        return
    each = {model: seconds_of_step(model, batch_size) for model, _ in work}
    seconds = sum(steps * each[model] for model, steps in work)
    total = f"{counted(runs, 'run')}, {counted(sum(steps for _, steps in work), 'step')}"
    runtime.say(f"time: about {lasting(seconds)} for {total}, from measured steps; finished runs are not repeated")
