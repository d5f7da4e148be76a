"""Train a classifier of clips: SGD along a cosine, on the loop of all fine-tuning."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from evaluation.tasks.action.classifier import normalize, trained_part
from evaluation.tasks.action.reading import Schedule, TrainingClips
from evaluation.tasks.action.recipes import Recipe
from evaluation.tuning.checkpoint import Checkpoint
from evaluation.tuning.loop import State, Training, dropout_seed, fit
from evaluation.tuning.optimizers import groups_by_decay, make_optimizer
from sslkit.data.loader import load_batches, plain_errors, workers_for
from sslkit.data.views.augmentation import augment, view_generator
from sslkit.models.model import Model
from sslkit.numerics.schedules import cosine
from sslkit.runtime.context import Runtime
from sslkit.runtime.distributed import rank, world_size


def rate_factor(recipe: Recipe, epoch: float) -> float:
    """Return the factor of the learning rate after `epoch` epochs: a cosine to 0, in the warm-up a line up to it."""
    factor = cosine(max(epoch, recipe.warmup), recipe.epochs)
    return factor * epoch / recipe.warmup if epoch < recipe.warmup else factor


def clip_optimizer(part: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Return SGD with Nesterov momentum 0.9, without weight decay of norm layers."""
    return make_optimizer("sgd", groups_by_decay(part, recipe.lr, recipe.weight_decay))


def train(
    net: nn.Sequential,
    model: Model,
    clips: TrainingClips,
    recipe: Recipe,
    runtime: Runtime,
    checkpoint: Checkpoint | None,
) -> State:
    """Train `learned(net)` in place to the recipe's last epoch; see `loop.fit`.

    net: of `build_classifier`. Returns the state: the mean loss of each epoch, and in `notes` the paths of videos that
    could not be read. In a process group the ranks share every batch.
    Raises Diverged when the loss is NaN or infinite, UserError for a checkpoint that is damaged or of another run.
    """
    state, trained = State(), trained_part(net)
    batch_size, seed = min(recipe.batch_size, len(clips)), runtime.seed
    per_epoch = len(clips) // batch_size
    schedule = {"films": len(clips), "batch_size": batch_size, "epochs": recipe.epochs, "seed": seed}

    def loss(tuned: nn.Module, batch: dict[str, Any], step: int) -> Tensor:
        state.notes += [path for path in batch["bad"] if path not in state.notes]
        pixels, label = (batch[name].to(runtime.device, non_blocking=True) for name in ("clips", "label"))
        return F.cross_entropy(tuned(_augment(pixels, model, recipe, seed, divmod(step, per_epoch))), label)

    training = Training(
        net.to(runtime.device).train(),
        clip_optimizer(trained, recipe),
        steps=recipe.epochs * per_epoch,
        rate=lambda step: rate_factor(recipe, step / per_epoch),
        batches=lambda first: _batches(clips, Schedule(**schedule, first=first), runtime),
        loss=loss,
        seed_at=lambda step: dropout_seed(seed, step),
        saved=trained,
        precision=runtime.precision,
        period=per_epoch,
    )
    fit(training, state=state, checkpoint=checkpoint, progress=runtime.progress)
    net.eval()
    return state


def _augment(pixels: Tensor, model: Model, recipe: Recipe, seed: int, at: tuple[int, int]) -> Tensor:
    """One normalised view of each clip (B, C, T, S, S) uint8. at: the epoch and its step."""
    drawn, ranks = view_generator(seed, *at), {"rank": rank(), "world_size": world_size()}
    (views,) = augment(pixels[:, None], recipe.view, pixels.shape[-1], drawn, **ranks)
    return normalize(views, model)


def _batches(clips: TrainingClips, schedule: Schedule, runtime: Runtime) -> Iterator[dict[str, Any]]:
    device = runtime.device.type
    count = min(workers_for(clips, runtime.workers, 1, device), len(schedule))
    return plain_errors(load_batches(clips, schedule, count, device=device, seed=runtime.seed))
