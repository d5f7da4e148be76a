"""The linear protocol's variant for small sets: clips pass the frozen backbone once, without augmentation."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from evaluation.protocols.action.reading import Schedule
from evaluation.protocols.action.recipes import Recipe
from evaluation.protocols.action.training import RunOptions, descend, make_optimizer, own_randomness, set_rate
from evaluation.results.statistics import generator
from evaluation.tuning.loop import Diverged


def train_head(
    net: nn.Sequential, features: Sequence[Tensor], y: np.ndarray, recipe: Recipe, options: RunOptions
) -> list[float]:
    """Train net.head, behind net.dropout, on features of N films, of which each step takes one view.

    features: N tensors (V, width), V from 1 on. y: (N,) int64. Which view of a film an epoch shows depends on (seed,
    epoch) alone, what dropout hides on (seed, step). Returns the mean loss of each epoch. Raises Diverged.
    """
    learner = nn.Sequential(net.dropout, net.head).to(options.device).train()
    optimizer = make_optimizer(net.head, recipe)
    schedule = Schedule(len(features), recipe.batch_size, recipe.epochs, options.seed)
    label, losses, total = torch.from_numpy(y).to(options.device), [], 0.0
    for step, keys in enumerate(schedule):
        epoch, rows = step // schedule.per_epoch, [row for _, row in keys]
        if step % schedule.per_epoch == 0:
            drawn = generator(options.seed, f"cached view {epoch}").random(len(features))
        shown = torch.stack([features[row][math.floor(drawn[row] * len(features[row]))] for row in rows])
        set_rate(optimizer, recipe, step / schedule.per_epoch)
        with own_randomness(options, step):
            scores = learner(shown.to(options.device))
        total += descend(optimizer, scores, label[rows]).item()
        if (step + 1) % schedule.per_epoch == 0:
            losses.append(total / schedule.per_epoch)
            total = 0.0
    if not np.isfinite(losses).all():
        raise Diverged("the loss became NaN or infinite")
    learner.eval()
    return losses
