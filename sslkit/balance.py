"""The share of each regulariser in what a network learns, and the factor that keeps it at its `balance`.

The share is |g_regulariser| / |g_objective|, of gradients with respect to the weights of the backbone's last layer.
GradNorm (Chen et al. 2018, arXiv 1711.02257) balances tasks by the same norms, at the last shared layer.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn

from sslkit import distributed
from sslkit.embeddings import wide
from sslkit.layers import norm_statistics
from sslkit.regularizers.base import Regularizer

EVERY = 64  # steps between two measurements; in the first of them also at 2, 4, 8, 16, 32
KEPT = 0.5  # of a running mean, at each measurement
SWAMPED = 30.0  # share from which the objective hardly counts
TRIED = 8  # layers from the last one on, to find one that the objective trains
HALF_SCALE = 1024.0  # of losses whose gradient passes fp16, which holds nothing below 6e-8
NONE = float("inf")  # a share before its first measurement


class Shares:
    """Measures the shares of a method's regularisers every `EVERY` steps, over the images of all ranks.

    A measurement takes the gradients of the objective's loss and of each regulariser's from their heads to the last
    layer of the backbone, without its other layers.

    plugins: the regularisers by name; the `balance` of one is None if its terms are left as they are, and after
        `balance_until` of the run its factor is kept: from there on its share falls as its term is learned.
    logs: running means of the logarithm of the shares without factor, by name; infinite before the first measurement. A
        measurement in which one of the norms is zero or not finite is left out.
    steps: training steps so far. progress: finished share of the run, 0 to 1.
    watched: the last measurement, {"NAME/share": at the last layer, "NAME/share_h": at the backbone's output}, and
        {"NAME/factor"} of those with a balance. The output is known only for objectives that call the backbone whole.
    """

    def __init__(self, plugins: Mapping[str, Regularizer]) -> None:
        self.plugins = dict(plugins)
        self.logs = {name: torch.tensor(NONE, dtype=torch.float64) for name in plugins}
        self.steps = 0
        self.progress = 0.0
        self.watched: dict[str, Tensor] = {}
        self._warned: set[str] = set()
        self._layer: Tensor | None = None

    @property
    def due(self) -> bool:
        """Return whether the next step is measured."""
        early = 2 <= self.steps < EVERY and self.steps & (self.steps - 1) == 0
        return bool(self.plugins) and (early or self.steps % EVERY == 0)

    def measure(
        self, objective: Tensor, plugins: Mapping[str, Tensor], backbone: nn.Module, outputs: Sequence[Tensor]
    ) -> None:
        """Measure one step; all ranks must call this.

        objective, plugins: the losses of the step, without factors. outputs: of the backbone in this step, may be none.
        """
        self.watched = {}
        device = objective.device.type
        scale = HALF_SCALE if _is_fp16(device) else 1.0
        # A backward pass runs without autocast; recomputed activations would update statistics again.
        with torch.autocast(device, enabled=False), norm_statistics.kept(backbone):
            if self._layer is None:
                self._layer = _last_trained(objective, backbone)
            own = _norms(objective, self._layer, outputs, scale)
            for name, loss in plugins.items():
                self._note(name, own, _norms(loss, self._layer, outputs, scale))
        if self.steps and self.steps % EVERY == 0:  # a check synchronises with a GPU
            self._warn()

    def factor(self, name: str) -> Tensor | float:
        """What the regulariser's terms are multiplied by; 1 without a balance and before the first measurement."""
        balance, log = self.plugins[name].balance, self.logs[name]
        return 1.0 if balance is None else torch.where(log.isinf(), 1.0, balance * (-log).exp()).float()

    @torch.no_grad()
    def _note(self, name: str, objective: Mapping[str, Tensor], plugin: Mapping[str, Tensor]) -> None:
        """objective, plugin: norms by place, see `_norms`."""
        for place, norm in objective.items():
            self.watched[f"{name}/{place}"] = plugin[place] / norm
        if "share" in objective:
            log = (plugin["share"].double() / objective["share"].double()).log()
            before = self.logs[name] = self.logs[name].to(log.device)
            kept = 1.0 if self.progress > self.plugins[name].balance_until else KEPT
            mean = torch.where(before.isinf(), log, kept * before + (1 - kept) * log)
            self.logs[name] = torch.where(log.isfinite(), mean, before)
        factor = self.factor(name)
        for place in objective:
            self.watched[f"{name}/{place}"] *= factor
        if self.plugins[name].balance is not None:
            self.watched[f"{name}/factor"] = torch.as_tensor(factor)

    def _warn(self) -> None:
        """Warn once of each regulariser that swamps the objective."""
        for name, log in self.logs.items():
            share = float(self.factor(name) * log.exp())
            if share > SWAMPED and name not in self._warned and distributed.rank() == 0:
                self._warned.add(name)
                warnings.warn(
                    f"the gradient of {name} is {share:,.0f} times the objective's: the network learns almost only "
                    f"from {name}; method.{name}.balance=1 makes the two equal",
                    stacklevel=2,
                )

    def state(self) -> list[float]:
        """The number of steps and the running means, to continue from."""
        return [float(self.steps), *(log.item() for log in self.logs.values())]

    def restore(self, state: Sequence[float]) -> None:
        """state: from `state`; an empty one, of a run from before there were shares, changes nothing."""
        if len(state) == 1 + len(self.logs):
            self.steps = int(state[0])
            for name, log in zip(self.logs, state[1:], strict=True):
                self.logs[name] = torch.tensor(log, dtype=torch.float64)


@contextmanager
def outputs_of(backbone: nn.Module) -> Iterator[list[Tensor]]:
    """The tensors that a backbone returns inside the context."""
    found: list[Tensor] = []
    handle = backbone.register_forward_hook(lambda module, given, output: found.append(output))
    try:
        yield found
    finally:
        handle.remove()


def _last_trained(loss: Tensor, backbone: nn.Module) -> Tensor | None:
    """The weights of the last layer of a backbone, in the order of its modules, that a loss trains."""
    layers = [p for p in backbone.parameters() if p.requires_grad and p.dim() > 1]
    for weight in reversed(layers[-TRIED:] if loss.requires_grad else []):
        (grad,) = torch.autograd.grad(loss, weight, retain_graph=True, allow_unused=True)
        if grad is not None:
            return weight
    return None


def _norms(loss: Tensor, weight: Tensor | None, outputs: Sequence[Tensor], scale: float) -> dict[str, Tensor]:
    """Norms of the gradient of the ranks' mean loss, by place: "share", the weight's, and "share_h", the outputs'.

    Places that there are not are left out. scale: of the loss in between.
    """
    places = [p for p in (weight, *outputs) if p is not None and p.requires_grad]
    found: Sequence[Tensor | None] = [None] * len(places)
    if loss.requires_grad and places:
        found = torch.autograd.grad(loss * scale, places, retain_graph=True, allow_unused=True)
    grads = [torch.zeros_like(p) if g is None else g for p, g in zip(places, found, strict=True)]
    norms, world = {}, distributed.world_size()
    if weight is not None:
        norms["share"] = _summed(wide(grads.pop(0))).norm() / (world * scale)
    if grads:
        squares = _summed(torch.stack([wide(g).square().sum() for g in grads]).sum())
        norms["share_h"] = squares.sqrt() / (world * scale)
    return norms


def _summed(x: Tensor) -> Tensor:
    """The sum of x over the ranks, in place."""
    if distributed.world_size() > 1:
        dist.all_reduce(x)
    return x


def _is_fp16(device_type: str) -> bool:
    return torch.is_autocast_enabled(device_type) and torch.get_autocast_dtype(device_type) is torch.float16
