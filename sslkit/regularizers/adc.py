"""ADC, Adaptive Distribution Calibration: pull an anchor's near images, push its far ones (Si et al. 2025, 2508.13596).

Only the abstract and a third party's summary with the equations of arXiv 2508.13596, by the group of DSA, were at hand.
What is reconstructed is marked so.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from sslkit.embeddings import Embeddings, mean_over_ranks, wide
from sslkit.layers.similarities import square_distances
from sslkit.options.ranges import ChosenRatio, ChosenShare, Size, Temperature, Weight
from sslkit.options.settings import Limits
from sslkit.priors._of_step import Mode, StepFeatures
from sslkit.regularizers.base import BESIDE_OTHERS, Regularizer
from sslkit.regularizers.dsa.pairwise import of_rank

if TYPE_CHECKING:
    from sslkit.data.sources.named import Images

NEVER = 1e4  # of a log density below the lowest one: the exponential of minus it is 0
LEAST_ENTROPY = math.log(2)  # of the prior's neighbours: an anchor with one would weigh without bound


def from_anchors(x: Tensor, anchors: Tensor) -> Tensor:
    """||x_a - x_j||^2 of rows scaled to length 1: (n, D), (r,) -> (r, n)."""
    x = F.normalize(x, dim=1)
    return square_distances(x[anchors], x)


def log_shares(log_density: Tensor, left_out: Tensor) -> Tensor:
    """Each row's log share of an anchor's neighbourhood: (r, n), (r, n) bool of rows without one -> (r, n)."""
    lowest = log_density.detach().amin(1, keepdim=True)
    return torch.where(left_out, lowest - NEVER, log_density).log_softmax(1)


def gaussian(square: Tensor, sigma: float) -> Tensor:
    """Log density of a normal distribution around the anchor, up to a constant."""
    return -square / (2 * sigma**2)


def student_t(square: Tensor, sigma: float, dof: float) -> Tensor:
    """Log density of Student's t at these distances, up to a constant, as in t-SNE, whose dof is 1 (reconstructed)."""
    return -(dof + 1) / 2 * torch.log1p(square / (dof * sigma**2))


def divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(p || q) of each anchor, (r, n) -> (r,); the gradient is that of q alone."""
    log_p = log_p.detach()
    return (log_p.exp() * (log_p - log_q)).sum(1)


def entropy(log_p: Tensor) -> Tensor:
    """Entropy of each anchor's neighbours, in nats: (r, n) -> (r,)."""
    return -(log_p.exp() * log_p).sum(1)


class ADC(Regularizer):
    """nu L_DCM + upsilon L_LPM on the neighbours j of each anchor i, all rows of z of a step but i itself.

        p_cal(j) ~ N(z_j; z_i, sigma^2)            no gradient; z of unit length
        p_dat(j) ~ Student's t(z_j; z_i, sigma^2)  with dof degrees of freedom
        p_pre(j) ~ exp(-||a_j - a_i||^2 / tau)     a: the prior's features, of unit length (DSA's eq. 12)
        L_DCM = mean_i KL(p_cal || p_dat) / H(p'_pre),  L_LPM = mean_i KL(p_pre || p_dat)

    L_DCM is t-SNE's loss with both distributions in z: near rows, where the normal density is above the heavy-tailed
    one, are pulled in, far ones pushed away. The entropy H makes outliers, with no near image in the prior, count less:
    p'_pre is p_pre among other images alone, since a view of its own is near to any image (reconstructed).
    L_LPM keeps the prior's neighbours: it is minus the log density at p_dat of a Dirichlet distribution with parameters
    1 + p_pre, whose mode is p_pre, up to a term without gradient (reconstructed: the summary has Dir(p_dat || p_pre),
    to be made large, without parameters).

    nu: weight of L_DCM. upsilon: weight of L_LPM. The summary has both stable from 0.1 to 10; 1 is reconstructed, and
        so is the mean over anchors, which does not grow with the batch, where it prints a sum.
    sigma: standard deviation of an anchor's neighbours, and scale of Student's t (reconstructed).
    dof: degrees of freedom; the printed variance of the t, dof / (dof - 2) times sigma^2, needs more than 2.
    tau: temperature of the prior's kernel, as in `dsa`.
    prior: pca, hog, sift, identity (the pixels), clip[:MODEL[:PRETRAINED]], timm:NAME[:FILE], zoo:ENTRY,
        features:FILE.npy, or self, a slow copy of the network in training; in Python also a function.
    prior_size: side in pixels of the prior's input; None is the prior's default.
    prior_precision: float32, or bfloat16 for networks.
    mode: prior features of each clean image, looked up (cached), or of the augmented views (view); with prior=self
        those of the first view.
    balance: ratio of its gradient's norm to the objective's; None leaves nu and upsilon as they are. auto: None beside
        an objective that compares views, else 0.03.
    balance_until: finished share of the run from which on the factor of the balance is kept; None is 1.
    Raises UserError for values out of range, with the option's name.
    """

    needs_images = False
    automatic: ClassVar = {True: (None, 1.0), False: BESIDE_OTHERS}

    def __init__(
        self,
        dim: int,
        *,
        nu: Weight = 1.0,
        upsilon: Weight = 1.0,
        sigma: Temperature = 0.5,
        dof: Annotated[float, Limits(above=2, most=10**6)] = 3.0,
        tau: Temperature = 0.5,
        prior: str | Callable[[Tensor], Tensor] = "pca",
        prior_size: Size | None = None,
        prior_precision: str = "float32",
        mode: Mode = "cached",
        balance: ChosenRatio = "auto",
        balance_until: ChosenShare = None,
    ) -> None:
        super().__init__(balance=balance, balance_until=balance_until)
        self.nu, self.upsilon, self.sigma, self.dof, self.tau = nu, upsilon, sigma, dof, tau
        self.features = StepFeatures(prior, mode=mode, size=prior_size, precision=prior_precision, owner="adc")
        self.prior = self.features.prior

    def check(self, dataset: "Images") -> None:
        """Raises UserError for features of a file that do not fit the data set."""
        self.features.prior.check(dataset)

    def prepare(self, dataset: "Images", *, cache: Path | None = None, steps: int = 0) -> None:
        """Fit the prior, and read or compute its features of every clean image; see `StepFeatures.prepare`."""
        self.features.prepare(dataset, cache=cache)

    @property
    def needs_slow(self) -> bool:
        return self.features.of_itself

    def describe(self) -> str:
        """A line on the prior."""
        return self.features.describe()

    def weights(self) -> dict[str, float]:
        """nu and upsilon."""
        return {"adc/calibrate": self.nu, "adc/preserve": self.upsilon}

    def terms(self, e: Embeddings, images: Tensor | None) -> dict[str, Tensor]:
        """{"adc/calibrate": nu L_DCM, "adc/preserve": upsilon L_LPM}, equal on every rank; 0 for a single row of z.

        e, images: see `Regularizer.terms`; e.views is needed for mode="view".
        """
        with torch.autocast(e.z.device.type, enabled=False):
            z, index, rows = of_rank(wide(e.z), e.index, as_code=False)
            anchors = torch.arange(len(z), device=z.device) if rows.anchors is None else rows.anchors
            if len(z) < 2:
                return dict.fromkeys(self.weights(), z.sum() * 0)
            square = from_anchors(z, anchors)
            columns, n = torch.arange(len(z), device=z.device), len(index)
            itself, same_image = columns == anchors[:, None], columns % n == anchors[:, None] % n
            near = log_shares(gaussian(square, self.sigma), itself)
            seen = log_shares(student_t(square, self.sigma, self.dof), itself)
            density = self._log_prior(e, index, images, anchors).to(seen)
            prior, spread = log_shares(density, itself), entropy(log_shares(density, same_image))
            self.watched = {"adc/entropy": spread.mean(), "adc/entropy_sd": spread.std(correction=0)}
            calibrate = (divergence(near, seen) / spread.clamp_min(LEAST_ENTROPY)).mean()
            preserve = divergence(prior, seen).mean()
        return {
            "adc/calibrate": self.nu * mean_over_ranks(calibrate),
            "adc/preserve": self.upsilon * mean_over_ranks(preserve),
        }

    @torch.no_grad()
    def _log_prior(self, e: Embeddings, index: Tensor, images: Tensor | None, anchors: Tensor) -> Tensor:
        """Log density of the prior around each anchor, (r, n), in fp64 beside fp64 embeddings."""
        if self.features.mode == "view":
            features = self.features.of_views(e)
        else:
            features = self.features.of_images(e, index, images).repeat(len(e.z), 1)
        return -from_anchors(features.to(wide(e.z).dtype), anchors) / self.tau
