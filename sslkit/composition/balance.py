"""The share of each regulariser in what a network learns, and the factor that keeps it at its `balance`.

The share is the ratio |g_regulariser| / |g_objective| of the gradients with respect to the weights of the backbone's
last layer. GradNorm (Chen et al. 2018, arXiv 1711.02257) balances tasks by the same norms, at the last shared layer.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sslkit.embeddings import wide
from sslkit.regularizers.base import Regularizer
from sslkit.runtime import distributed
from sslkit.runtime.device import Late, to_device_of
from sslkit.runtime.hardware import statistics_kept
from sslkit.terminal import say

# steps between two measurements: each costs two passes of one layer; in the first of them also at 2, 4, 8, 16, 32
EVERY = 64
# of a running mean, at each measurement: a round number; more is slower, less follows the noise of one batch
KEPT = 0.5
# share above which the objective hardly counts, a round number; step from which it is checked, as first steps differ
SWAMPED, CHECKED_FROM = 30.0, 16
TRIED = 8  # layers from the last one on, to find one that the objective trains: a round number
HALF_SCALE = 1024.0  # of losses whose gradient passes fp16, which holds nothing below 6e-8
UNKNOWN = float("inf")  # a logarithm before the first measurement


@dataclass
class Logs:
    """Running means of the logarithm of a regulariser's share without factor, infinite before the first measurement.

    share: of all measurements. balanced: of those until `balance_until`, which the factor is made of.
    """

    share: Tensor
    balanced: Tensor


class Shares:
    """Measures the shares of a method's regularisers every `EVERY` steps, over the images of all ranks.

    A measurement computes the gradients of the objective's loss and of each regulariser's for one layer of the
    backbone, the last in the order of its parameters that the objective trains; no other layer is passed.
    A measurement in which a norm is zero or not finite changes nothing.

    plugins: the regularisers by name; the `balance` of one is None if its terms are left as they are, and after
        `balance_until` of the run its factor is kept: from there on its share falls as its term is learned.
    steps: training steps so far. progress: finished share of the run, 0 to 1.
    watched: the last measurement, {"NAME/share": at the last layer, "NAME/share_h": at the backbone's output}, NaN if
        it failed, and {"NAME/factor"} of those with a balance. The output is known only for objectives that call the
        backbone whole.
    """

    def __init__(self, plugins: Mapping[str, Regularizer]) -> None:
        self.plugins = dict(plugins)
        self.logs = {name: Logs(torch.tensor(UNKNOWN), torch.tensor(UNKNOWN)) for name in plugins}
        self.steps = 0
        self.progress = 0.0
        self.watched: dict[str, Tensor] = {}
        self._said: set[str] = set()
        self._unchecked: tuple[list[str], Late] | None = None

    @property
    def due(self) -> bool:
        """Return whether the next step is measured."""
        early = 2 <= self.steps < EVERY and self.steps & (self.steps - 1) == 0
        return bool(self.plugins) and (early or self.steps % EVERY == 0)

    def measure(
        self, objective: Tensor, plugins: Mapping[str, Tensor], backbone: nn.Module, outputs: Sequence[Tensor]
    ) -> None:
        """Measure one step; all ranks must call this. A regulariser without a term in this step may be left out.

        objective, plugins: the losses of the step, without factors. outputs: of the backbone in this step, may be none.
        """
        self.watched = {}
        for logs in self.logs.values():
            logs.share, logs.balanced = to_device_of(logs.share, objective), to_device_of(logs.balanced, objective)
        device = objective.device.type
        is_fp16 = torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) is torch.float16
        scale = HALF_SCALE if is_fp16 else 1.0
        outputs = [out for out in outputs if out.requires_grad]
        # A backward pass runs without autocast; recomputed activations would update statistics again.
        with torch.autocast(device, enabled=False), statistics_kept(backbone):
            of_output = _output_norm(objective, outputs, scale) if outputs else None
            layers, of_layers = _last_layers(objective, backbone, scale)
            for name, loss in plugins.items():
                ratios = {"share_h": _output_norm(loss, outputs, scale) / of_output} if outputs else {}
                if layers:
                    ratios["share"] = _at_last_trained(_layer_norms(loss, layers, scale), of_layers)
                self._note(name, ratios)
        if self.steps >= CHECKED_FROM and plugins:
            shares = [self.factor(name) * self.logs[name].share.exp() for name in plugins]
            self._unchecked = list(plugins), Late(torch.stack(shares))
            if not objective.is_cuda:
                self.check()

    def factor(self, name: str) -> Tensor | float:
        """Return the factor of the regulariser's terms; 1 without a balance and before the first measurement.

        A factor that is kept is lowered where the share would grow above SWAMPED.
        """
        balance, logs = self.plugins[name].balance, self.logs[name]
        if balance is None:
            return 1.0
        measured, most = balance * (-logs.balanced).exp(), max(SWAMPED, balance) * (-logs.share).exp()
        return torch.where(logs.balanced.isinf(), 1.0, torch.minimum(measured, most))

    @torch.no_grad()
    def _note(self, name: str, ratios: Mapping[str, Tensor]) -> None:
        """ratios: of the norms, without factor, by place."""
        if "share" in ratios:
            log, logs = ratios["share"].float().log(), self.logs[name]
            logs.share = _mean(logs.share, log, KEPT)
            logs.balanced = _mean(logs.balanced, log, 1.0 if self.progress > self.plugins[name].balance_until else KEPT)
        factor = self.factor(name)
        self.watched |= {
            f"{name}/{where}": (factor * ratio).where(ratio.isfinite(), torch.nan) for where, ratio in ratios.items()
        }
        if self.plugins[name].balance is not None:
            self.watched[f"{name}/factor"] = torch.as_tensor(factor)

    def check(self) -> None:
        """Warn once of each regulariser that swamps the objective, or that has a balance and no gradient.

        On a GPU of the measurement before this step, so as not to stall it.
        """
        if self._unchecked is None:
            return
        (names, shares), self._unchecked = self._unchecked, None
        for name, share in zip(names, shares.read().tolist(), strict=True):
            balance, measured = self.plugins[name].balance, math.isfinite(share)
            if measured and share > 1.001 * SWAMPED:  # where a factor is lowered it is SWAMPED, but for rounding
                text = (
                    f"the gradient of {name} is {share:,.0f} times the objective's: the network learns almost only "
                    f"from {name}; method.{name}.balance={self.plugins[name].remedy} keeps it near the objective's"
                )
            elif not measured and balance is not None:
                text = (
                    f"method.{name}.balance={balance:g} has no effect: {name} or the objective has no gradient at the "
                    "last layers of the backbone, so that there is no ratio to keep"
                )
            else:
                continue
            if name not in self._said and distributed.rank() == 0:
                say.warn(text, stacklevel=2)
            self._said.add(name)

    def state(self) -> list[float]:
        """The number of steps and the running means, to continue from."""
        means = [mean.item() for logs in self.logs.values() for mean in (logs.share, logs.balanced)]
        return [float(self.steps), *means]

    def restore(self, state: Sequence[float]) -> None:
        """state: from `state`; an empty one, of a run from before there were shares, changes nothing."""
        if len(state) == 1 + 2 * len(self.logs):
            self.steps = int(state[0])
            means = iter(torch.tensor(state[1:]).unbind())
            self.logs = {name: Logs(next(means), next(means)) for name in self.logs}


def _mean(before: Tensor, new: Tensor, kept: float) -> Tensor:
    """The running mean after another value; a value that is not finite changes nothing."""
    mean = torch.where(before.isinf(), new, kept * before + (1 - kept) * new)
    return torch.where(new.isfinite(), mean, before)


def _last_layers(loss: Tensor, backbone: nn.Module, scale: float) -> tuple[list[nn.Parameter], Tensor]:
    """Weights of layers of which the first one trained is the last of the backbone, and the norms of their gradients.

    The gradient is zero in the last layers of timm's ResNets in the first step, as their last batch norms begin at
    zero. On the CPU these are passed over: one layer, or none; on a GPU, which would have to be waited for, all of
    TRIED are returned.
    """
    layers = [p for p in backbone.parameters() if p.requires_grad and p.dim() > 1][: -TRIED - 1 : -1]
    if loss.is_cuda and layers:
        return layers, _layer_norms(loss, layers, scale)
    for layer in layers:
        norms = _layer_norms(loss, [layer], scale)
        if norms > 0:
            return [layer], norms
    return [], loss.new_zeros(0)


def _at_last_trained(norms: Tensor, objective: Tensor) -> Tensor:
    """The ratio of norms (L,) to the objective's (L,) in the first layer whose norm is not zero there."""
    trained = (objective > 0).to(torch.uint8).argmax(0, keepdim=True)
    return (norms / objective).gather(0, trained)[0]


def _layer_norms(loss: Tensor, layers: Sequence[Tensor], scale: float) -> Tensor:
    """(L,) norms of the gradient of the ranks' mean loss with respect to each layer, which all ranks share."""
    gradients = [distributed.sum_over_ranks(wide(g)) for g in _gradients(loss, layers, scale)]
    return torch.stack([g.norm() for g in gradients]) / (distributed.world_size() * scale)


def _output_norm(loss: Tensor, outputs: Sequence[Tensor], scale: float) -> Tensor:
    """Norm of the gradient of the ranks' mean loss with respect to the outputs, of which each rank has its own."""
    squares = torch.stack([wide(g).square().sum() for g in _gradients(loss, outputs, scale)]).sum()
    return distributed.sum_over_ranks(squares).sqrt() / (distributed.world_size() * scale)


def _gradients(loss: Tensor, places: Sequence[Tensor], scale: float) -> list[Tensor]:
    """Gradients of `scale` times the loss; zeros where it does not depend on a place."""
    gradients: Sequence[Tensor | None] = [None] * len(places)
    if loss.requires_grad:
        gradients = torch.autograd.grad(loss * scale, places, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(places, gradients, strict=True)]
