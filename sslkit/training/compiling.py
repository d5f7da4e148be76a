"""`trainer.compile=true`: the network compiled in the training steps, and as it is everywhere else.

The names of its tensors do not change, so that checkpoints with and without it are the same.
"""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from sslkit.backbones.base import Backbone
from sslkit.errors import UserError, first_line
from sslkit.runtime.loop import Hook, Loop

BACKEND = "inductor"


class Compiled(Hook):
    """Puts compiled functions into the networks, student's and teacher's, at the start of each epoch, and removes
    them at its end: kNN and probe run on batches of other sizes, each of which would be compiled again.
    """

    def __init__(self) -> None:
        self.functions: list[tuple[nn.Module, str, Callable[..., Any]]] = []

    def epoch_begin(self, loop: Loop) -> None:
        if not self.functions:
            found = dict.fromkeys(
                part for body in loop.module.modules() if isinstance(body, Backbone) for part in parts(body)
            )
            self.functions = [
                (owner, name, torch.compile(getattr(owner, name), backend=BACKEND, dynamic=False))
                for owner, name in found
            ]
        self._insert()

    def batch_begin(self, loop: Loop) -> None:
        if loop.module.method.shares.due:
            self._remove()

    def batch_end(self, loop: Loop, outputs: Any, batch: Any) -> None:
        self._insert()

    def epoch_end(self, loop: Loop) -> None:
        self._remove()

    def _insert(self) -> None:
        for owner, name, function in self.functions:
            setattr(owner, name, function)

    def _remove(self) -> None:
        for owner, name, _ in self.functions:
            delattr(owner, name)


def parts(body: Backbone) -> Iterator[tuple[nn.Module, str]]:
    """Yield what is compiled of a network, as modules and the names of their functions.

    Of a ViT each block, since objectives run them on a part of the patches too; of another timm network
    `forward_features`, which objectives on maps call too; otherwise `forward`.
    """
    if body.is_vit:
        yield from ((block, "forward") for block in body.net.blocks)
    else:
        yield body.net, "forward_features" if hasattr(body.net, "forward_features") else "forward"


def check(device: torch.device) -> None:
    """Compile a small function. Raises UserError where that fails, as without a C++ compiler."""
    from torch._inductor import config

    try:
        with config.patch(force_disable_caches=True), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of caches that are not used
            torch.compile(_probe, backend=BACKEND)(torch.ones(8, device=device))
    except Exception as error:  # of torch's compiler, of triton's, or of the system's
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [first_line(error)]
        raise UserError(
            f"trainer.compile=true cannot compile here ({lines[0]}): install a C++ compiler such as g++, or "
            "leave it out"
        ) from error


def _probe(x: Tensor) -> Tensor:
    return (2 * x + 1).sin()
