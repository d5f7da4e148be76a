"""The arranging module: the pair similarities M and their loss L_AM (Song et al. 2024, eqs. 9, 10, 16)."""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from sslkit.embeddings import wide
from sslkit.errors import check_one_of
from sslkit.regularizers.dsa.pairwise import KERNELS, one_thread, pair_scores

PHIS = ("relu", "softplus", "exp")
NORMALISE = ("row", "none")
INPUTS = ("concat", "diff")
REDUCTIONS = ("sum", "mean")
SCORE_MODES = ("outside", "inside")

_EPS = 1e-6  # added to every row sum: a row of zeros stays zero instead of NaN
_TINY = 1e-12  # squared distances below it count as zero and have no gradient
_BLOCK = 2**22  # pairs of one row block, 16 MiB in fp32


def without_autocast(x: Tensor) -> AbstractContextManager:
    """Disable autocast for everything after z: bf16 rounds 2M - 1 to -1 for every M below 2^-10."""
    return torch.autocast(x.device.type, enabled=False)


class ArrangingMLP(nn.Module):
    """Eq. 9: M_ij = q_ij / sum_k q_ik with q_ij = phi(f_s([z_i ; z_j])), f_s = Linear -> ReLU -> Linear.

    dim: width of z. hidden: width of f_s.
    phi: relu (the last bias is initialised to 0.5 to avoid dead rows), softplus, exp (the row softmax).
    normalise: "row" as printed; "none" is M_ij = sigmoid(f_s) for each pair, without phi.
    inputs: "concat" as printed, or "diff", f_s(z_i - z_j) as in the official code.
    kernel: implementation of the pair scores, see `pairwise.pair_scores`.
    """

    def __init__(
        self,
        dim: int,
        hidden: int = 128,
        *,
        phi: str = "relu",
        normalise: str = "row",
        inputs: str = "concat",
        kernel: str = "auto",
    ) -> None:
        super().__init__()
        check_one_of("phi", phi, PHIS)
        check_one_of("normalise", normalise, NORMALISE)
        check_one_of("inputs", inputs, INPUTS)
        check_one_of("kernel", kernel, KERNELS)
        self.phi, self.normalise, self.inputs, self.kernel = phi, normalise, inputs, kernel
        self.steps = 0  # number of calls of the run, 0 if unknown
        self.first = nn.Linear(2 * dim if inputs == "concat" else dim, hidden)
        self.last = nn.Linear(hidden, 1)
        if phi == "relu" and normalise == "row":
            nn.init.constant_(self.last.bias, 0.5)

    def forward(self, z: Tensor, rows: Tensor | None = None) -> Tensor:
        """z: (n, D) -> M (n, n); with rows, (r,) indices, only the anchors z[rows]: (r, n). At least fp32."""
        with without_autocast(z):
            scores = self._scores(wide(z), rows)
            if self.normalise == "none":
                return scores.sigmoid()
            if self.phi == "exp":
                return scores.softmax(1)
            if self.phi == "relu":
                return _ReluShare.apply(scores)
            q = F.softplus(scores)
            return q / (q.sum(1, keepdim=True) + _EPS)

    def _scores(self, z: Tensor, rows: Tensor | None) -> Tensor:
        dtype = torch.promote_types(z.dtype, self.first.weight.dtype)
        weight, bias, w, b = (p.to(dtype) for p in (*self.first.parameters(), *self.last.parameters()))
        z = z.to(dtype)
        to_u, to_v = weight.chunk(2, 1) if self.inputs == "concat" else (weight, -weight)
        u = F.linear(z if rows is None else z[rows], to_u, bias)
        return pair_scores(u, F.linear(z, to_v), w[0], b[0], kernel=self.kernel, steps=self.steps)


class CosineArranger(nn.Module):
    """The parameter-free alternative to f_s in Table X: M_ij from the cosine of z_i and z_j.

    normalise: "row" clamps at zero and makes rows sum to 1 (like the prior's rows); "none" is the raw cosine.
    """

    def __init__(self, *, normalise: str = "row") -> None:
        super().__init__()
        check_one_of("normalise", normalise, NORMALISE)
        self.normalise = normalise

    def forward(self, z: Tensor, rows: Tensor | None = None) -> Tensor:
        """z: (n, D) -> M (n, n); with rows, (r,) indices, only the anchors z[rows]: (r, n). At least fp32."""
        with without_autocast(z):
            z = F.normalize(wide(z), dim=1)
            cosine = (z if rows is None else z[rows]) @ z.T
            if self.normalise == "none":
                return cosine
            return _ReluShare.apply(cosine)


class _ReluShare(torch.autograd.Function):
    """Each row's relu(x) divided by its sum, (r, n); saves only the result, which is also the relu's mask."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        share = x.relu()
        total = share.sum(1, keepdim=True).add_(_EPS)
        share.div_(total)
        ctx.save_for_backward(share, total)
        return share

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> Tensor:
        share, total = ctx.saved_tensors
        with one_thread(share, share.numel()):
            by_q = (grad - (grad * share).sum(1, keepdim=True)).div_(total)
            return torch.ops.aten.threshold_backward(by_q, share, 0)


def arrange_loss(
    z: Tensor,
    m: Tensor,
    score: Tensor | None = None,
    *,
    alpha: float = 1.0,
    gamma: float = 0.5,
    squared: bool = False,
    reduction: str = "sum",
    score_mode: str = "outside",
    include_self: bool = False,
    rows: Tensor | None = None,
) -> Tensor:
    """Eq. 16, log(1 + sum_i sc_i sum_j exp((2 M_ij - alpha) d_ij / gamma)), j != i; eq. 10 without score. Scalar.

    z: (n, D), l2-normalised inside. m: (n, n), or (r, n) with the rows' indices, (r,). score: as many as rows of m.
    squared: d is the squared distance. reduction: "mean" divides the sum by the number of pairs.
    score_mode: "inside" multiplies the exponent by sc_i, as in the official code.
    include_self: include the pairs i = j, whose d is 0.
    """
    check_one_of("reduction", reduction, REDUCTIONS)
    pairs = arrange_log_sum(
        z,
        m,
        score,
        alpha=alpha,
        gamma=gamma,
        squared=squared,
        score_mode=score_mode,
        include_self=include_self,
        rows=rows,
    )
    if reduction == "mean":
        pairs = pairs - math.log(max(1, m.shape[0] * (m.shape[1] - (not include_self))))
    return F.softplus(pairs)


def arrange_log_sum(
    z: Tensor,
    m: Tensor,
    score: Tensor | None = None,
    *,
    alpha: float = 1.0,
    gamma: float = 0.5,
    squared: bool = False,
    score_mode: str = "outside",
    include_self: bool = False,
    rows: Tensor | None = None,
) -> Tensor:
    """log of the sum inside `arrange_loss`, over the rows of m; -inf if every score is zero. Scalar.

    Values of ranks with different rows combine by logsumexp.
    """
    check_one_of("score_mode", score_mode, SCORE_MODES)
    with without_autocast(z):
        z = F.normalize(wide(z), dim=1)
        m = m.to(torch.promote_types(m.dtype, z.dtype))
        if rows is None:
            rows = torch.arange(len(m), device=z.device)
        score = torch.ones_like(m[:, 0]) if score is None else score.detach().to(m)
        log_score, strength = (score.log(), None) if score_mode == "outside" else (None, score)
        form = _Form(rows, log_score, strength, alpha, gamma, squared, include_self)
        return _LogSum.apply(z.to(m.dtype), m, form)


@dataclass(frozen=True)
class _Form:
    """The exponent of one row block, and the positions of its pairs. Options: see `arrange_loss`.

    rows: (r,) the anchors. log_score: (r,) added to the exponent. strength: (r,) multiplies it.
    """

    rows: Tensor
    log_score: Tensor | None
    strength: Tensor | None
    alpha: float
    gamma: float
    squared: bool
    include_self: bool

    def blocks(self, columns: int) -> Iterator[slice]:
        step = max(1, _BLOCK // columns)
        return (slice(start, start + step) for start in range(0, len(self.rows), step))

    def distance(self, z: Tensor, block: slice) -> Tensor:
        """d of the block's pairs, (b, n); exactly 0 on the diagonal."""
        rows = self.rows[block]
        square = (z[rows] @ z.T).mul_(-2).add_(2).clamp_(min=_TINY)
        d = square if self.squared else square.sqrt_()
        return d.scatter_(1, rows[:, None], 0)

    def slope(self, m: Tensor, block: slice) -> Tensor:
        """The exponent's derivative by d, (2M - alpha) / gamma, times sc_i in the official code's form."""
        slope = (m[block] * (2 / self.gamma)).sub_(self.alpha / self.gamma)
        return slope if self.strength is None else slope.mul_(self.strength[block, None])

    def exponent(self, slope: Tensor, d: Tensor, block: slice) -> Tensor:
        exponent = slope * d
        if self.log_score is not None:
            exponent += self.log_score[block, None]
        return exponent if self.include_self else exponent.scatter_(1, self.rows[block, None], float("-inf"))


class _LogSum(torch.autograd.Function):
    """logsumexp over all pairs, row block by row block; saves z and M, nothing else of size n x n."""

    @staticmethod
    def forward(ctx, z: Tensor, m: Tensor, form: _Form) -> Tensor:
        parts = []
        with one_thread(m, m.numel()):
            for block in form.blocks(len(z)):
                exponent = form.exponent(form.slope(m, block), form.distance(z, block), block)
                parts.append(exponent.flatten().logsumexp(0))
        total = torch.stack(parts).logsumexp(0)
        ctx.form = form
        ctx.save_for_backward(z, m, total)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        z, m, total = ctx.saved_tensors
        form, (want_z, want_m, _) = ctx.form, ctx.needs_input_grad
        grad_z = torch.zeros_like(z) if want_z else None
        grad_m = torch.empty_like(m) if want_m else None
        with one_thread(m, m.numel()):
            for block in form.blocks(len(z)):
                d, slope = form.distance(z, block), form.slope(m, block)
                share = form.exponent(slope, d, block).sub_(total.clamp_min(-1e30)).exp_().mul_(grad)
                if want_z:
                    _add_distance_gradient(grad_z, slope.mul_(share), z, d, form, block)
                if want_m:
                    torch.mul(share, d, out=grad_m[block]).mul_(2 / form.gamma)
                    if form.strength is not None:
                        grad_m[block] *= form.strength[block, None]
        return grad_z, grad_m, None


def _add_distance_gradient(grad_z: Tensor, by_d: Tensor, z: Tensor, d: Tensor, form: _Form, block: slice) -> None:
    """Add the gradient by z: d = sqrt(2 - 2 cos), so dd/dcos = -1/d; squared, -2; 0 where d was clamped."""
    by_cosine = by_d.mul_(-2) if form.squared else by_d.div_(d).neg_()
    clamped = _TINY if form.squared else _TINY**0.5
    # where(d > clamped, by_cosine, 0) in one pass
    torch.ops.aten.threshold_backward.grad_input(by_cosine, d, clamped, grad_input=by_cosine)
    rows = form.rows[block]
    grad_z.index_add_(0, rows, by_cosine @ z)
    grad_z.addmm_(by_cosine.T, z[rows])
