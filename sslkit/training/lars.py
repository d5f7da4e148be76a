"""LARS: a rate for each matrix and kernel by its size (You, Gitman & Ginsburg 2017, arXiv 1708.03888, algorithm 1)."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

TRUST = 0.001  # eta of the paper
EPS = 1e-8  # as in lightly's


class LARS(torch.optim.Optimizer):
    """SGD with momentum whose steps of matrices and kernels are scaled by TRUST |w| / (|gradient| + decay |w|).

    A matrix of zeros has the step of SGD, and one whose gradient is zero has no step. Groups of biases and norms, whose
    first parameter has one dimension, have neither the ratio nor weight decay, as in SimCLR and BYOL. No number is read
    from the device.
    params: parameters, or groups of them, each of one kind. lr, momentum, weight_decay: also by group.
    """

    def __init__(self, params: Iterable[Any], lr: float, *, momentum: float = 0.0, weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Move the weights. closure: computes the loss anew."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            if moved := [p for p in group["params"] if p.grad is not None]:
                self._step(moved, group)
        return loss

    def _step(self, weights: list[Tensor], group: Mapping[str, Any]) -> None:
        moves = [w.grad for w in weights]
        if weights[0].dim() > 1:
            moves = _scale(weights, moves, group["weight_decay"])
        if group["momentum"]:
            moves = self._with_momentum(weights, moves, group["momentum"])
        torch._foreach_add_(weights, moves, alpha=-group["lr"])

    def _with_momentum(self, weights: list[Tensor], moves: list[Tensor], momentum: float) -> list[Tensor]:
        """The moves plus `momentum` times those before, which are kept."""
        states = [self.state[w] for w in weights]
        begun = [i for i, state in enumerate(states) if "momentum_buffer" in state]
        before = [states[i]["momentum_buffer"] for i in begun]
        if before:
            torch._foreach_mul_(before, momentum)
            torch._foreach_add_(before, [moves[i] for i in begun])
        for state, move in zip(states, moves, strict=True):
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = move.clone()
        return [state["momentum_buffer"] for state in states]


def _scale(weights: list[Tensor], gradients: list[Tensor], decay: float) -> list[Tensor]:
    """The gradients plus `decay` times the weights, by the ratio of their norms."""
    size, slope = (torch.stack(torch._foreach_norm(tensors)) for tensors in (weights, gradients))
    ratio = TRUST * (size / (slope + size * decay + EPS))
    ratio = torch.where(size == 0, 1.0, torch.where(slope == 0, 0.0, ratio))
    moves = torch._foreach_add(gradients, weights, alpha=decay)
    torch._foreach_mul_(moves, ratio.unbind())
    return moves
