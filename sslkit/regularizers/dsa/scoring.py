"""The scoring module: the prior matrix and its consistency loss (eqs. 11 to 13), connectivity scores (14, 15)."""

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from sslkit.embeddings import wide
from sslkit.errors import check_one_of
from sslkit.files.store import key_of
from sslkit.layers.similarities import square_distances
from sslkit.numerics.ties import among_all, nearest_of_all, pair_cosines, search_error, settle
from sslkit.regularizers.dsa.approximate import approximate_neighbours
from sslkit.regularizers.dsa.arranging import NORMALISE, without_autocast
from sslkit.regularizers.dsa.pairwise import one_thread
from sslkit.runtime.kept_arrays import load_or_compute
from sslkit.runtime.waiting import together
from sslkit.terminal import say

FROBENIUS = ("squared", "norm")
RULES = ("threshold", "fraction", "mutual")
BACKENDS = ("faiss", "torch")
VERSION = 1  # of the connectivity scores, in the names of cached ones: raise it when they change

EXACT = 100_000  # largest number of images that are compared in pairs: some two CPU minutes (recipes/benchmarks/growth)
_DENSE = 4096  # largest number of images with a dense neighbour graph
_PAIRS = 2**24  # pairs whose cosines are in memory at once
_MORE = 16  # candidates beyond the requested neighbours, for ties with the last


@torch.no_grad()
def prior_matrix(
    features: Tensor,
    *,
    tau: float | str = 0.5,
    squared: bool = True,
    center: Tensor | None = None,
    rows: Tensor | None = None,
    normalise: str = "row",
    neighbours: int = 20,
) -> Tensor:
    """Eq. 12: softmax_j(-||a_i - a_j||^2 / tau), (n, n) or, with rows, (r, n). No gradient; at least fp32.

    features: (n, A), l2-normalised inside, after subtracting `center`, (A,).
    tau: "auto" is the median distance to the `neighbours`-th neighbour.
    squared: False for the plain distance. normalise: "none" returns eq. 11's kernel, in (0, 1].
    """
    check_one_of("normalise", normalise, NORMALISE)
    with without_autocast(features):
        a = _unit(features, center)
        if tau == "auto":
            tau = _median_neighbour_distance(a, neighbours, squared)
        kernel = _distance(a if rows is None else a[rows], a, squared).div_(-tau).exp_()
        # every row contains the pair (i, i), of a distance of 0 up to rounding, so its sum is about 1 or more
        return kernel.div_(kernel.sum(1, keepdim=True)) if normalise == "row" else kernel


def consistency_loss(m: Tensor, prior: Tensor, *, frobenius: str = "squared") -> Tensor:
    """Eq. 13: sum of squares of M - Mpre, both (r, n); "norm" is its square root. Scalar."""
    check_one_of("frobenius", frobenius, FROBENIUS)
    square = _SquareDistance.apply(m, prior.detach().to(m.dtype))
    # the root has gradient 0 at 0
    return square if frobenius == "squared" else square.clamp_min(1e-24).sqrt()


class _SquareDistance(torch.autograd.Function):
    """sum (m - prior)^2, with gradient for m; saves no copy of either."""

    @staticmethod
    def forward(ctx, m: Tensor, prior: Tensor) -> Tensor:
        ctx.save_for_backward(m, prior)
        return F.mse_loss(m, prior, reduction="sum")

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        m, prior = ctx.saved_tensors
        with one_thread(m, m.numel()):
            return (m - prior).mul_(2 * grad), None


@torch.no_grad()
def connectivity_score(
    features: Tensor | np.ndarray,
    *,
    eta: int = 20,
    mu: int = 1,
    rule: str = "threshold",
    include_direct: bool = False,
    backend: str = "faiss",
) -> Tensor:
    """Eqs. 14, 15: share of the eta nearest neighbours of i that lead back to i. (N, A) -> (N,) in [0, 1].

    With N(i) the neighbours of i, without i, r_ij = #{l in N(j): i in N(l)} for j in N(i) counts the two-hop returns.
    features: (N, A), compared by cosine; ties go to the smallest row (see `sslkit.numerics.ties`). An array may be
        memory-mapped. Above 100,000 images faiss searches approximately, and the recall is said.
    eta: clamped to N - 1 with a warning.
    rule: "threshold", #{j: r_ij > mu} / eta; "fraction", sum_j r_ij / eta^2; "mutual", #{j: i in N(j)} / eta.
    include_direct: i in N(j) counts as a return as well. backend: of the search, "faiss" (on the CPU) or "torch".
    """
    check_one_of("rule", rule, RULES)
    check_one_of("backend", backend, BACKENDS)
    n = len(features)
    if eta >= n:
        say.warn(f"eta={eta} is too large for {n} images: using {max(n - 1, 0)} neighbours", stacklevel=2)
        eta = n - 1
    if eta < 1:
        return torch.zeros(n, device=getattr(features, "device", None))
    if n > EXACT and backend == "faiss":
        rows = features if isinstance(features, np.ndarray) else features.cpu().numpy()
        return _score_sparse(_approximate(rows, eta), mu, rule, include_direct)
    if isinstance(features, np.ndarray):
        features = torch.from_numpy(np.array(features, dtype=np.float32))
    with without_autocast(features):
        a = _unit(features)
        ids = nearest_of_all(a, eta) if a.is_cuda and n <= _DENSE else _nearest(a, eta, backend)
    if n <= _DENSE:
        return _score_dense(ids, mu, rule, include_direct)
    return _score_sparse(ids.cpu(), mu, rule, include_direct).to(features.device)


def compute_scores_once(features: np.ndarray, *, eta: int, mu: int, cache: Path | None) -> Tensor:
    """`connectivity_score` of a whole data set, (N,) on the CPU, computed once: read from the cache if it is there.

    All ranks must call this.
    """
    what = "the connectivity scores"
    if cache is None:
        with together(what):
            return connectivity_score(features, eta=eta, mu=mu)
    path = Path(cache) / f"scores-{key_of(features, VERSION, eta, mu)}.npy"
    scores = load_or_compute(
        path, len(features), lambda _: [connectivity_score(features, eta=eta, mu=mu).numpy()], what=what
    )
    return torch.from_numpy(np.array(scores))


def _unit(features: Tensor, center: Tensor | None = None) -> Tensor:
    a = wide(features)
    return F.normalize(a if center is None else a - center.to(a), dim=1)


def _distance(a: Tensor, b: Tensor, squared: bool) -> Tensor:
    """(squared) distances of unit vectors or zeros, (r, A) and (n, A) -> (r, n)."""
    square = square_distances(a, b)
    return square if squared else square.sqrt_()


def _median_neighbour_distance(a: Tensor, neighbours: int, squared: bool) -> Tensor:
    k = min(neighbours, len(a) - 1) + 1  # the smallest is the distance of a row to itself
    chunks = a.split(max(1, _PAIRS // len(a)))
    nearest = [_distance(chunk, a, squared).kthvalue(k, dim=1).values for chunk in chunks]
    # Distances of equal images are 0 up to rounding, which bounds the scale from below.
    rounding = 4 * search_error(a.shape[1]) if a.dtype is torch.float32 else 1e-12
    least = max(1e-6, rounding if squared else rounding**0.5)
    return torch.cat(nearest).median().clamp_min(least)


def _search_torch(a: Tensor, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The `count` largest cosines of each row, (N, count), and their column indices."""
    largest = [(chunk @ a.T).topk(count, dim=1) for chunk in a.split(max(1, _PAIRS // len(a)))]
    return tuple(torch.cat(block).cpu().numpy() for block in zip(*largest, strict=True))


def _search_faiss(a: Tensor, count: int) -> tuple[np.ndarray, np.ndarray]:
    import faiss

    rows = np.ascontiguousarray(a.cpu().float().numpy())
    index = faiss.IndexFlatIP(rows.shape[1])
    index.add(rows)
    return index.search(rows, count)


def _nearest(a: Tensor, eta: int, backend: str) -> Tensor:
    """Column indices of the eta largest cosines, (N, eta), without the image itself; ties go to the smallest."""
    rows, n = a.cpu().numpy(), len(a)
    search = _search_faiss if backend == "faiss" else _search_torch
    cosine, ids = search(a, min(eta + 1 + _MORE, n))
    cosine[ids == np.arange(n)[:, None]] = -np.inf
    whole = ids.shape[1] == n
    _, ids, is_open = settle(cosine, ids, eta, a.shape[1], lambda some, at: pair_cosines(rows, some, rows, at))
    ids, step = ids[:, :eta], max(1, _PAIRS // 8 // n)
    tied = np.flatnonzero(is_open & (not whole))
    for start in range(0, len(tied), step):
        some, blocks = tied[start : start + step], np.array_split(rows, 1 + n // 4096)
        ids[some] = among_all(rows[some], blocks, n, some[:, None] == np.arange(n), eta)[1]
    return torch.from_numpy(ids).to(a.device)


def _approximate(rows: np.ndarray, eta: int) -> Tensor:
    ids, recall = approximate_neighbours(rows, eta)
    say.line(
        f"dsa       neighbours of {len(rows):,} images by an approximate search with a recall of {100 * recall:.1f} %"
    )
    return torch.from_numpy(ids)


def _score_dense(ids: Tensor, mu: int, rule: str, include_direct: bool) -> Tensor:
    n, eta = ids.shape
    near = torch.zeros(n, n, device=ids.device).scatter_(1, ids, 1)  # near[i, j] = [j in N(i)]
    if rule == "mutual":
        return (near * near.T).sum(1) / eta
    returns = near @ near + (near if include_direct else 0)  # [j, i]: paths from j to i
    returns = near * returns.T
    return returns.sum(1) / eta**2 if rule == "fraction" else (returns > mu).sum(1) / eta


def _score_sparse(ids: Tensor, mu: int, rule: str, include_direct: bool) -> Tensor:
    """Scores from a sparse neighbour graph: N eta^2 steps, in blocks of j."""
    from scipy.sparse import csr_array

    n, eta = ids.shape
    pointers = np.arange(0, n * eta + 1, eta)
    near = csr_array((np.ones(n * eta, np.float32), ids.numpy().ravel(), pointers), shape=(n, n))
    into = near.T.tocsr()  # into[j, i] = [j in N(i)]
    if rule == "mutual":
        return torch.from_numpy((near * into).sum(1)).float() / eta
    total = np.zeros(n)
    step = max(1, _PAIRS // eta**2)
    for start in range(0, n, step):
        block = near[start : start + step]
        returns = block @ near + (block if include_direct else 0 * block)
        returns = (returns * into[start : start + step]).tocoo()
        counted = returns.data if rule == "fraction" else returns.data > mu
        total += np.bincount(returns.col, counted, minlength=n)
    return torch.from_numpy(total / (eta**2 if rule == "fraction" else eta)).float()
