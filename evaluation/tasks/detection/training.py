"""Train a detector by a schedule with warm-up and drops, on the loop of all fine-tuning."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from evaluation.tasks.detection.batches import training_batches
from evaluation.tasks.detection.datasets.boxes import Boxes
from evaluation.tasks.detection.precision import set_precision
from evaluation.tasks.detection.schedules import PUBLISHED_BATCH, Schedule
from evaluation.tuning import loop
from evaluation.tuning.checkpoint import Checkpoint
from evaluation.tuning.optimizers import groups_by_decay, make_optimizer
from sslkit.errors import UserError
from sslkit.layers.precise_bn import precise_batch_norm
from sslkit.models.detectors.detector import build_detector
from sslkit.models.model import Model
from sslkit.options.members import nearest
from sslkit.runtime.context import PRECISIONS, Runtime
from sslkit.runtime.device import generators_restored, seed_generators, seed_of
from sslkit.runtime.distributed import rank, world_size

if TYPE_CHECKING:  # importing it takes more than a second
    from torchvision.models.detection import FasterRCNN

UNDECAYED = ("pos_embed", "cls_token", "reg_token")
PERIOD = 20  # steps of which the mean loss is kept, as Detectron2 prints it
VIT_LR, VIT_DECAY = 1e-4 * PUBLISHED_BATCH / 64, 0.1  # ViTDet's (arXiv 2203.16527), which has batches of 64


@dataclass(frozen=True)
class Training:
    """Everything that a run depends on, apart from the model and the data.

    arch, masks, tune: see `build_detector`. precision: "float32", or "bfloat16" within layers, see
    `evaluation.tasks.detection.precision`. seed: of the new layers and of every draw.
    mirror: half of the images.
    Raises UserError for an unknown precision.
    """

    schedule: Schedule
    arch: str = "c4"
    masks: bool = False
    tune: str = "all"
    precision: str = "float32"
    seed: int = 0
    mirror: bool = True

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise UserError(f"there is no precision {self.precision!r}: {nearest(str(self.precision), PRECISIONS)}")


@dataclass
class Trained:
    """A detector in eval mode, on its device.

    losses: (step, mean loss since the one before), every 20 steps. before: seconds of training before the last stop.
    """

    detector: "FasterRCNN"
    losses: list[tuple[int, float]]
    before: float = 0.0


def train_detector(
    model: Model,
    data: Boxes,
    training: Training,
    runtime: Runtime,
    *,
    checkpoint: Checkpoint | None,
    title: str = "training",
) -> Trained:
    """Train a detector on a copy of the model's network, on the images of `data`; see `loop.fit`.

    data: see `Boxes.to_learn_from`.

    Objects marked difficult are learned from, crowds are not, as in detectron2. Every draw is a function of
    (seed, step, rank).
    checkpoint: resumed to bit-identical weights on one CPU and number of threads; a GPU adds in another order each
        time. It remains; remove it when the result is recorded.
    runtime: its device is that of this process. title: of the bar.
    In a process group each rank takes its part of every batch, gradients are averaged and batch norm is synchronised.
    Raises UserError for a checkpoint that is damaged or of another run, too few images, and a loss that is NaN or
    infinite.
    """
    rows = data if training.masks else data.without_masks()
    schedule, seed = training.schedule, training.seed
    options = {"arch": training.arch, "masks": training.masks, "tune": training.tune, "seed": seed}
    detector = build_detector(model, len(data.classes), sizes=schedule.sizes, **options).to(runtime.device)
    detector = set_precision(detector, training.precision)

    def batches(purpose: str, first: int, last: int) -> Iterator[Any]:
        drawn = {"batch_size": schedule.batch_size, "mirror": training.mirror, "seed": seed_of(purpose, seed) % 2**32}
        steps = {"first": first, "last": last, "rank": rank(), "world": world_size()}
        return training_batches(rows, model.in_chans, runtime, **drawn, **steps)

    plan = loop.Training(
        detector,
        detector_optimizer(detector, training),
        steps=schedule.steps,
        rate=schedule.factor,
        batches=lambda first: batches("training", first, schedule.steps),
        loss=lambda net, batch, step: _total_loss(net, batch),
        seed_at=lambda step: step_seed(seed, step),
        period=PERIOD,
        check=1,  # torchvision waits for the device many times a step
    )
    try:
        # of the whole detector the precision is float32, see precision.py
        state = loop.fit(plan, checkpoint=checkpoint, progress=runtime.progress and title)
    except loop.Diverged as error:
        raise UserError(f"{error}: lower lr={schedule.lr:g}") from error
    many = min(schedule.precise, len(rows) // schedule.batch_size)
    _settle(detector, batches("precise", 0, many), schedule.steps, seed)
    return Trained(detector.eval(), state.losses, state.before)


def detector_optimizer(detector: nn.Module, training: Training) -> torch.optim.Optimizer:
    """Return the schedule's optimizer: SGD of momentum 0.9, or AdamW.

    A ViT gets AdamW with ViTDet's rate and decay, in proportion to the batch, where the schedule says SGD; ViTDet's
    lower rates of early blocks and its drop path are left out. Norm layers, and a ViT's positions and class token, do
    not decay.
    """
    schedule, lr, decay = training.schedule, training.schedule.lr, training.schedule.weight_decay
    vit = training.arch == "vit_pyramid" and schedule.optimizer == "sgd"
    if vit:
        lr, decay = VIT_LR * lr / 0.02, VIT_DECAY
    groups = groups_by_decay(detector, lr, decay, UNDECAYED)
    return make_optimizer("adamw" if vit else schedule.optimizer, groups, nesterov=False)


def step_seed(seed: int, step: int) -> int:
    """Return the seed of PyTorch's generators at a step, from which torchvision draws sizes, anchors and regions."""
    return seed_of("detection", seed, step, rank())


def _total_loss(detector: nn.Module, batch: Any) -> Tensor:
    return sum(detector(*batch).values())


def _settle(detector: "FasterRCNN", batches: Iterator[Any], first: int, seed: int) -> None:
    """Compute precise batch norm statistics, with the draws of the steps from `first` on."""
    steps, device = count(first), next(detector.parameters()).device

    def forward(batch: Any) -> None:
        seed_generators(step_seed(seed, next(steps)), device)
        _total_loss(detector, batch)

    with generators_restored(device):
        precise_batch_norm(detector.train(), forward, batches)
