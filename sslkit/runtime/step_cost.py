"""The cost of a training step on a CPU, measured before the training starts."""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from sslkit.runtime.heap import freed_memory_kept

FEW = 10**7  # pixels of all images of a training that is over in seconds
ENOUGH = 0.3  # seconds of a measured step: shorter ones are mostly the start of each operation
LONG = 1800  # seconds of a training from which on something shorter is looked for: half an hour, a guess at patience


@dataclass(frozen=True)
class Cost:
    """seconds: of a step, for each of its images. bytes: of the activations that it keeps, for each of them."""

    seconds: float
    bytes: float


def measure_step(loss: Callable[[int], Tensor], least: int, most: int) -> Cost:
    """Measure forward and backward. loss: of a step of so many images, from `least` to `most`.

    The number of images doubles until a step takes a third of a second, so that the whole measurement takes about one.
    """
    images = min(max(2, least), most)
    with freed_memory_kept(), warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")  # the run says them itself
        _time(loss, images)  # the first call also prepares the kernels
        seconds, saved = _time(loss, images)
        while seconds < ENOUGH and images < most:
            images = min(2 * images if seconds > ENOUGH / 4 else 4 * images, most)
            seconds, saved = _time(loss, images)
    return Cost(seconds / images, saved / images)


def _time(loss: Callable[[int], Tensor], images: int) -> tuple[float, int]:
    """Seconds, and the bytes of the storages that the backward pass reads."""
    storages: dict[int, int] = {}

    def note(value: Tensor) -> Tensor:
        if not isinstance(value, torch.nn.Parameter):
            storage = value.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
        return value

    start = time.perf_counter()
    with torch.autograd.graph.saved_tensors_hooks(note, lambda value: value):
        result = loss(images)
    result.backward()
    if result.is_cuda:
        torch.cuda.synchronize(result.device)
    return time.perf_counter() - start, sum(storages.values())
