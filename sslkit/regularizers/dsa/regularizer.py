"""DSA as a regulariser: nu L_AM^s + upsilon L_con on the embeddings of any objective (eq. 17)."""

import logging
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from sslkit import distributed
from sslkit.embeddings import Embeddings, wide
from sslkit.errors import UserError
from sslkit.ranges import Count, Rows, Size, Temperature, Weight, Width
from sslkit.regularizers.base import Regularizer
from sslkit.regularizers.dsa import arranging, options, scoring
from sslkit.regularizers.dsa.arranging import ArrangingMLP, CosineArranger
from sslkit.regularizers.dsa.priors import build as build_prior
from sslkit.regularizers.dsa.priors.features import FilePrior
from sslkit.regularizers.dsa.table import FeatureTable, sample, tabulate
from sslkit.regularizers.dsa.threads import one_thread

if TYPE_CHECKING:
    from sslkit.data.sources import Images

_CHECK_EVERY = 100  # calls between two looks at M that a GPU must be waited for
_DEAD = 0.1  # share of dead rows that is worth a warning

log = logging.getLogger(__name__)


@dataclass
class _Rows:
    """The pairs of this rank: which rows of z are its anchors (None is all), and how images become rows."""

    anchors: Tensor | None
    images: slice  # the anchors' images among those of the step
    views: int


class DSA(Regularizer):
    """The paper's defaults, except for the prior: its own is `clip`, which must be downloaded.

    dim: width of z. hidden: width of the arranging MLP.
    nu, upsilon: weights of L_AM^s and L_con; 0 skips what only that term needs.
    alpha, gamma: L_AM's threshold on 2 M and its temperature; alpha="relative:C" is C / n, with n rows of z.
    eta, mu: neighbours of an image, and the two-hop returns above which one counts as connected.
    tau: temperature of the prior's kernel; "auto" is the median distance to the eta-th neighbour.
    phi, inputs, kernel: of `ArrangingMLP`. normalise: of M and of the prior's rows.
    arranger: "mlp", or "cosine" for Table X's comparison.
    prior: `prior.build_prior`: clip[:MODEL[:PRETRAINED]], timm:NAME[:FILE], hog, pca, features:FILE.npy, a function.
    prior_size, prior_precision: side in pixels at which the prior looks; "bfloat16" for networks.
    mode: prior features of each clean image, looked up ("cached"), or of the augmented views ("view", as printed).
    neighbours: for sc, among the "batch" or the whole "dataset"; "auto" is the data set where its features are
        cached; "none" is sc = 1, eq. 10.
    squared, reduction, score_mode, include_self: of `arrange_loss`.
    rule, include_direct: of `connectivity_score`.
    prior_squared, center: squared distances in the prior; its features less their mean over the data set.
    frobenius: of `consistency_loss`.
    detach_regulator: L_AM does not train M. detach_embedding: M does not train z.
    where: z is the "projection", or the "backbone"'s features, of `width` dimensions, which the MLP must be told.
    ddp: pairs over all ranks, so that many processes equal one, or each rank's own ("local").
    nu_warmup: calls over which nu rises from 0.
    Raises UserError for values out of range, with the option's name.
    """

    def __init__(
        self,
        dim: int,
        *,
        hidden: Width = 128,
        nu: Weight = 0.1,
        upsilon: Weight = 100.0,
        alpha: float | str = 1.0,
        gamma: Temperature = 0.5,
        eta: Rows = 20,
        mu: Count = 1,
        tau: Temperature | str = 0.5,
        phi: str = "relu",
        arranger: str = "mlp",
        prior: str | Callable[[Tensor], Tensor] = "pca",
        prior_size: Size | None = None,
        prior_precision: str = "float32",
        mode: str = "cached",
        neighbours: str = "auto",
        normalise: str = "row",
        inputs: str = "concat",
        kernel: str = "auto",
        squared: bool = False,
        reduction: str = "sum",
        score_mode: str = "outside",
        include_self: bool = False,
        rule: str = "threshold",
        include_direct: bool = False,
        prior_squared: bool = True,
        center: bool = False,
        frobenius: str = "squared",
        detach_regulator: bool = False,
        detach_embedding: bool = False,
        where: str = "projection",
        width: Width | None = None,
        ddp: str = "gathered",
        nu_warmup: Count = 0,
    ) -> None:
        given = {key: value for key, value in locals().items() if key not in ("self", "__class__")}
        super().__init__()
        options.check(given)
        for key, value in given.items():
            if key not in ("dim", "prior", "alpha", "kernel"):
                setattr(self, key, value)
        self.alpha, self.relative_alpha = options.parse_alpha(alpha)
        self.prior = build_prior(prior, size=prior_size, precision=prior_precision)
        if arranger == "cosine":
            self.arrange = CosineArranger(normalise=normalise)
        else:
            dim = width if where == "backbone" else dim
            self.arrange = ArrangingMLP(dim, hidden, phi=phi, normalise=normalise, inputs=inputs, kernel=kernel)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))  # of terms, in training
        self._table = FeatureTable(self.prior.array) if isinstance(self.prior, FilePrior) else None
        self._scores: Tensor | None = None
        self._center: Tensor | None = None
        self._seen = 0
        self._warned_dead = False
        self._said_repulsive = False

    def prepare(self, dataset: "Images", *, cache: Path | None = None, steps: int = 0) -> None:
        """Fit the prior (pca), read or compute the features of every clean image, and score them.

        dataset: clean images; of videos their centre clips, `videos.sampled("center")`.
        cache: folder for the features, kept by content; None keeps them in memory. steps: of the whole run.
        """
        self.arrange.steps = steps
        if self.prior.needs_fit:
            self.prior.fit(sample(self.prior, dataset))
        whole = self.neighbours == "dataset" or (self.neighbours == "auto" and self.mode == "cached")
        if self.mode == "cached" or whole:
            self._table = tabulate(self.prior, dataset, cache=cache, device=self.calls.device)
            self._center = self._table.all().mean(0) if self.center else None
        if whole and self.nu:
            self._scores = self._score(self._table.all(), backend="faiss").to(self.calls.device)

    def describe(self) -> str:
        """Which prior, and why."""
        if self.prior.name == "pca":
            return "prior pca, because it needs no download; for the paper's, CLIP: method.dsa.prior=clip"
        return f"prior {self.prior.name}"

    def terms(self, e: Embeddings, images: Tensor) -> dict[str, Tensor]:
        """{"dsa/arrange": nu L_AM^s, "dsa/consistency": upsilon L_con}, the same on every rank.

        e, images: as `Regularizer.terms` says; e.views is needed for mode="view".
        """
        source = e.h if self.where == "backbone" else e.z
        with arranging.without_autocast(source):
            z, index, rows = self._rows(F.normalize(wide(source), dim=-1), e.index)
            clean = self._clean_features(index, images)
            seen = self._view_features(e) if self.mode == "view" and self.upsilon else clean
            arrange = consistency = z.new_zeros(())
            with one_thread(z.device, len(z) ** 2):
                if self.nu or self.upsilon:
                    m = self.arrange(z.detach() if self.detach_embedding else z, rows.anchors)
                    self._watch(m)
                if self.nu:
                    arrange = self._arrange(z, m, clean, index, rows)
                if self.upsilon:
                    consistency = self.upsilon * self._consistency(m, seen, rows)
            if self.training:
                self.calls += 1
        return {"dsa/arrange": arrange, "dsa/consistency": consistency}

    def _rows(self, z: Tensor, index: Tensor) -> tuple[Tensor, Tensor, _Rows]:
        """z (V, N, D) as (V N, D) rows, view by view; of several ranks, this rank's share of the pairs."""
        views, count, _ = z.shape
        world, rank = distributed.world_size(), distributed.rank()
        own = slice(rank * count // world, (rank + 1) * count // world)
        if world == 1:
            return z.flatten(0, 1), index, _Rows(None, own, views)
        if self.ddp == "local":
            return z[:, own].flatten(0, 1), index[own], _Rows(None, slice(0, count // world), views)
        anchors = torch.arange(views * count, device=z.device).view(views, count)[:, own].flatten()
        return z.flatten(0, 1), index, _Rows(anchors, own, views)

    def _clean_features(self, index: Tensor, images: Tensor) -> Tensor | None:
        """(N, A) of the clean images, from the table or this batch; None where nothing asks for them."""
        for_score = self.nu and self.neighbours != "none" and self._scores is None
        for_prior = self.upsilon and self.mode == "cached"
        if not (for_score or for_prior):
            return None
        if self._table is not None:
            return self._table.rows(index)
        return self._gather(self.prior(images), 0)

    def _gather(self, features: Tensor, dim: int) -> Tensor:
        return features if self.ddp == "local" else distributed.gather(features, dim)

    def _score(self, features: Tensor, backend: str) -> Tensor:
        centre = self._features_mean(features)
        return scoring.connectivity_score(
            features if centre is None else features - centre,
            eta=self.eta,
            mu=self.mu,
            rule=self.rule,
            include_direct=self.include_direct,
            backend=backend,
        )

    def _features_mean(self, features: Tensor) -> Tensor | None:
        if not self.center:
            return None
        return features.mean(0) if self._center is None else self._center.to(features)

    def _arrange(self, z: Tensor, m: Tensor, clean: Tensor | None, index: Tensor, rows: _Rows) -> Tensor:
        score = None
        if self._scores is not None:
            self._scores = self._scores.to(index.device)
            score = self._scores[index]
        elif self.neighbours != "none":
            score = self._score(clean, backend="torch")
        if score is not None:
            self.watched["dsa/score_sd"] = score.std(correction=0)
            score = score[rows.images].repeat(rows.views)
        pairs = arranging.arrange_log_sum(
            z,
            m.detach() if self.detach_regulator else m,
            score,
            alpha=self._alpha(len(z)),
            gamma=self.gamma,
            squared=self.squared,
            score_mode=self.score_mode,
            include_self=self.include_self,
            rows=rows.anchors,
        )
        if rows.anchors is not None:  # log-sums of the ranks add up; -inf, all scores zero, has no gradient
            pairs = distributed.gather(pairs.clamp_min(-1e30)[None]).logsumexp(0)
        mean = pairs - math.log(max(1, len(z) * (len(z) - (not self.include_self))))
        self.watched["dsa/arrange_mean"] = F.softplus(mean).detach()
        return self._rank_mean(F.softplus(mean if self.reduction == "mean" else pairs)) * self._nu()

    def _consistency(self, m: Tensor, features: Tensor, rows: _Rows) -> Tensor:
        if self.mode == "cached":
            features = features.repeat(rows.views, 1)
        prior = scoring.prior_matrix(
            features,
            tau=self.tau,
            squared=self.prior_squared,
            center=self._features_mean(features),
            rows=rows.anchors,
            normalise=self.normalise,
            neighbours=self.eta,
        )
        square = scoring.consistency_loss(m, prior)
        if rows.anchors is not None:
            square = distributed.sum_over_ranks(square)
        return self._rank_mean(scoring.root(square) if self.frobenius == "norm" else square)

    def _view_features(self, e: Embeddings) -> Tensor:
        if e.views is None:
            raise UserError("dsa.mode=view needs the augmented views, which this step did not keep: use mode=cached")
        features = torch.stack([self.prior(view) for view in e.views])  # (V, N_local, A)
        return self._gather(features, 1).flatten(0, 1)

    def _rank_mean(self, loss: Tensor) -> Tensor:
        """Local losses become their mean over the ranks; global ones are the same everywhere already."""
        return distributed.sum_over_ranks(loss) / distributed.world_size() if self.ddp == "local" else loss

    def _nu(self) -> Tensor | float:
        return self.nu * (self.calls / self.nu_warmup).clamp(max=1).float() if self.nu_warmup else self.nu

    def _alpha(self, n: int) -> float:
        return self.alpha / n if self.relative_alpha else self.alpha

    @torch.no_grad()
    def _watch(self, m: Tensor) -> None:
        alpha = self._alpha(m.shape[1])
        highest = m.amax(1)
        self.watched = {
            "dsa/attracted": (m > alpha / 2).sum() / m.numel(),
            "dsa/highest": highest.max(),
            "dsa/dead_rows": (highest <= 0).float().mean(),
        }
        if self._seen % _CHECK_EVERY == 0:
            self._say(self.watched["dsa/dead_rows"].item(), self.watched["dsa/attracted"].item(), alpha)
        self._seen += 1

    def _say(self, dead: float, attracted: float, alpha: float) -> None:
        if dead > _DEAD and not self._warned_dead:
            self._warned_dead = True
            warnings.warn(
                f"{dead:.0%} of the rows of DSA's M are dead: they have no gradient and never recover; "
                "dsa.phi=softplus has none, and another seed may have fewer",
                stacklevel=2,
            )
        if attracted == 0 and not self._said_repulsive:
            self._said_repulsive = True
            log.info("DSA: no pair has 2M > alpha = %.3g, so L_AM repels all pairs; alpha=relative:2 attracts", alpha)
