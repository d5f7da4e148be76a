"""train_detector: the loop, with warm-up and drops, checkpoints and exact resume, on one process or several."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torchvision.models.detection import FasterRCNN

from evaluation.features.models import LoadedModel
from evaluation.protocols.detection.batches import training_batches
from evaluation.protocols.detection.boxes import Boxes
from evaluation.protocols.detection.checkpoint import Checkpoint
from evaluation.protocols.detection.detector import build_detector, seed_of
from evaluation.protocols.detection.precise_bn import precise_batch_norm
from evaluation.protocols.detection.precision import set_precision
from evaluation.protocols.detection.progress import Progress
from evaluation.protocols.detection.ranks import same_on_all_ranks
from evaluation.protocols.detection.schedules import PUBLISHED_BATCH, Schedule
from evaluation.tuning.loop import PRECISIONS
from sslkit.distributed import rank, synchronize_batch_norm, world_size
from sslkit.errors import UserError
from sslkit.members import nearest

UNDECAYED = ("pos_embed", "cls_token", "reg_token")
SHOWN = 20  # steps of which the mean loss is kept
SAVED = 60.0  # seconds between two checkpoints
VIT_LR, VIT_DECAY = 1e-4 * PUBLISHED_BATCH / 64, 0.1  # ViTDet's (arXiv 2203.16527), which has batches of 64


@dataclass(frozen=True)
class Training:
    """What a run depends on, apart from the model and the data.

    arch, masks, trainable: see `build_detector`. precision: "float32", or "bfloat16" within layers, see
    `evaluation.protocols.detection.precision`. seed: of the new layers and of every draw.
    Raises UserError for an unknown precision.
    """

    schedule: Schedule
    arch: str = "c4"
    masks: bool = False
    trainable: str = "full"
    precision: str = "float32"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise UserError(f"there is no precision {self.precision!r}: {nearest(str(self.precision), PRECISIONS)}")


@dataclass
class Trained:
    """detector: in eval mode, on its device. losses: (step, loss) every 20 steps, mean over what rank 0 saw in them."""

    detector: FasterRCNN
    losses: list[tuple[int, float]]


def train_detector(
    model: LoadedModel,
    data: Boxes,
    training: Training,
    *,
    device: torch.device,
    checkpoint: Path | None = None,
    every: float = SAVED,
    workers: int = 0,
    progress: bool | str = True,
) -> Trained:
    """A detector on a copy of the model's network, trained on the images of `data` that have objects.

    Objects marked difficult are learned from, crowds are not, as in detectron2. Every draw is a function of
    (seed, step, rank).
    checkpoint: file that is written every `every` seconds and after the last step; where it exists the run goes on from
        it and ends, on one CPU and number of threads, with the weights that it would have had without the stop, to the
        last bit. A GPU adds in another order each time. The file is left as it is; delete it when the result is kept.
    workers: processes that read images. progress: a bar on a terminal, or its title.
    Under torch.distributed (see ranks.py) each rank takes its part of every batch, gradients are
    averaged and batch norm is synchronised.
    Raises UserError for a checkpoint that is damaged or of other settings, too few images, and a loss that is NaN or
    infinite.
    """
    rows = (data if training.masks else data.without_masks()).to_learn_from()
    run = _Run(model, rows, training, device, checkpoint, workers)
    with _randomness(device):
        run.restore()
        run.fit(every, progress)
        run.settle()
    return Trained(run.detector.eval(), run.losses)


class _Run:
    """The state of one training."""

    def __init__(
        self,
        model: LoadedModel,
        data: Boxes,
        training: Training,
        device: torch.device,
        checkpoint: Path | None,
        workers: int,
    ) -> None:
        own = {"arch": training.arch, "masks": training.masks, "trainable": training.trainable, "seed": training.seed}
        detector = build_detector(model, len(data.classes), sizes=training.schedule.sizes, **own).to(device)
        detector = synchronize_batch_norm(detector, device.type) if world_size() > 1 else detector
        self.detector = set_precision(detector, training.precision, device)
        ids = [device.index or 0] if device.type == "cuda" else None
        self.net = DistributedDataParallel(self.detector, ids) if world_size() > 1 else self.detector
        self.optimizer = make_optimizer(self.detector, training)
        self.data, self.training, self.device = data, training, device
        self.in_chans, self.workers = model.in_chans, workers
        pixels = (model.in_chans, model.mean, model.std)
        key = f"{model.digest} {pixels} {data.digest} {training!r} {world_size()} ranks"
        self.checkpoint = Checkpoint(checkpoint, key)
        self.step, self.losses, self.pending = 0, [], []  # pending: losses of the steps since the last mean

    def fit(self, every: float, progress: bool | str) -> None:
        steps, saved = self.training.schedule.steps, time.monotonic()
        with Progress(progress, steps, self.step) as shown:
            for batch in self._batches("training", self.step, steps):
                self.pending.append(self._learn(batch))
                self.step += 1
                if self.step % SHOWN == 0 or self.step == steps:
                    self.losses.append((self.step, sum(self.pending) / len(self.pending)))
                    self.pending = []
                shown.update(self.step, self.losses)
                ended = self.step == steps  # what follows, tests too, may be killed as well
                if ended or time.monotonic() - saved >= every:
                    self.save()
                    saved = time.monotonic()

    def settle(self) -> None:
        """Precise batch norm at the last step."""
        schedule = self.training.schedule
        many = min(schedule.precise, len(self.data) // schedule.batch_size)
        steps = count(schedule.steps)

        def forward(batch: Any) -> None:
            seed_step(self.training.seed, next(steps), self.device)
            self._losses(batch)

        precise_batch_norm(self.detector, forward, self._batches("precise", 0, many))

    def save(self) -> None:
        """Only rank 0 writes: the others have the same state."""
        if rank() == 0:
            state = {"step": self.step, "losses": self.losses, "pending": self.pending}
            state |= {"detector": self.detector.state_dict(), "optimizer": self.optimizer.state_dict()}
            self.checkpoint.save(state)

    def restore(self) -> None:
        """Go on from the checkpoint, if there is one."""
        state, refused = None, None
        try:
            state = self.checkpoint.load()
        except UserError as error:  # raised once all ranks know: they would wait for this one
            refused = error
        found = -1 if refused else state["step"] if state else 0
        if not same_on_all_ranks(found, self.device):
            where = f"the processes found different checkpoints in {self.checkpoint.path}"
            raise refused or UserError(f"{where}: all machines must share that folder")
        if refused:
            raise refused
        if state:
            self.detector.load_state_dict(state["detector"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.losses = [tuple(pair) for pair in state["losses"]]
            self.step, self.pending = state["step"], state["pending"]

    def _learn(self, batch: Any) -> float:
        """One step; gives the sum of the losses."""
        for group in self.optimizer.param_groups:
            group["lr"] = group["start"] * self.training.schedule.factor(self.step)
        seed_step(self.training.seed, self.step, self.device)
        loss = self._losses(batch)
        # torchvision waits for the device many times a step, so that looking at every loss costs nothing more
        if not math.isfinite(value := loss.item()):
            schedule = self.training.schedule
            raise UserError(f"the loss became NaN or infinite at step {self.step + 1}: lower lr={schedule.lr:g}")
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return value

    def _losses(self, batch: Any) -> torch.Tensor:
        return sum(self.net(*batch).values())

    def _batches(self, purpose: str, first: int, last: int) -> Iterator[Any]:
        training = self.training
        return training_batches(
            self.data,
            self.in_chans,
            self.device,
            batch_size=training.schedule.batch_size,
            seed=seed_of(purpose, training.seed) % 2**32,
            first=first,
            last=last,
            rank=rank(),
            world=world_size(),
            workers=self.workers,
        )


def make_optimizer(detector: nn.Module, training: Training) -> torch.optim.Optimizer:
    """The schedule's optimizer: SGD of momentum 0.9, or AdamW.

    Where the schedule says SGD a ViT gets AdamW with ViTDet's rate and decay, in proportion to the batch; ViTDet's
    lower rates of early blocks and its drop path are left out. No decay of norm layers, nor of a ViT's positions and
    class token. Each group keeps its rate in "start".
    """
    undecayed = {id(p) for m in detector.modules() if _is_norm(m) for p in m.parameters(recurse=False)}
    undecayed |= {id(p) for name, p in detector.named_parameters() if name.endswith(UNDECAYED)}
    tuned = [p for p in detector.parameters() if p.requires_grad]
    schedule, lr, decay = training.schedule, training.schedule.lr, training.schedule.weight_decay
    vit = training.arch == "vit_pyramid" and schedule.optimizer == "sgd"
    if vit:
        lr, decay = VIT_LR * lr / 0.02, VIT_DECAY
    groups = [
        {"params": [p for p in tuned if id(p) not in undecayed], "weight_decay": decay, "lr": lr, "start": lr},
        {"params": [p for p in tuned if id(p) in undecayed], "weight_decay": 0.0, "lr": lr, "start": lr},
    ]
    groups = [group for group in groups if group["params"]]
    adamw = vit or schedule.optimizer == "adamw"
    return torch.optim.AdamW(groups) if adamw else torch.optim.SGD(groups, momentum=0.9)


def seed_step(seed: int, step: int, device: torch.device) -> None:
    """PyTorch's global generators, from which torchvision draws sizes, anchors and regions, for one step."""
    own = seed_of("detection", seed, step, rank())
    torch.default_generator.manual_seed(own)
    if device.type == "cuda":
        torch.cuda.manual_seed(own)


@contextmanager
def _randomness(device: torch.device) -> Iterator[None]:
    """PyTorch's global generators are put back afterwards."""
    cuda = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
    with cuda, torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield


def _is_norm(module: nn.Module) -> bool:
    return isinstance(module, (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm))
