"""Training a classifier of clips: SGD, a cosine, and checkpoints that it goes on from exactly."""

import hashlib
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader
from tqdm import tqdm

from evaluation.features.models import LoadedModel
from evaluation.protocols.action.classifier import learned, normalize
from evaluation.protocols.action.reading import Schedule, TrainingClips
from evaluation.protocols.action.recipes import Recipe
from evaluation.tuning.loop import Diverged, autocast
from sslkit import sealed
from sslkit.data.clip_views import augment_clips
from sslkit.data.loader import without_traceback, workers_for
from sslkit.data.sources import collate
from sslkit.data.views import view_generator
from sslkit.errors import UserError
from sslkit.files import write_whole

CHECK = 20  # steps between two looks at the loss, each of which waits for the device
SAVE_SECONDS = 300.0  # between two checkpoints


@dataclass(frozen=True)
class RunOptions:
    """Where and how a training and its test run; none of it but `precision` and `seed` changes what is learned.

    precision: "float32", or "bfloat16" autocast. seed: of order, clips, crops, colours, dropout and the head's start.
    workers: processes that decode, see `sslkit.data.loader.make_loader`. save_seconds: between two checkpoints, 0 for
    one after every step. progress: bars.
    """

    device: torch.device
    precision: str = "float32"
    seed: int = 0
    workers: int | str = "auto"
    save_seconds: float = SAVE_SECONDS
    progress: bool = True


@dataclass
class State:
    """How far a training is.

    losses: the mean of each epoch. total: the sum in the epoch that is under way; mean: as it was last looked at.
    bad: films that could not be read. seconds: that went into the checkpoint it was taken up from.
    """

    step: int = 0
    losses: list[float] = field(default_factory=list)
    total: Tensor | None = None
    bad: list[str] = field(default_factory=list)
    mean: float = math.nan
    seconds: float = 0.0


def rate_factor(recipe: Recipe, epoch: float) -> float:
    """Of the learning rate when so many epochs are done: a cosine to 0, and a straight line to it during warm-up."""
    reached = max(epoch, recipe.warmup)
    factor = (1 + math.cos(math.pi * reached / recipe.epochs)) / 2
    return factor * epoch / recipe.warmup if epoch < recipe.warmup else factor


def make_optimizer(part: nn.Module, recipe: Recipe) -> torch.optim.SGD:
    """SGD with Nesterov momentum 0.9; what batch normalisation learns is not decayed."""
    norms = [
        p for layer in part.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm) for p in layer.parameters()
    ]
    own = {id(p) for p in norms}
    others = [p for p in part.parameters() if id(p) not in own]
    groups = [{"params": others, "weight_decay": recipe.weight_decay}]
    groups += [{"params": norms, "weight_decay": 0.0}] if norms else []
    return torch.optim.SGD(groups, lr=recipe.lr, momentum=0.9, nesterov=True)


def train(
    net: nn.Sequential,
    model: LoadedModel,
    clips: TrainingClips,
    recipe: Recipe,
    options: RunOptions,
    checkpoint: Path | None,
) -> State:
    """Train `learned(net)` in place to the recipe's last epoch; gives the losses and the films that could not be read.

    net: see `build_classifier`. checkpoint: a file that is written now and then and at the end; where it is there
    already, training goes on from it, and ends with the weights that it would have had without the stop. None: no file.
    Raises Diverged when the loss is NaN or infinite, UserError for a checkpoint that is damaged.
    """
    net.to(options.device)
    optimizer = make_optimizer(learned(net), recipe)
    state = load(checkpoint, net, optimizer) if checkpoint and checkpoint.is_file() else State()
    schedule = Schedule(len(clips), recipe.batch_size, recipe.epochs, options.seed, state.step)
    started = saved = time.monotonic()
    net.train()
    for batch in _feed(clips, schedule, state, options):
        drawn = view_generator(options.seed, *divmod(state.step, schedule.per_epoch))
        clip_views = _augmented(batch["clips"].to(options.device, non_blocking=True), model, recipe, drawn)
        set_rate(optimizer, recipe, state.step / schedule.per_epoch)
        with own_randomness(options, state.step), autocast(options.precision, options.device):
            scores = net(clip_views)
        loss = descend(optimizer, scores, batch["label"].to(options.device, non_blocking=True))
        _note(state, loss, batch, schedule.per_epoch)
        if checkpoint and time.monotonic() - saved >= options.save_seconds:
            saved = time.monotonic()
            save(checkpoint, net, optimizer, state, saved - started)
    if checkpoint and len(schedule):
        save(checkpoint, net, optimizer, state, time.monotonic() - started)
    net.eval()
    return state


def _augmented(pixels: Tensor, model: LoadedModel, recipe: Recipe, drawn: torch.Generator) -> Tensor:
    """One view of each clip (B, C, T, S, S) uint8, as the network takes it."""
    (views,) = augment_clips(pixels[:, None], recipe.view, pixels.shape[-1], drawn)
    return normalize(views, model)


def set_rate(optimizer: torch.optim.Optimizer, recipe: Recipe, epoch: float) -> None:
    """The recipe's learning rate when so many epochs are done."""
    for group in optimizer.param_groups:
        group["lr"] = recipe.lr * rate_factor(recipe, epoch)


def descend(optimizer: torch.optim.Optimizer, scores: Tensor, label: Tensor) -> Tensor:
    """One step of the optimizer down the cross-entropy; the loss, detached. scores: (B, K). label: (B,) int64."""
    loss = F.cross_entropy(scores.float(), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def _note(state: State, loss: Tensor, batch: dict[str, Any], per_epoch: int) -> None:
    """Count the step. Raises Diverged; it is looked at every CHECK steps and at the end of each epoch."""
    state.total = loss if state.total is None else state.total + loss
    state.step += 1
    state.bad += [path for path in batch["bad"] if path not in state.bad]
    within = (state.step - 1) % per_epoch + 1
    if within < per_epoch and state.step % CHECK:
        return
    state.mean = float(state.total) / within
    if not math.isfinite(state.mean):
        raise Diverged(f"the loss became NaN or infinite by step {state.step}")
    if within == per_epoch:
        state.losses.append(state.mean)
        state.total = None


def _feed(clips: TrainingClips, schedule: Schedule, state: State, options: RunOptions) -> Iterator[dict[str, Any]]:
    """The batches that are left, with a bar that says the last epoch's loss and the share of time spent waiting."""
    loader = DataLoader(
        clips,
        batch_sampler=schedule,
        collate_fn=collate,
        num_workers=min(workers_for(clips, options.workers, 1), len(schedule)),
        pin_memory=options.device.type == "cuda",
        generator=torch.Generator().manual_seed(options.seed),
    )
    start, waited = time.perf_counter(), 0.0
    hidden = None if options.progress else True
    with tqdm(total=schedule.steps, initial=state.step, desc="training", leave=False, disable=hidden) as bar:
        batches = iter(loader)
        while True:
            asked = time.perf_counter()
            try:
                batch = next(batches, None)
            except UserError as error:
                raise without_traceback(error) from error
            if batch is None:
                return
            waited += time.perf_counter() - asked
            yield batch
            share = waited / (time.perf_counter() - start)
            bar.set_postfix(loss=f"{state.mean:.3f}", data=f"{share:.0%}", refresh=False)
            bar.update()


@contextmanager
def own_randomness(options: RunOptions, step: int) -> Iterator[None]:
    """PyTorch's global generators, which dropout draws from, as a function of (seed, step); put back afterwards."""
    seed, device = options.seed, options.device
    own = int.from_bytes(hashlib.blake2b(f"dropout {seed} {step}".encode(), digest_size=7).digest(), "little")
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(own)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(own)
        yield


def save(path: Path, net: nn.Sequential, optimizer: torch.optim.Optimizer, state: State, seconds: float) -> None:
    """Write a checkpoint, whole or not at all. seconds: since the training was begun or taken up."""
    content = {
        "weights": learned(net).state_dict(),
        "optimizer": optimizer.state_dict(),
        "step": state.step,
        "losses": state.losses,
        "total": state.total,
        "bad": state.bad,
        "seconds": state.seconds + seconds,
    }
    with write_whole(path) as partial:
        torch.save(content, partial)
        sealed.seal(partial)


def load(path: Path, net: nn.Sequential, optimizer: torch.optim.Optimizer) -> State:
    """Take up a checkpoint. Raises UserError for one that is damaged or of another network; no pickle is executed."""
    if fault := sealed.damage(path):
        raise UserError(f"{path} {fault}: remove it to begin anew")
    try:
        content = torch.load(path, map_location=next(net.parameters()).device, weights_only=True)
        learned(net).load_state_dict(content["weights"])
        optimizer.load_state_dict(content["optimizer"])
        names = ("step", "losses", "total", "bad", "seconds")
        return State(**{name: content[name] for name in names})
    except Exception as error:
        reason = sealed.first_line(error)
        raise UserError(f"{path} is no checkpoint of this training ({reason}): remove it to begin anew") from error
