"""Fine-tuning of all weights of a network with a linear head: the loop shared by the fine-tuning protocols."""

import copy
import hashlib
import math
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from evaluation.features.models import LoadedModel
from evaluation.learners.schedules import cosine
from evaluation.tuning.pixels import Pixels
from sslkit.data.loader import EpochBatches
from sslkit.data.recipe import View, ViewRecipe
from sslkit.data.views import augment, view_generator
from sslkit.errors import UserError
from sslkit.members import nearest

OPTIMIZERS = ("sgd", "adamw")
PRECISIONS = ("float32", "bfloat16")
CHECK = 50  # steps between two checks of the loss; each check waits for the device
EVALUATED = 256  # images of a forward pass without gradient


class Diverged(ArithmeticError):
    """The loss or the scores of a run became NaN or infinite."""


@dataclass(frozen=True)
class Setting:
    """Hyperparameters of fine-tuning.

    lr: initial learning rate, with cosine decay to 0. head_lr: of the linear head, None: lr.
    weight_decay: of all weights, as defined by the optimizer (SGD: added to the gradient; AdamW: decoupled).
    steps: of the optimizer. batch_size: images per step; a smaller set is one batch.
    optimizer: "sgd" (momentum 0.9, Nesterov) or "adamw" (PyTorch's betas).
    crop: minimum and maximum share of the image's area in a random crop. flip: mirror half of the images.
    precision: "float32", or "bfloat16" autocast. seed: of the order, the crops and the network's own dropout.
    Raises UserError for a value out of range.
    """

    lr: float
    head_lr: float | None = None
    weight_decay: float = 0.0
    steps: int = 5000
    batch_size: int = 64
    optimizer: str = "sgd"
    crop: tuple[float, float] = (0.08, 1.0)
    flip: bool = True
    precision: str = "float32"
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("batch_size", 2), ("seed", 0)):
            object.__setattr__(self, name, whole_number(name, getattr(self, name), least))
        for name, least in (("lr", None), ("head_lr", None), ("weight_decay", 0.0)):
            self._take_number(name, least)
        for name, known in (("optimizer", OPTIMIZERS), ("precision", PRECISIONS)):
            if (value := getattr(self, name)) not in known:
                raise UserError(f"there is no {name} {value!r}: {nearest(str(value), known)}")
        self.views()

    def _take_number(self, name: str, least: float | None) -> None:
        """Store a number as a float, so that 1 and 1.0 are one setting. least: None for above 0."""
        value = getattr(self, name)
        if name == "head_lr" and value is None:
            return
        number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
        if not number or value < (least or 0) or (least is None and value == 0):
            raise UserError(f"{name}={value!r} must be a number {'above 0' if least is None else f'from {least:g}'}")
        object.__setattr__(self, name, float(value))

    def views(self) -> ViewRecipe:
        """Return random resized crop and flip, without colour changes."""
        flip = 0.5 if self.flip else 0.0
        return ViewRecipe((View(scale=self.crop, flip=flip, jitter=0.0, grayscale=0.0, blur=0.0),))


def whole_number(name: str, value: Any, least: int) -> int:
    """Convert an integer of any type (also numpy's) to int. Raises UserError for other values, or below `least`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise UserError(f"{name}={value!r} must be a whole number from {least}")
    return int(value)


def train_classifier(
    model: LoadedModel,
    pixels: Pixels,
    y: Tensor,
    setting: Setting,
    *,
    classes: int,
    progress: bool | str = True,
) -> nn.Sequential:
    """Tune all weights of a copy of the network, with a linear head that starts at zero.

    pixels: the n training images. y: (n,) int64 labels, or (n, K) int8 of 1, -1, 0 (do not count).
    classes: K, outputs of the head.
    progress: show a bar on a terminal with steps per second and the share of time spent on loading views; a string is
        its title.
    Returns the classifier (`backbone`, `head`) in eval mode, normalised images (B, C, S, S) -> (B, K). All randomness
    comes from setting.seed: on one CPU with the same number of threads the weights are bit-identical.
    Raises Diverged when the loss is NaN or infinite; it is checked every CHECK steps.
    """
    device = pixels.device
    target = y.to(device)
    with _own_randomness(setting.seed, device):
        net = with_head(model, classes).to(device).train()
        optimizer = make_optimizer(net, setting)
        feed = _Feed(training_batches(model, pixels, setting), setting.steps, progress)
        sound = torch.ones((), dtype=torch.bool, device=device)
        for step, (views, places) in enumerate(feed):
            _set_rates(optimizer, cosine(step, setting.steps))
            with autocast(setting.precision, device):
                scores = net(views)
            loss = classification_loss(scores.float(), target[places])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            sound &= loss.detach().isfinite()
            if (step + 1) % CHECK == 0 or step + 1 == setting.steps:
                feed.show(loss.item())
                _stop_unless(sound, step)
    return net.eval()


def with_head(model: LoadedModel, classes: int) -> nn.Sequential:
    """Return a copy of the network with all weights trainable, and a linear head of zeros."""
    backbone = copy.deepcopy(model.backbone).requires_grad_(True)
    head = nn.utils.skip_init(nn.Linear, model.width, classes)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return nn.Sequential(OrderedDict(backbone=backbone, head=head))


def make_optimizer(net: nn.Sequential, setting: Setting) -> torch.optim.Optimizer:
    """Return SGD with Nesterov momentum 0.9, or AdamW; each group stores its initial learning rate in "start"."""
    groups = [
        {"params": list(net.backbone.parameters()), "lr": setting.lr},
        {"params": list(net.head.parameters()), "lr": setting.lr if setting.head_lr is None else setting.head_lr},
    ]
    groups = [{**group, "start": group["lr"]} for group in groups]
    if setting.optimizer == "adamw":
        return torch.optim.AdamW(groups, weight_decay=setting.weight_decay)
    return torch.optim.SGD(groups, momentum=0.9, nesterov=True, weight_decay=setting.weight_decay)


def classification_loss(scores: Tensor, target: Tensor) -> Tensor:
    """Return the cross-entropy; for several labels per image, the mean binary cross-entropy over those that count.

    scores: (B, K). target: (B,) int64, or (B, K) of 1, -1, 0 (does not count).
    """
    if target.dim() == 1:
        return F.cross_entropy(scores, target)
    counts = (target != 0).float()
    each = F.binary_cross_entropy_with_logits(scores, (target > 0).float(), reduction="none")
    return (each * counts).sum() / counts.sum().clamp_min(1)


def training_batches(model: LoadedModel, pixels: Pixels, setting: Setting) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the normalised views (B, C, S, S) of every step and the indices (B,) of their images, on the device.

    The order of an epoch is a function of (seed, epoch), the crops of (seed, epoch, step); an incomplete last batch
    of an epoch is dropped, as in `sslkit.data.loader`.
    """
    order = EpochBatches(len(pixels.rows), min(setting.batch_size, len(pixels.rows)), setting.seed)
    recipe, normalize = setting.views(), Normalize(model, pixels.device)
    for epoch in range(math.ceil(setting.steps / len(order))):
        order.set_epoch(epoch)
        places = torch.tensor(list(order))[: setting.steps - epoch * len(order)]
        batches = zip(pixels.batches(places), places.to(pixels.device), strict=True)
        for step, ((images, aspect), at) in enumerate(batches):
            generator = view_generator(setting.seed, epoch, step)
            (view,) = augment(images, recipe, model.image_size, generator, aspect=aspect)
            yield normalize(view), at


class Normalize:
    """Normalise pixels in [0, 1] (B, C, S, S) for the network; mean and std are sent to the device once."""

    def __init__(self, model: LoadedModel, device: torch.device) -> None:
        self.mean, self.std = (torch.tensor(values, device=device)[:, None, None] for values in (model.mean, model.std))

    def __call__(self, pixels: Tensor) -> Tensor:
        return (pixels - self.mean) / self.std


@torch.inference_mode()
def predict(net: nn.Module, model: LoadedModel, pixels: Pixels, precision: str = "float32") -> Tensor:
    """Return scores (n, K) float32 on the CPU of the centre crops of n images.

    Raises Diverged if a score is NaN or infinite.
    """
    parts, normalize = [], Normalize(model, pixels.device)
    for places in torch.arange(len(pixels.rows)).split(EVALUATED):
        for images, _ in pixels.batches(places[None]):
            with autocast(precision, pixels.device):
                parts.append(net(normalize(centre_crop(images, model.image_size))).float())
    scores = torch.cat(parts).cpu()
    if not scores.isfinite().all():
        raise Diverged("the tuned network gives NaN or infinite scores")
    return scores


def centre_crop(images: Tensor, size: int) -> Tensor:
    """Crop (n, C, s, s) uint8, s >= size, to the centre (n, C, size, size), in [0, 1]."""
    start = (images.shape[-1] - size) // 2
    return images[:, :, start : start + size, start : start + size].float() / 255


def autocast(precision: str, device: torch.device) -> AbstractContextManager:
    """Return bfloat16 autocast if requested, else no context."""
    return torch.autocast(device.type, torch.bfloat16) if precision == "bfloat16" else nullcontext()


def _set_rates(optimizer: torch.optim.Optimizer, factor: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = group["start"] * factor


def _stop_unless(sound: Tensor, step: int) -> None:
    if not sound:
        raise Diverged(f"the loss became NaN or infinite by step {step + 1}")


@contextmanager
def _own_randomness(seed: int, device: torch.device) -> Iterator[None]:
    """Seed PyTorch's global generators, used by dropout, and restore them afterwards."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        own = int.from_bytes(hashlib.blake2b(f"dropout {seed}".encode(), digest_size=7).digest(), "little")
        torch.default_generator.manual_seed(own)
        if devices:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(own)
        yield


class _Feed:
    """Batches with a progress bar that shows the loss and the share of time spent on loading."""

    def __init__(self, batches: Iterator, steps: int, progress: bool | str) -> None:
        title = progress if isinstance(progress, str) else "tuning"
        self.batches = batches
        self.bar = tqdm(total=steps, desc=title, leave=False, disable=None if progress else True, dynamic_ncols=True)
        self.start, self.waited = time.perf_counter(), 0.0

    def __iter__(self) -> Iterator:
        with self.bar:
            while True:
                asked = time.perf_counter()
                batch = next(self.batches, None)
                self.waited += time.perf_counter() - asked
                if batch is None:
                    return
                yield batch
                self.bar.update()

    def show(self, loss: float) -> None:
        waited = self.waited / (time.perf_counter() - self.start)
        self.bar.set_postfix(loss=f"{loss:.3f}", data=f"{waited:.0%}", refresh=False)
