"""Fine-tuning of all weights of a network with a linear head: settings, views, training, scores."""

import copy
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from evaluation.features.checks import whole_number
from evaluation.tuning.checkpoint import Checkpoint
from evaluation.tuning.loop import Diverged, State, Training, dropout_seed, fit
from evaluation.tuning.optimizers import OPTIMIZERS, make_optimizer
from evaluation.tuning.pixels import Pixels
from sslkit.data.loader import EpochBatches
from sslkit.data.views.augmentation import augment, view_generator
from sslkit.data.views.recipe import View, ViewRecipe
from sslkit.errors import UserError
from sslkit.models.model import Model
from sslkit.numerics.schedules import cosine
from sslkit.options.members import nearest
from sslkit.runtime.context import PRECISIONS
from sslkit.runtime.device import autocast
from sslkit.runtime.distributed import gather_objects, rank, world_size

PREDICT_BATCH = 256  # images of a forward pass without gradient


@dataclass(frozen=True)
class Setting:
    """Hyperparameters of fine-tuning.

    lr: initial learning rate, with cosine decay to 0. head_lr: of the linear head, None: lr.
    weight_decay: of all weights, as defined by the optimizer (SGD: added to the gradient; AdamW: decoupled).
    steps: of the optimizer. batch_size: images per step; a smaller set is one batch.
    optimizer: "sgd" (momentum 0.9, Nesterov) or "adamw" (PyTorch's betas).
    crop: minimum and maximum share of the image's area in a random crop. mirror: half of the images, see `Task.mirror`.
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
    mirror: bool = True
    precision: str = "float32"
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("batch_size", 2), ("seed", 0)):
            object.__setattr__(self, name, whole_number(name, getattr(self, name), least))
        for name, least in (("lr", None), ("head_lr", None), ("weight_decay", 0.0)):
            self._take_number(name, least)
        for name, choices in (("optimizer", OPTIMIZERS), ("precision", PRECISIONS)):
            if (value := getattr(self, name)) not in choices:
                raise UserError(f"there is no {name} {value!r}: {nearest(str(value), choices)}")
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
        flip = View.flip if self.mirror else 0.0
        return ViewRecipe((View(scale=self.crop, flip=flip, jitter=0.0, grayscale=0.0, blur=0.0),))


def train_classifier(
    model: Model,
    pixels: Pixels,
    y: Tensor,
    setting: Setting,
    *,
    classes: int,
    state: State | None = None,
    checkpoint: Checkpoint | None,
    progress: bool | str,
    watch: Callable[[int, nn.Sequential], None] | None = None,
) -> nn.Sequential:
    """Tune all weights of a copy of the network, with a linear head that starts at zero; see `loop.fit`.

    pixels: the n training images. y: (n,) int64 labels, or (n, K) int8 of 1, -1, 0 (do not count); or (n,) float64,
        numbers: they are standardised to be learned, and the head that is returned gives them in their own unit.
    classes: K, outputs of the head. state, checkpoint, progress: see `loop.fit`.
    watch: called before each step with the number of finished steps and the network, whose mode it leaves as it was.
    Returns the classifier (`backbone`, `head`) in eval mode, normalised images (B, C, S, S) -> (B, K). All randomness
    comes from setting.seed: on one CPU with the same number of threads the weights are bit-identical.
    Raises Diverged when the loss is NaN or infinite.
    """
    middle, spread = _moments(y)
    target = y.to(pixels.device) if spread is None else ((y - middle) / spread).float().to(pixels.device)
    net = with_head(model, classes).to(pixels.device).train()
    training = Training(
        net,
        make_optimizer(setting.optimizer, _groups(net, setting), fused=True),
        steps=setting.steps,
        rate=lambda step: cosine(step, setting.steps),
        batches=lambda first: _watch(training_batches(model, pixels, setting, first), first, net, watch),
        loss=lambda tuned, batch, step: training_loss(tuned(batch[0]), target[batch[1]]),
        seed_at=lambda step: dropout_seed(setting.seed, step),
        precision=setting.precision,
    )
    fit(training, state=state, checkpoint=checkpoint, progress=progress)
    if spread is not None:
        with torch.no_grad():
            net.head.weight *= spread
            net.head.bias.mul_(spread).add_(middle)
    return net.eval()


def _moments(y: Tensor) -> tuple[float, float | None]:
    """Mean and standard deviation of numbers; (0, None) of labels of classes."""
    if not y.is_floating_point():
        return 0.0, None
    return y.mean().item(), y.std(correction=0).item() or 1.0


def _watch(
    batches: Iterator[Any], first: int, net: nn.Sequential, watch: Callable[[int, nn.Sequential], None] | None
) -> Iterator[Any]:
    """Yield the batches of the steps from `first` on; `watch` is called before each."""
    for step, batch in enumerate(batches, first):
        if watch is not None:
            watch(step, net)
        yield batch


def with_head(model: Model, classes: int) -> nn.Sequential:
    """Return a copy of the network with all weights trainable, and a linear head of zeros."""
    backbone = copy.deepcopy(model.backbone).requires_grad_(True)
    head = nn.utils.skip_init(nn.Linear, model.width, classes)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return nn.Sequential(OrderedDict(backbone=backbone, head=head))


def _groups(net: nn.Sequential, setting: Setting) -> list[dict[str, Any]]:
    head_lr = setting.lr if setting.head_lr is None else setting.head_lr
    rates = {net.backbone: setting.lr, net.head: head_lr}
    decay = setting.weight_decay
    return [{"params": list(module.parameters()), "lr": lr, "weight_decay": decay} for module, lr in rates.items()]


def training_loss(scores: Tensor, target: Tensor) -> Tensor:
    """Return `classification_loss` such that its mean over the ranks is the loss of the whole batch.

    Ranks have equal numbers of images, but not of labels that count.
    """
    loss = classification_loss(scores, target)
    if target.dim() == 1 or world_size() == 1:
        return loss
    share = (target != 0).sum().float()
    total = share.clone()
    dist.all_reduce(total)
    return loss * share * world_size() / total.clamp_min(1)


def classification_loss(scores: Tensor, target: Tensor) -> Tensor:
    """Return the cross-entropy; for several labels per image, the mean binary cross-entropy over those that count; for
    numbers the mean squared error.

    scores: (B, K). target: (B,) int64, or (B, K) of 1, -1, 0 (does not count), or (B,) of a floating type.
    """
    if target.is_floating_point():
        return F.mse_loss(scores[:, 0], target.to(scores.dtype))
    if target.dim() == 1:
        return F.cross_entropy(scores, target)
    counts = (target != 0).float()
    each = F.binary_cross_entropy_with_logits(scores, (target > 0).float(), reduction="none")
    return (each * counts).sum() / counts.sum().clamp_min(1)


def training_batches(model: Model, pixels: Pixels, setting: Setting, first: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield this rank's normalised views (B, C, S, S) of each step from `first` on, and their images' indices (B,).

    The order of an epoch is a function of (seed, epoch), the crops of (seed, epoch, step); an incomplete last batch
    of an epoch is dropped, as in `sslkit.data.loader`. Both are on the device. The ranks share every batch.
    Raises UserError if they cannot share it evenly.
    """
    size, ranks = min(setting.batch_size, len(pixels.rows)), world_size()
    if size % ranks:
        raise UserError(f"a batch of {size} images cannot be shared by {ranks} processes: change batch_size")
    order = EpochBatches(len(pixels.rows), size, setting.seed, rank(), ranks)
    recipe, normalize = setting.views(), Normalize(model, pixels)
    for epoch in range(first // len(order), math.ceil(setting.steps / len(order))):
        order.set_epoch(epoch)
        start = max(first - epoch * len(order), 0)
        places = torch.tensor(list(order))[start : setting.steps - epoch * len(order)]
        batches = zip(pixels.batches(places), places.to(pixels.device), strict=True)
        for step, ((images, aspect), at) in enumerate(batches, start):
            drawn = view_generator(setting.seed, epoch, step)
            (view,) = augment(images, recipe, model.image_size, drawn, aspect=aspect, rank=rank(), world_size=ranks)
            yield normalize(view), at


class Normalize:
    """Normalise pixels in [0, 1] (B, C, S, S) for the network; mean and std are sent to the device once."""

    def __init__(self, model: Model, pixels: Pixels) -> None:
        device = pixels.device
        self.mean, self.std = (torch.tensor(values, device=device)[:, None, None] for values in (model.mean, model.std))

    def __call__(self, pixels: Tensor) -> Tensor:
        return (pixels - self.mean) / self.std


@torch.inference_mode()
def predict(net: nn.Module, model: Model, pixels: Pixels, precision: str) -> Tensor:
    """Return scores (n, K) float32 on the CPU of the centre crops of n images; each rank computes its part of them.

    Raises Diverged if a score is NaN or infinite.
    """
    parts, normalize, n = [], Normalize(model, pixels), len(pixels.rows)
    places_of_rank = torch.arange(rank(), n, world_size())
    full = len(places_of_rank) // PREDICT_BATCH * PREDICT_BATCH
    for places in (places_of_rank[:full].view(-1, PREDICT_BATCH), places_of_rank[None, full:]):
        for images, _ in pixels.batches(places) if places.numel() else ():
            with autocast(precision, images.device):
                parts.append(net(normalize(images.float() / 255)).float())
    parts = [chunk for chunk in gather_objects(torch.cat(parts).cpu() if parts else None) if chunk is not None]
    scores = parts[0].new_empty(n, *parts[0].shape[1:])
    for number, chunk in enumerate(parts):
        scores[number :: world_size()] = chunk
    if not scores.isfinite().all():
        raise Diverged("the tuned network gives NaN or infinite scores")
    return scores
