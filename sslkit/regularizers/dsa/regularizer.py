"""DSA as a regulariser: nu L_AM^s + upsilon L_con on the embeddings of any objective (eq. 17)."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from sslkit.embeddings import Embeddings, mean_over_ranks, wide
from sslkit.options.ranges import ChosenRatio, ChosenShare, Count, Rows, Size, Temperature, Weight, Width
from sslkit.priors._of_step import Mode, StepFeatures
from sslkit.regularizers.base import BESIDE_OTHERS, Place, Regularizer
from sslkit.regularizers.dsa import arranging, checks, official, scoring
from sslkit.regularizers.dsa.arranging import ArrangingMLP, CosineArranger
from sslkit.regularizers.dsa.pairwise import RankRows, of_rank, one_thread
from sslkit.runtime import distributed
from sslkit.runtime.device import Late
from sslkit.terminal import say

if TYPE_CHECKING:
    from sslkit.data.sources.named import Images

BESIDE_VIEWS = 3.0, 0.1  # balance and its end, chosen on held-out images: recipes/benchmarks/plugins
_CHECK_EVERY = 100  # calls between checks of M, each of which waits for the device
_DEAD = 0.1  # share of dead rows above which a warning is given: a round number


class DSA(Regularizer):
    """The DSA regulariser with the paper's weights, except the prior: the paper's, `clip`, must be downloaded.

    With these weights alone, balance=null, upsilon L_con swamps nearly every objective: its gradient at the backbone is
    3 (Barlow Twins) to 1,700 times (MAE) the objective's, and nu L_AM's 0.002 to 2.6 times, so that a run mostly
    distils the prior (recipes/benchmarks/LOG.md). So both terms together are scaled to a ratio that was chosen on
    held-out images (recipes/benchmarks/plugins).

    variant: paper, or code: the form of the public code wherever the two differ.
    reads: the embeddings that are arranged, projected (z), or the backbone's (h).
    hidden: width of the arranging MLP.
    nu: weight of L_AM^s, the arranging term; 0 skips its computation.
    upsilon: weight of L_con, the consistency of M with the prior; 0 skips its computation.
    alpha: threshold of 2 M above which a pair attracts; "relative:C" is C / n, with n rows of z.
    gamma: temperature of L_AM; the paper has no value, 0.5 is its code's.
    eta: neighbours of an image, for the connectivity score sc.
    mu: two-hop returns above which a neighbour counts as connected; eq. 14 is read as a count of such neighbours.
    tau: temperature of the prior's kernel (0.5 is the code's); "auto" is the median distance to the eta-th neighbour.
    arranger: mlp, or cosine for the comparison of Table X.
    prior: pca, hog, sift, identity (the pixels), clip[:MODEL[:PRETRAINED]], timm:NAME[:FILE], zoo:ENTRY,
        features:FILE.npy, or self, a slow copy of the network in training; in Python also a function.
    prior_size: side in pixels of the prior's input; None is the prior's default.
    prior_precision: float32, or bfloat16 for networks.
    mode: prior features of each clean image, looked up (cached), or of the augmented views (view, as printed); with
        prior=self those of the first view.
    neighbours: for sc, in the batch (printed: of views; here its clean images) or the whole dataset; auto: dataset if
        the features are cached, but for prior=self; none: sc = 1.
    balance: ratio of its gradient's norm to the objective's; None, as in the paper, leaves nu and upsilon as they are.
        auto: 3 until a tenth of the run beside an objective that compares views, else 0.03 to its end.
    balance_until: finished share of the run from which on the factor of the balance is kept; None is 1, or auto's.
    Raises UserError for values out of range, with the option's name.

    All this is of version 1 of the paper. Of version 2 (June 2025) the abstract alone could be read: it describes the
    same regulariser, with a bound of the cross-entropy risk in place of the theorem.

    Differences between the variants. Numbers in brackets: the paper's equations, and lines of the code at commit
    8a1ffcc, implemented in `official`.

    * f_s (9): paper: of [z_i ; z_j], z of unit length. code: of z_i - z_j, z unnormalised, each dimension divided by
      its L1 norm over all pairs of a view (lines 109 to 117).
    * rows of M sum to 1 (9): paper: over all views' rows. code: over the rows of each view; and M of two different
      views is that of the first view with itself (lines 115, 117).
    * L_AM^s (16): paper: log(1 + sum), sc_i before the sum over j. code: log(1 + mean), sc_i in the exponent
      (lines 17 to 21).
    * the prior (11, 12): paper: the softmax of squared distances. code: exp(-distance / tau) (lines 92 to 95).
    * L_con (13): paper: the squared Frobenius norm. code: the norm, summed over the blocks of two views (C101).
    * several processes: paper: all pairs, equal to one process. code: the pairs of each process only, never gathered.

    Readings of places that the paper leaves open, of variant=paper (numbers: its equations):

    * z is the projection head's output. Printed: f(x), the backbone's: reads=h.
    * f_s (9) ends in a ReLU, as in the code, and row sums include k = i.
    * L_AM (10, 16): distances are not squared, and pairs i = j, printed too, are left out: they add a constant.
    * gamma (10, 16) and tau (11) have no printed value: 0.5 is the code's.
    * the kernel (11) is exp(-||a_i - a_j||^2 / tau), a of unit length as in the code. No minus sign is legible.
    * L_con (13): the norm's exponent is illegible. Squared fits upsilon = 100, as entries of M are near 1 / n.
    * s_i (14) counts the neighbours j of i with more than mu = 1 two-hop returns i -> j -> l -> i, as in the code. The
      printed double sum goes up to eta^2, beside the text's "equal to or slightly smaller than eta".
    * neighbours (14) are searched among all clean images. Printed: the batch of views.
    * the objectives are those of their own papers: BYOL's momentum rises (DSA prints a constant), and Barlow Twins
      centres each dimension (DSA's formula does not).

    The code's further choices are options: nu=1 upsilon=0.01 mode=view neighbours=batch balance=null. In both variants
    the last bias of f_s is initialised to 0.5, since whole rows may otherwise be dead from the start.
    """

    automatic: ClassVar = {True: BESIDE_VIEWS, False: BESIDE_OTHERS}

    def __init__(
        self,
        dim: int,
        *,
        variant: checks.Variant = "paper",
        reads: Place = "z",
        hidden: Width = 128,
        nu: Weight = 0.1,
        upsilon: Weight = 100.0,
        alpha: float | str = 1.0,
        gamma: Temperature = 0.5,
        eta: Rows = 20,
        mu: Count = 1,
        tau: Temperature | str = 0.5,
        arranger: checks.Arranger = "mlp",
        prior: str | Callable[[Tensor], Tensor] = "pca",
        prior_size: Size | None = None,
        prior_precision: str = "float32",
        mode: Mode = "cached",
        neighbours: checks.Neighbours = "auto",
        balance: ChosenRatio = "auto",
        balance_until: ChosenShare = None,
    ) -> None:
        super().__init__(balance=balance, balance_until=balance_until)
        checks.check_choices(variant=variant, reads=reads, arranger=arranger, neighbours=neighbours, prior=prior)
        checks.check_numbers(nu=nu, upsilon=upsilon, gamma=gamma, hidden=hidden, eta=eta, mu=mu, tau=tau)
        self.nu, self.upsilon, self.gamma, self.tau = nu, upsilon, gamma, tau
        self.dim, self.eta, self.mu = dim, eta, mu
        self.neighbours = neighbours
        self.as_code = variant == "code"
        self.reads = reads
        self.alpha, self.relative_alpha = checks.parse_alpha(alpha)
        self.features = StepFeatures(prior, mode=mode, size=prior_size, precision=prior_precision, owner="dsa")
        self.prior = self.features.prior
        if arranger == "cosine":
            self.arrange = CosineArranger()
        else:
            self.arrange = ArrangingMLP(dim, hidden, inputs="diff" if self.as_code else "concat")
        self._scores: Tensor | None = None
        self._score_all: Callable[[], Tensor] | None = None
        self._seen = 0
        self._unsaid: tuple[Late, float] | None = None
        self._warned_dead = False
        self._said_repulsive = False

    def check(self, dataset: "Images") -> None:
        """Raises UserError for features of a file that do not fit the data set."""
        self.prior.check(dataset)

    def prepare(self, dataset: "Images", *, cache: Path | None = None, steps: int = 0) -> None:
        """Fit the prior (pca), read or compute the features of every clean image, and their connectivity scores.

        dataset: clean images; for videos their centre clips, `videos.with_sampling("center")`.
        cache: folder for fit, features and scores, keyed by content; None keeps them in memory.
        steps: of the whole run. All ranks must call this.
        """
        self.arrange.steps = steps
        automatic = self.neighbours == "auto" and self.features.mode == "cached" and not self.features.of_itself
        whole = automatic or self.neighbours == "dataset"
        self.features.prepare(dataset, cache=cache, whole=whole)
        if whole:
            array = self.features.table.array
            self._score_all = partial(scoring.compute_scores_once, array, eta=self.eta, mu=self.mu, cache=cache)
        if self.nu:
            self._score_data_set()

    def _score_data_set(self) -> None:
        """Compute the scores among all images, once; nothing where neighbours are those of the batch."""
        if self._scores is None and self._score_all is not None:
            self._scores = self._score_all().to(self.features.place.device)

    @property
    def needs_images(self) -> bool:
        """Return whether neighbours are searched in each batch; otherwise `prepare` has made a table of the images."""
        return self.features.mode == "view" and self.neighbours in ("auto", "batch")

    @property
    def needs_slow(self) -> bool:
        return self.features.of_itself

    def describe(self) -> str:
        """A line on the prior."""
        return self.features.describe()

    def weights(self) -> dict[str, float]:
        """nu and upsilon."""
        return {"dsa/arrange": self.nu, "dsa/consistency": self.upsilon}

    def terms(self, e: Embeddings, images: Tensor | None) -> dict[str, Tensor]:
        """{"dsa/arrange": nu L_AM^s, "dsa/consistency": upsilon L_con}, equal on every rank.

        e, images: see `Regularizer.terms`; e.views is needed for mode="view".
        """
        if self.nu:  # a loop may have raised it
            self._score_data_set()
        with arranging.without_autocast(e.z):
            z = wide(checks.fitting(getattr(e, self.reads), self.dim, self.reads))
            z = z if self.as_code else F.normalize(z, dim=-1)
            z, index, rows = of_rank(z, e.index, as_code=self.as_code)
            alpha = self.alpha / len(z) if self.relative_alpha else self.alpha
            by_view = self.features.mode == "view"
            clean = self._clean_features(e, index, images)
            seen = self.features.of_views(e, gathered=not self.as_code) if by_view and self.upsilon else clean
            arrange = consistency = z.new_zeros(())
            with one_thread(z, len(z) ** 2):
                if self.nu or self.upsilon:
                    if self.as_code:
                        m = official.arrange_views(self.arrange, z.unflatten(0, (rows.views, -1)))
                    else:
                        m = self.arrange(z, rows.anchors)
                    self._watch(m, alpha)
                if self.nu:
                    arrange = self.nu * self._arrange(z, m, clean, index, rows, alpha)
                if self.upsilon:
                    consistency = self.upsilon * self._consistency(m, seen, rows)
        return {"dsa/arrange": arrange, "dsa/consistency": consistency}

    def _clean_features(self, e: Embeddings, index: Tensor, images: Tensor | None) -> Tensor | None:
        """(N, A) prior features of the clean images; None if they are not needed."""
        for_score = self.nu and self.neighbours != "none" and self._scores is None
        for_prior = self.upsilon and self.features.mode == "cached"
        if for_score or for_prior:
            return self.features.of_images(e, index, images, gathered=not self.as_code)
        return None

    def _arrange(
        self, z: Tensor, m: Tensor, clean: Tensor | None, index: Tensor, rows: RankRows, alpha: float
    ) -> Tensor:
        score = None
        if self._scores is not None:
            self._scores = self._scores.to(index.device)
            score = self._scores[index]
        elif self.neighbours != "none":
            score = scoring.connectivity_score(clean, eta=self.eta, mu=self.mu, backend="torch")
        if score is not None:
            self.watched["dsa/score_sd"] = score.std(correction=0)
            score = score[rows.images].repeat(rows.views)
        if self.as_code:
            loss = official.arrange_term(z, m, score, alpha=alpha, gamma=self.gamma)
            self.watched["dsa/arrange_mean"] = loss.detach()
            return mean_over_ranks(loss)
        pairs = arranging.arrange_log_sum(z, m, score, alpha=alpha, gamma=self.gamma, rows=rows.anchors)
        if rows.anchors is not None:  # log-sums of the ranks combine; -inf, all scores zero, has no gradient
            pairs = distributed.gather(pairs.clamp_min(-1e30)[None]).logsumexp(0)
        mean = pairs - math.log(max(1, len(z) * (len(z) - 1)))
        self.watched["dsa/arrange_mean"] = F.softplus(mean).detach()
        return F.softplus(pairs)

    def _consistency(self, m: Tensor, features: Tensor, rows: RankRows) -> Tensor:
        features = features.to(m.dtype)  # fp32 rounds the prior of some rows unlike that of all
        if self.features.mode == "cached":
            features = features.repeat(rows.views, 1)
        if self.as_code:
            prior = official.prior_matrix(features, tau=self.tau, neighbours=self.eta)
            return mean_over_ranks(official.consistency_term(m, prior, rows.views))
        prior = scoring.prior_matrix(features, tau=self.tau, rows=rows.anchors, neighbours=self.eta)
        square = scoring.consistency_loss(m, prior)
        return square if rows.anchors is None else distributed.sum_over_ranks(square)

    @torch.no_grad()
    def _watch(self, m: Tensor, alpha: float) -> None:
        highest = m.amax(1)
        self.watched = {
            "dsa/attracted": (m > alpha / 2).sum() / m.numel(),
            "dsa/highest": highest.max(),
            "dsa/dead_rows": (highest <= 0).float().mean(),
        }
        self._say()
        if self._seen % _CHECK_EVERY == 0:
            shares = Late(torch.stack([self.watched["dsa/dead_rows"], self.watched["dsa/attracted"]]))
            self._unsaid = shares, alpha
            if not shares.is_late:
                self._say()
        self._seen += 1

    def _say(self) -> None:
        """Say what a check of M has found; on a GPU that of the call before, so as not to stall it."""
        if self._unsaid is None:
            return
        (shares, alpha), self._unsaid = self._unsaid, None
        dead, attracted = shares.read().tolist()
        if dead > _DEAD and not self._warned_dead:
            self._warned_dead = True
            say.warn(
                f"{dead:.0%} of the rows of DSA's M are dead: they have no gradient and never recover; "
                "another random seed may have fewer",
                stacklevel=2,
            )
        if attracted == 0 and not self._said_repulsive:
            self._said_repulsive = True
            say.line(
                f"dsa       no pair has 2 M > alpha = {alpha:.3g}, so L_AM pushes all pairs apart, similar ones less: "
                "method.dsa.alpha=relative:2 also attracts"
            )
