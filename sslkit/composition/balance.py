"""The share of each regulariser in what a network learns, and the factor that keeps it at its `balance`.

The share is the ratio |g_regulariser| / |g_objective| of the gradients with respect to the weights of the backbone's
last layer. GradNorm (Chen et al. 2018, arXiv 1711.02257) balances tasks by the same norms, at the last shared layer.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sslkit.embeddings import wide
from sslkit.regularizers.base import Regularizer
from sslkit.runtime import distributed
from sslkit.runtime.hardware import statistics_kept

EVERY = 64  # steps between two measurements; in the first of them also at 2, 4, 8, 16, 32
KEPT = 0.5  # of a running mean, at each measurement
SWAMPED, CHECKED_FROM = 30.0, 16  # share above which the objective hardly counts; step from which it is checked
TRIED = 8  # layers from the last one on, to find one that the objective trains
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
    watched: the last measurement, {"NAME/share": at the last layer, "NAME/share_h": at the backbone's output}, and
        {"NAME/factor"} of those with a balance. The output is known only for objectives that call the backbone whole.
    """

    def __init__(self, plugins: Mapping[str, Regularizer]) -> None:
        self.plugins = dict(plugins)
        self.logs = {name: Logs(torch.tensor(UNKNOWN), torch.tensor(UNKNOWN)) for name in plugins}
        self.steps = 0
        self.progress = 0.0
        self.watched: dict[str, Tensor] = {}
        self._said: set[str] = set()

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
        device = objective.device.type
        is_fp16 = torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) is torch.float16
        scale = HALF_SCALE if is_fp16 else 1.0
        outputs = [out for out in outputs if out.requires_grad]
        # A backward pass runs without autocast; recomputed activations would update statistics again.
        with torch.autocast(device, enabled=False), statistics_kept(backbone):
            objectives = {"share_h": _norm(objective, outputs, scale, shared=False)} if outputs else {}
            layer, norm = _last_trained(objective, backbone, scale)
            for name, loss in plugins.items():
                norms = {"share_h": _norm(loss, outputs, scale, shared=False)} if outputs else {}
                if layer is not None:
                    objectives["share"], norms["share"] = norm, _norm(loss, [layer], scale, shared=True)
                self._note(name, {place: norms[place] / objectives[place] for place in norms})
        if self.steps >= CHECKED_FROM:  # a check synchronises with a GPU
            self._check(list(plugins))

    def factor(self, name: str) -> Tensor | float:
        """Return the factor of the regulariser's terms; 1 without a balance and before the first measurement."""
        balance, log = self.plugins[name].balance, self.logs[name].balanced
        return 1.0 if balance is None else torch.where(log.isinf(), 1.0, balance * (-log).exp())

    @torch.no_grad()
    def _note(self, name: str, ratios: Mapping[str, Tensor]) -> None:
        """ratios: of the norms, without factor, by place."""
        if "share" in ratios:
            log, logs = ratios["share"].float().log(), self.logs[name]
            logs.share = _mean(logs.share, log, KEPT)
            logs.balanced = _mean(logs.balanced, log, 1.0 if self.progress > self.plugins[name].balance_until else KEPT)
        factor = self.factor(name)
        self.watched |= {f"{name}/{place}": factor * ratio for place, ratio in ratios.items() if ratio.isfinite()}
        if self.plugins[name].balance is not None:
            self.watched[f"{name}/factor"] = torch.as_tensor(factor)

    def _check(self, names: Sequence[str]) -> None:
        """Warn once of each regulariser that swamps the objective, or that has a balance and no gradient."""
        for name in names:
            log, balance = self.logs[name].share, self.plugins[name].balance
            share = 0.0 if log.isinf() else float(self.factor(name) * log.exp())
            if share > SWAMPED:
                text = (
                    f"the gradient of {name} is {share:,.0f} times the objective's: the network learns almost only "
                    f"from {name}; method.{name}.balance=1 keeps it near the objective's"
                )
            elif log.isinf() and balance is not None:
                text = (
                    f"method.{name}.balance={balance:g} has no effect: {name} or the objective has no gradient at the "
                    "last layers of the backbone, so that there is no ratio to keep"
                )
            else:
                continue
            if name not in self._said and distributed.rank() == 0:
                warnings.warn(text, stacklevel=2)
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
    before = before.to(new.device)
    mean = torch.where(before.isinf(), new, kept * before + (1 - kept) * new)
    return torch.where(new.isfinite(), mean, before)


def _last_trained(loss: Tensor, backbone: nn.Module, scale: float) -> tuple[Tensor | None, Tensor]:
    """The weights of the last layer whose gradient of the loss is not zero, and its norm; None if there is none.

    It is zero for the last layers of timm's ResNets in the first step, as their last batch norms begin at zero.
    """
    layers = [p for p in backbone.parameters() if p.requires_grad and p.dim() > 1]
    for weight in reversed(layers[-TRIED:]):
        norm = _norm(loss, [weight], scale, shared=True)
        if norm > 0:
            return weight, norm
    return None, loss.new_zeros(())


def _norm(loss: Tensor, places: Sequence[Tensor], scale: float, *, shared: bool) -> Tensor:
    """Norm of the gradient of the ranks' mean loss with respect to `places`; 0 if the loss does not depend on them.

    shared: whether all ranks have the same places (weights), or each its own (outputs). scale: of the loss in between.
    """
    gradients: Sequence[Tensor | None] = [None] * len(places)
    if loss.requires_grad:
        gradients = torch.autograd.grad(loss * scale, places, retain_graph=True, allow_unused=True)
    grads = [torch.zeros_like(p) if g is None else g for p, g in zip(places, gradients, strict=True)]
    if shared:
        grads = [distributed.sum_over_ranks(wide(g)) for g in grads]
        return torch.stack([g.norm() for g in grads]).norm() / (distributed.world_size() * scale)
    squares = distributed.sum_over_ranks(torch.stack([wide(g).square().sum() for g in grads]).sum())
    return squares.sqrt() / (distributed.world_size() * scale)
