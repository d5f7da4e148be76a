"""A run before it computes anything: the memory of a step by its batch, and the time that each card's limits allow.

`announce` prints both for a run (`dry=true`); `predict_memory` is the memory of a method and a network alone.
"""

import copy
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sslkit.composition.method import Method, method
from sslkit.data.items import IMAGE, Item
from sslkit.data.views.augmentation import Views, views_of_row
from sslkit.runtime.distributed import blocks_apart
from sslkit.runtime.hardware import GIB
from sslkit.runtime.pretended import DEVICE, Work, counting, place_on_device
from sslkit.terminal import say
from sslkit.terminal.say import lasting
from sslkit.terminal.tables import align
from sslkit.training.build import RATE, batches, describe_tuned
from sslkit.training.config import Config, OptimizerConfig
from sslkit.training.data import Data
from sslkit.training.machine import ranks_of
from sslkit.training.optimizers import make_optimizer


@dataclass(frozen=True)
class Card:
    """gb: memory. gbs: GB/s of it. half, tf32, fp32: dense TFLOP/s of products in 16 bits, TF32 and float32."""

    name: str
    gb: int
    gbs: int
    half: float
    tf32: float
    fp32: float


CARDS = (  # NVIDIA's documents: half precision with float32 sums, without sparsity
    Card("RTX 3090", 24, 936, 71, 35.6, 35.6),  # Ampere GA102 whitepaper 2.1, tables 2 and 9
    Card("RTX 4090", 24, 1008, 165.2, 82.6, 82.6),  # Ada whitepaper 2.1, appendix A
    Card("A100 40 GB", 40, 1555, 312, 156, 19.5),  # A100 data sheet, June 2021
    Card("A100 80 GB", 80, 2039, 312, 156, 19.5),  # the same, SXM
    Card("H100 80 GB", 80, 3350, 989, 494, 67),  # H100 data sheet, SXM
)
SIZES = 24, 40, 80  # GB
USABLE = 0.92  # of a card: the rest is CUDA's context, the libraries' workspaces, and gaps between blocks
HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}
ROWS = 0.25, 0.5, 1, 2, 4  # times the run's batch
COUNTED = 1, 2, 4  # of these a step is counted, the others are on the parabola through them
LEFT_OUT = (
    "an estimate from the shapes of a step: it leaves out workspaces of the libraries, making the views, the terms of "
    "priors that are not there yet, reading files, waiting between kernels and evaluation; no run is faster than this"
)


@dataclass(frozen=True)
class Step:
    """A counted step. peak: the most bytes at a time, weights and optimiser included. work: its kernels.

    tf32: whether products of float32 are computed in TF32, as large logits are under mixed precision.
    """

    peak: int
    work: list[Work]
    tf32: bool = True

    def seconds(self, card: Card) -> float:
        """The least time on a card: each kernel takes its FLOPs or its bytes, the longer of both."""
        single = card.tf32 if self.tf32 else card.fp32
        rates = [card.half if kernel.dtype in HALF.values() else single for kernel in self.work]
        both = (
            (kernel.flops / rate / 1e12, kernel.bytes / card.gbs / 1e9)
            for kernel, rate in zip(self.work, rates, strict=True)
        )
        return sum(map(max, both))


def predict_memory(
    name: str,
    backbone: str,
    image_size: int,
    batch: int,
    precision: str = "bfloat16",
    **options: Any,
) -> float:
    """GiB that a step of AdamW needs on a GPU, to be compared with `torch.cuda.max_memory_allocated`.

        predicted("byol", "resnet50", 224, 256)  # 25.3

    batch: images on this GPU. precision: float32, bfloat16 or float16. options: of `sslkit.method`.
    """
    built = method(name, backbone=backbone, image_size=image_size, **options)
    return count_step(built, batch, precision, OptimizerConfig(name="adamw")).peak / GIB


def count_step(method: Method, batch: int, precision: str, optimizer: OptimizerConfig, item: Item = IMAGE) -> Step:
    """Count a step of the method, of which nothing is changed.

    precision: as `precision`, without auto. item: of the data's rows.
    """
    with warnings.catch_warnings(), counting() as counter:
        warnings.simplefilter("ignore")  # the run says them itself
        trial = _copy(method, item)
        moved = _optimizer(trial, optimizer)
        counter.restart()
        _step(trial, moved, batch, HALF.get(precision), item)
        tf32 = precision in HALF or torch.get_float32_matmul_precision() != "highest"
        return Step(counter.peak, counter.work, tf32)


def _copy(method: Method, item: Item) -> Method:
    """A copy on the pretended device, whose views have no pixels; its shares are not measured in this step."""
    trial = place_on_device(copy.deepcopy(method))
    for prior in trial.anchors.priors:
        place_on_device(prior.network)
    trial.shares.steps = 3
    trial.make_views = partial(_empty_views, trial, item)
    return trial


def _empty_views(method: Method, item: Item, images: Tensor, *_: object) -> Views:
    sizes = [view.size or method.image_size for view in views_of_row(method.recipe, item.of_row)]
    made = [torch.empty(len(images), *method.backbone.input_shape(size), device=DEVICE) for size in sizes]
    return Views(made, torch.rand(len(sizes), len(images), 5))


def _optimizer(method: Method, config: OptimizerConfig) -> torch.optim.Optimizer:
    """The optimiser with its state, and the gradients of a step."""
    made = make_optimizer(method, config, RATE)
    for group in made.param_groups:
        if "foreach" in group:
            group["foreach"] = True  # as on a GPU
        for p in group["params"]:
            p.grad = torch.empty_like(p)
    made.step()
    return made


def _step(method: Method, optimizer: torch.optim.Optimizer, batch: int, half: torch.dtype | None, item: Item) -> None:
    """A step as in `sslkit.runtime.loop`: the gradients of the one before are there until the loss is known."""
    shape = item.batch_shape(batch, method.backbone.in_chans, method.image_size)
    images = torch.empty(shape, dtype=torch.uint8, device=DEVICE)
    rows = torch.arange(batch)
    labels = (rows % getattr(method.objective, "classes", 1)).to(DEVICE)
    with torch.autocast(DEVICE.type, half, enabled=half is not None):
        loss = method(images, rows.to(DEVICE), labels=labels)["loss"]
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    method.after_step(0.5)


@say.print_by_default()
def announce(config: Config, data: Data, built: Method) -> None:
    """Print the memory by batch and the least time by card of a run that is not started."""
    precision = "bfloat16" if config.precision == "auto" else config.precision
    ranks = ranks_of(config)
    batch = config.batch_size // ranks
    steps = {n * batch: count_step(built, n * batch, precision, config.optimizer, data.train.item) for n in COUNTED}
    held = Held.measure(built, config.optimizer.name)
    more = held.of_several(ranks, config.trainer.strategy)
    need = _parabola({images: step.peak + more for images, step in steps.items()})
    body = built.backbone.recipe.name
    say.lines(
        f"dry run   {built.name}, {body}, {data.image_size} px, {precision}, {config.optimizer.name}, {ranks} "
        f"{'card' if ranks == 1 else 'cards'}: nothing is trained\n"
        f"memory    {held.line(steps[batch].peak, batch)}{_several(ranks, config.trainer.strategy, more)}"
    )
    say.lines("\n".join(describe_tuned(config, data, built)))
    say.lines(align(_by_batch(batch, need), right=range(5)))
    say.lines(align(_by_card(config, data, batch, ranks, steps[batch], need), right=range(1, 6)))
    say.lines(f"note      {LEFT_OUT}")


@dataclass(frozen=True)
class Held:
    """Bytes of a method that do not depend on the batch.

    trained: weights; their gradients are as many. frozen: a teacher and buffers. state: of the optimiser. gathered,
    frozen_gathered: the part of the first two that `trainer.strategy=fsdp` gathers for a whole step.
    """

    trained: int
    frozen: int
    state: int
    gathered: int
    frozen_gathered: int

    @classmethod
    def measure(cls, built: Method, optimizer: str) -> "Held":
        apart = {id(p) for block in blocks_apart(built) for p in block.parameters()}
        weights = [(_bytes(p), p.requires_grad, id(p) not in apart) for p in built.parameters()]
        trained, frozen = (sum(size for size, learns, _ in weights if learns is kind) for kind in (True, False))
        staying = [sum(size for size, learns, stays in weights if stays and learns is kind) for kind in (True, False)]
        buffers = sum(map(_bytes, built.buffers()))
        return cls(
            trained, frozen + buffers, trained * (2 if optimizer == "adamw" else 1), staying[0], staying[1] + buffers
        )

    def of_several(self, ranks: int, strategy: str) -> float:
        """Bytes that each of several processes needs more than a single one, or less where they have shares.

        DDP copies the gradients into buckets. FSDP keeps a share of everything, and gathers a part of the weights.
        """
        if ranks == 1:
            return 0
        if strategy != "fsdp":
            return self.trained
        whole = 2 * self.trained + self.state + self.frozen
        return whole / ranks + 2 * self.gathered + self.frozen_gathered - whole

    def line(self, peak: float, batch: int) -> str:
        """The peak of a step on one card, in parts."""
        rest = peak - 2 * self.trained - self.frozen - self.state
        return (
            f"{peak / GIB:.1f} GiB for {batch} images: weights {self.trained / GIB:.2f}, gradients "
            f"{self.trained / GIB:.2f}, optimiser {self.state / GIB:.2f}, teacher and buffers {self.frozen / GIB:.2f}, "
            f"views and activations {rest / GIB:.2f} ({rest / batch / 2**20:.1f} MiB an image)"
        )


def _several(ranks: int, strategy: str, more: float) -> str:
    """A clause on what several processes change."""
    if ranks == 1:
        return ""
    way = "in shares (fsdp)" if strategy == "fsdp" else "with DDP's buckets"
    return f"; {way} {abs(more) / GIB:.2f} GiB {'more' if more > 0 else 'less'} on each of {ranks} cards"


def _bytes(x: Tensor) -> int:
    return x.numel() * x.element_size()


def _parabola(known: Mapping[int, float]) -> Callable[[float], float]:
    """The parabola through three points: losses compare all images with each other."""
    a, b, c = np.polyfit(list(known), list(known.values()), 2)
    return lambda images: a * images**2 + b * images + c


def _by_batch(batch: int, need: Callable[[float], float]) -> list[list[str]]:
    """Rows of the memory by images on a card, and whether these fit."""
    lines = [["images a card", "GiB", *(f"{size} GB" for size in SIZES)]]
    for images in dict.fromkeys(max(2, int(times * batch)) for times in ROWS):
        fits = ["fits" if need(images) <= USABLE * size * GIB else "-" for size in SIZES]
        lines.append([f"{images:,}", f"{need(images) / GIB:.1f}", *fits])
    most = [f"{_most(need, size):,}" for size in SIZES]
    return [*lines, ["at most", "", *most]]


def _most(need: Callable[[float], float], gb: int) -> int:
    """The largest number of images that fits, in eights from 8 on; 0 if none does."""
    low, high = 0, 2**20
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if need(middle) <= USABLE * gb * GIB else (low, middle)
    return low if low < 8 else low // 8 * 8


def _by_card(
    config: Config, data: Data, batch: int, ranks: int, step: Step, need: Callable[[float], float]
) -> list[list[str]]:
    """Rows of the least time by card."""
    unit, images = data.unit, batches(config, data) * config.batch_size
    lines = [["card", "TFLOP/s", "GB/s", f"{unit}/s at most", "an epoch", "the run"]]
    for card in CARDS:
        each = max(step.seconds(card), 1e-9) / batch / ranks
        fits = "" if need(batch) <= USABLE * card.gb * GIB else f" ({_most(need, card.gb):,} a step)"
        epoch = each * images
        rates = f"{card.half:g}", f"{card.gbs:,}", f"{1 / each:,.0f}"
        lines.append([card.name + fits, *rates, lasting(epoch), lasting(epoch * config.epochs)])
    return lines
