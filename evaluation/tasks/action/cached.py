"""The linear protocol's variant for small sets: clips pass the frozen backbone once, without augmentation."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from evaluation.results.statistics import generator
from evaluation.tasks.action.reading import Schedule
from evaluation.tasks.action.recipes import Recipe
from evaluation.tasks.action.training import clip_optimizer, rate_factor
from evaluation.tuning.checkpoint import Checkpoint
from evaluation.tuning.loop import State, Training, dropout_seed, fit
from sslkit.runtime.context import Runtime


def train_head(
    net: nn.Sequential,
    features: Sequence[Tensor],
    y: np.ndarray,
    recipe: Recipe,
    runtime: Runtime,
    checkpoint: Checkpoint | None,
) -> State:
    """Train net.head, behind net.dropout, on features of N videos, of which each step takes one view; see `loop.fit`.

    features: N tensors (V, width), V from 1 on. y: (N,) int64. The view of a video in an epoch depends on (seed, epoch)
    alone, dropout on (seed, step). Returns the state with the mean loss of each epoch. Raises Diverged.
    """
    learner = nn.Sequential(net.dropout, net.head).to(runtime.device)
    label, seed = torch.from_numpy(y).to(runtime.device), runtime.seed
    schedule = Schedule(len(features), recipe.batch_size, recipe.epochs, seed)
    per_epoch = schedule.per_epoch

    def batches(first: int) -> Iterator[tuple[Tensor, Tensor]]:
        for keys in Schedule(len(features), recipe.batch_size, recipe.epochs, seed, first):
            drawn = generator(seed, f"cached view {keys[0][0]}").random(len(features))
            rows = [row for _, row in keys]
            shown = [features[row][math.floor(drawn[row] * len(features[row]))] for row in rows]
            yield torch.stack(shown).to(runtime.device), label[rows]

    training = Training(
        learner.train(),
        clip_optimizer(net.head, recipe),
        steps=schedule.steps,
        rate=lambda step: rate_factor(recipe, step / per_epoch),
        batches=batches,
        loss=lambda tuned, batch, step: F.cross_entropy(tuned(batch[0]), batch[1]),
        seed_at=lambda step: dropout_seed(seed, step),
        period=per_epoch,
    )
    state = fit(training, checkpoint=checkpoint, progress=runtime.progress)
    learner.eval()
    return state
