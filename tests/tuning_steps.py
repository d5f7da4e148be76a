"""A small network and the steps that train it, for tests of the loop of all fine-tuning."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from evaluation.tuning.loop import Training, dropout_seed
from evaluation.tuning.optimizers import make_optimizer

CPU = torch.device("cpu")
STEPS, PERIOD = 7, 3


def network(dropout: float = 0.5) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(dropout), nn.Linear(8, 3)).train()


def batches(first: int) -> Iterator[tuple[Tensor, Tensor]]:
    for step in range(first, STEPS):
        drawn = torch.Generator().manual_seed(step)
        yield torch.randn(6, 4, generator=drawn), torch.randint(3, (6,), generator=drawn)


def training(net: nn.Module, **changed) -> Training:
    group = {"params": list(net.parameters()), "lr": 0.1, "weight_decay": 0.01}
    given = {
        "optimizer": make_optimizer("adamw", [group]),
        "steps": STEPS,
        "rate": lambda step: 1 - step / STEPS,
        "batches": batches,
        "loss": lambda tuned, batch, step: F.cross_entropy(tuned(batch[0]), batch[1]),
        "seed_at": lambda step: dropout_seed(5, step),
        "period": PERIOD,
        "check": 2,
    }
    return Training(net, **{**given, **changed})
