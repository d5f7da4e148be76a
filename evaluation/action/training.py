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

from evaluation.action.classifier import learned, normalize
from evaluation.action.reading import Schedule, TrainingClips
from evaluation.action.recipes import Recipe
from evaluation.models import LoadedModel
from evaluation.tuning import Diverged, autocast
from sslkit.data.clip_views import augment_clips
from sslkit.data.loader import without_traceback, workers_for
from sslkit.data.sources import collate
from sslkit.data.views import view_generator
from sslkit.errors import UserError
from sslkit.zoo import write_whole

CHECK = 20  # steps between two looks at the loss, each of which waits for the device
SAVE_SECONDS = 300.0  # between two checkpoints


@dataclass(frozen=True)
class How:
    """Where and how a training runs; none of it but `precision` and `seed` changes what is learned.

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
    bad: films that could not be read.
    """

    step: int = 0
    losses: list[float] = field(default_factory=list)
    total: Tensor | None = None
    bad: list[str] = field(default_factory=list)
    mean: float = math.nan


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
    net: nn.Sequential, model: LoadedModel, clips: TrainingClips, recipe: Recipe, how: How, checkpoint: Path | None
) -> State:
    """Train `learned(net)` in place to the recipe's last epoch; gives the losses and the films that could not be read.

    net: see `build_classifier`. checkpoint: a file that is written now and then and at the end; where it is there
    already, training goes on from it, and ends with the weights that it would have had without the stop. None: no file.
    Raises Diverged when the loss is NaN or infinite, UserError for a checkpoint that is damaged.
    """
    net.to(how.device)
    optimizer = make_optimizer(learned(net), recipe)
    state = load(checkpoint, net, optimizer) if checkpoint and checkpoint.is_file() else State()
    schedule = Schedule(len(clips), recipe.batch_size, recipe.epochs, how.seed, state.step)
    saved = time.monotonic()
    net.train()
    for batch in _feed(clips, schedule, state, how):
        loss = _step(net, model, optimizer, batch, recipe, how, schedule.per_epoch, state.step)
        _note(state, loss, batch, schedule.per_epoch)
        if checkpoint and time.monotonic() - saved >= how.save_seconds:
            save(checkpoint, net, optimizer, state)
            saved = time.monotonic()
    if checkpoint and len(schedule):
        save(checkpoint, net, optimizer, state)
    net.eval()
    return state


def _step(
    net: nn.Sequential,
    model: LoadedModel,
    optimizer: torch.optim.Optimizer,
    batch: dict[str, Any],
    recipe: Recipe,
    how: How,
    per_epoch: int,
    step: int,
) -> Tensor:
    """One step of the optimizer; the loss, detached."""
    epoch, within = divmod(step, per_epoch)
    clips = batch["clips"].to(how.device, non_blocking=True)
    target = batch["label"].to(how.device, non_blocking=True)
    drawn = view_generator(how.seed, epoch, within)
    (views,) = augment_clips(clips[:, None], recipe.view, clips.shape[-1], drawn)
    for group in optimizer.param_groups:
        group["lr"] = recipe.lr * rate_factor(recipe, step / per_epoch)
    with _own_randomness(how.seed, step, how.device), autocast(how.precision, how.device):
        scores = net(normalize(views, model))
    loss = F.cross_entropy(scores.float(), target)
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


def _feed(clips: TrainingClips, schedule: Schedule, state: State, how: How) -> Iterator[dict[str, Any]]:
    """The batches that are left, with a bar that says the last epoch's loss and the share of time spent waiting."""
    loader = DataLoader(
        clips,
        batch_sampler=schedule,
        collate_fn=collate,
        num_workers=min(workers_for(clips, how.workers, 1), len(schedule)),
        pin_memory=how.device.type == "cuda",
        generator=torch.Generator().manual_seed(how.seed),
    )
    start, waited = time.perf_counter(), 0.0
    hidden = None if how.progress else True
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
def _own_randomness(seed: int, step: int, device: torch.device) -> Iterator[None]:
    """PyTorch's global generators, which dropout draws from, as a function of (seed, step); put back afterwards."""
    own = int.from_bytes(hashlib.blake2b(f"dropout {seed} {step}".encode(), digest_size=7).digest(), "little")
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(own)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(own)
        yield


def save(path: Path, net: nn.Sequential, optimizer: torch.optim.Optimizer, state: State) -> None:
    """Write a checkpoint, whole or not at all."""
    content = {
        "weights": learned(net).state_dict(),
        "optimizer": optimizer.state_dict(),
        "step": state.step,
        "losses": state.losses,
        "total": state.total,
        "bad": state.bad,
    }
    with write_whole(path) as partial:
        torch.save(content, partial)


def load(path: Path, net: nn.Sequential, optimizer: torch.optim.Optimizer) -> State:
    """Take up a checkpoint. Raises UserError for one that is damaged or of another network; no pickle is executed."""
    try:
        content = torch.load(path, map_location=next(net.parameters()).device, weights_only=True)
        learned(net).load_state_dict(content["weights"])
        optimizer.load_state_dict(content["optimizer"])
        return State(content["step"], content["losses"], content["total"], content["bad"])
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{path} is no checkpoint of this training ({reason}): remove it to begin anew") from error
