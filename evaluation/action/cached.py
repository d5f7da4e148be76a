"""The linear protocol's variant for small sets: clips pass the frozen backbone once, without augmentation."""

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from evaluation.action.reading import Schedule
from evaluation.action.recipes import Recipe
from evaluation.action.training import How, make_optimizer, rate_factor
from evaluation.statistics import generator
from evaluation.tuning import Diverged


def train_head(net: nn.Sequential, features: Sequence[Tensor], y: np.ndarray, recipe: Recipe, how: How) -> list[float]:
    """Train net.head on features of N films, of which each step takes one view; gives the mean loss of each epoch.

    features: N tensors (V, width), V from 1 on. y: (N,) int64. Which view of a film an epoch shows depends on (seed,
    epoch) alone. Raises Diverged.
    """
    head = net.head.to(how.device).train()
    optimizer = make_optimizer(head, recipe)
    schedule = Schedule(len(features), recipe.batch_size, recipe.epochs, how.seed)
    target, losses, total = torch.from_numpy(y).to(how.device), [], 0.0
    for step, keys in enumerate(schedule):
        epoch, rows = step // schedule.per_epoch, [row for _, row in keys]
        if step % schedule.per_epoch == 0:
            drawn = generator(how.seed, f"cached view {epoch}").random(len(features))
        shown = torch.stack([features[row][math.floor(drawn[row] * len(features[row]))] for row in rows])
        for group in optimizer.param_groups:
            group["lr"] = recipe.lr * rate_factor(recipe, step / schedule.per_epoch)
        loss = F.cross_entropy(head(shown.to(how.device)), target[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        if (step + 1) % schedule.per_epoch == 0:
            losses.append(total / schedule.per_epoch)
            total = 0.0
    if not np.isfinite(losses).all():
        raise Diverged("the loss became NaN or infinite")
    head.eval()
    return losses
