"""Regression targets of a network: the whitened principal components of a prior's features of its views."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.embeddings import Embeddings, mean_over_ranks, own_rows
from sslkit.errors import UserError, check_one_of
from sslkit.files.store import key_of
from sslkit.priors import build
from sslkit.priors._features import FeatureTable, features_of, fit, some_features, tabulate
from sslkit.priors.base import NetworkPrior
from sslkit.priors.epoch import of_all_steps
from sslkit.priors.features import FilePrior
from sslkit.priors.self import SelfPrior, slow_features
from sslkit.runtime.device import to_device_of
from sslkit.runtime.kept_arrays import load_or_compute
from sslkit.runtime.waiting import from_first
from sslkit.terminal import say

if TYPE_CHECKING:
    from sslkit.data.sources.named import Images

Mode = Literal["auto", "view", "cached"]
VERSION = 1  # of the whitening, in the names of cached ones: raise it when it changes
STATE = ("mean", "basis", "prior_fit", "channels")
LEAST = 1e-5  # of the largest standard deviation, or of the mean: what is below it is rounding


class PriorTargets(nn.Module):
    """e -> (V, N_local, K) targets of this rank's views, fp32, without gradient: W (prior(view) - mean).

    W: the first K principal components of the prior's features of clean images, each over the square root of its
        standard deviation: halfway between principal components as they are and white ones. With prior=self, whose
        features change, W is the identity, or a fixed random projection if there are more than K features, and the mean
        that of the batch; the target of all views of an image is that of its first.

    prior, prior_size, prior_precision: see `sslkit.priors.build`. components: K; missing ones are 0.
    mode: features of each view, or of the clean image for all of its views, looked up (cached); auto: cached for
        features:FILE, otherwise view.
    owner: name of the part of the method, for messages.
    kind: words that tell a subclass's kept fits from those of pooled features.
    `prepare` fits W and mean, which are saved with the module. Before it, W is a fixed random projection, with a
    warning. Raises UserError for options that do not fit.
    """

    kind: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        prior: str | Callable[[Tensor], Tensor],
        *,
        components: int,
        mode: Mode,
        size: int | None,
        precision: str,
        owner: str,
    ) -> None:
        super().__init__()
        check_one_of(f"{owner}.mode", mode, get_args(Mode))
        self.prior = of_all_steps(build(prior, size=size, precision=precision), owner)
        self.of_file = isinstance(self.prior, FilePrior)
        self.of_itself = isinstance(self.prior, SelfPrior)
        if mode == "view" and (self.of_file or self.of_itself):
            of, instead = ("clean images", "cached") if self.of_file else ("the first view", "auto")
            raise UserError(
                f"{owner}.prior={self.prior.name} has features of {of} only: use method.{owner}.mode={instead}"
            )
        self.cached = mode == "cached" or self.of_file
        self.components, self.owner = components, owner
        self._table = FeatureTable(self.prior.array) if self.of_file else None
        self._said = False
        self._drawn: Tensor | None = None
        for name in STATE:  # filled by `prepare` or from a checkpoint
            self.register_buffer(name, torch.empty(0))

    def sample(self, dataset: "Images") -> Tensor:
        """(n, A) features of clean images that W is fitted to."""
        return some_features(self.prior, dataset, self._table, self.mean.device)

    @property
    def is_fitted(self) -> bool:
        return self.basis.numel() > 0

    def describe(self) -> str:
        """A line on the prior."""
        if self.of_itself:
            return "learns the features of a slow copy of the network for the first view of each image"
        of = "the clean image" if self.cached else "each view"
        if isinstance(self.prior, NetworkPrior):
            return f"distils {':'.join(self.prior.name.split(':')[:2])}: learns what it says of {of}"
        return f"learns what prior {self.prior.name} says of {of}"

    def check(self, dataset: "Images") -> None:
        """Raises UserError for a data set that the prior does not fit."""
        self.prior.check(dataset)

    def prepare(self, dataset: "Images", *, cache: Path | None) -> None:
        """Fit the prior and W to the clean images, unless a checkpoint had them. All ranks must call this.

        cache: folder for both, and for features, keyed by content; None keeps them in memory.
        Raises UserError for features that do not fit the data set, that are not finite, or that do not vary.
        """
        if self.of_itself:
            return
        if self.prior.needs_fit and not self.prior_fit.numel():
            fit(self.prior, dataset, cache=cache)
            self.prior_fit = torch.from_numpy(self.prior.components_of_fit()).to(self.mean.device)
            self.channels = self.prior_fit.new_tensor([dataset.channels])
        if self.cached:
            self._table = tabulate(self.prior, dataset, cache=cache, device=self.mean.device)
        if not self.is_fitted:
            fitted = torch.from_numpy(self._whitening(dataset, cache)).to(self.mean.device)
            self.mean, self.basis = fitted[0].clone(), fitted[1:].T.contiguous()

    def forward(self, e: Embeddings) -> Tensor:
        with torch.no_grad(), torch.autocast(e.h.device.type, enabled=False):
            if self.of_itself:
                return self._slow(e).expand(len(e.z), -1, -1)
            if self.cached:
                return self.whiten(self._look_up(e)).expand(len(e.z), -1, -1)
            if e.views is None:
                raise UserError(f"{self.owner} needs the augmented views (e.views), which are missing")
            distinct = {id(view): view for view in e.views}  # the parts of one view have one target
            targets = {key: self.whiten(features_of(self.prior, view, self.owner)) for key, view in distinct.items()}
            return torch.stack([targets[id(view)] for view in e.views])

    def whiten(self, features: Tensor) -> Tensor:
        """W (features - mean), (N, A) -> (N, K)."""
        if not self.is_fitted:
            return features @ self._projection(features)
        if features.shape[1] != len(self.mean):
            raise UserError(
                f"{self.owner}: prior {self.prior.name} gives {features.shape[1]} features here, and gave "
                f"{len(self.mean)} of the clean images"
            )
        return (features - self.mean.to(features)) @ self.basis.to(features)

    def _slow(self, e: Embeddings) -> Tensor:
        """(N_local, K) of this rank's images, around the mean of all ranks; 0 for what differs from it by rounding."""
        features = slow_features(e, self.owner)
        mean = features.mean(0)
        target = own_rows(features, 0) - mean
        varies = target.norm(dim=1, keepdim=True) > LEAST * mean.norm()
        return torch.where(varies, target, 0) @ self._projection(features)

    def _look_up(self, e: Embeddings) -> Tensor:
        if self._table is None:
            raise UserError(f"{self.owner}.mode=cached looks up the clean images: call method.prepare(images) first")
        return self._table.rows(own_rows(e.index, 0))

    def _whitening(self, dataset: "Images", cache: Path | None) -> np.ndarray:
        """(1 + K, A) float32: the mean, and the rows of W."""
        what = f"the components of prior {self.prior.name}"

        def compute(_: Sequence[Sequence[int]]) -> Iterator[np.ndarray]:
            features = self.sample(dataset)
            yield whitening(features, self.components, f"{self.owner}.prior={self.prior.name}").numpy()

        if cache is None or (self.prior.identity is None and not self.of_file):
            # One rank alone, as rounding could turn components that are nearly equal.
            return np.array(from_first(what, lambda: next(compute([])).tolist()), dtype=np.float32)
        about = key_of(self.prior.array) if self.of_file else self.prior.identity
        digest = from_first("the content of the images", lambda: dataset.digest)
        key = key_of("whitening", VERSION, self.components, about, digest, *self.kind)
        return np.array(load_or_compute(Path(cache) / f"whitening-{key}.npy", None, compute, what=what))

    def _projection(self, features: Tensor) -> Tensor:
        """(A, K) for features (N, A): the first columns of the identity, or random ones if there are more features."""
        width = features.shape[1]
        if not (self._said or self.of_itself):
            say.warn(
                f"{self.owner} was fitted to no data set (call Method.prepare): its targets are a random projection",
                stacklevel=2,
            )
            self._said = True
        if width <= self.components:
            return torch.eye(width, self.components, device=features.device, dtype=features.dtype)
        if self._drawn is None or len(self._drawn) != width:
            self._drawn = torch.randn(width, self.components, generator=torch.Generator().manual_seed(0)) / width**0.5
        self._drawn = to_device_of(self._drawn.to(features.dtype), features)
        return self._drawn

    def _load_from_state_dict(self, state: dict[str, Tensor], prefix: str, *others: object) -> None:
        for name in STATE:  # their shapes are the prior's
            if f"{prefix}{name}" in state:
                setattr(self, name, torch.empty_like(state[f"{prefix}{name}"], device=self.mean.device))
        super()._load_from_state_dict(state, prefix, *others)
        if self.prior_fit.numel():
            self.prior.restore(self.prior_fit.float().cpu().numpy(), int(self.channels))


def whitening(features: Tensor, components: int, name: str) -> Tensor:
    """(1 + components, A) float32: the mean, and the principal components over the square roots of their sds.

    features: (n, A). Directions that do not vary are 0, and so are missing ones. The sign of a component makes its
    largest entry positive. name: of the prior, for messages. Raises UserError if the features do not vary.
    """
    x = features.double()
    mean = x.mean(0)
    x = (x - mean) / max(1, len(x)) ** 0.5
    wide = x.shape[1] > len(x)
    values, vectors = torch.linalg.eigh(x @ x.T if wide else x.T @ x)
    values, vectors = values.flip(0)[:components], vectors.flip(1)[:, :components]
    sd = values.clamp_min(0).sqrt()
    varies = sd > LEAST * max(sd[0].item(), mean.abs().max().item() * 1e-3)
    if not varies.any():
        raise UserError(f"{name} has the same features for all images: nothing can be learned from it")
    vectors, sd = vectors[:, varies], sd[varies]
    if wide:
        vectors = F.normalize(x.T @ vectors, dim=0)
    signs = vectors.gather(0, vectors.abs().argmax(0, keepdim=True)).sign()
    fitted = torch.zeros(1 + components, x.shape[1], dtype=torch.float64)
    fitted[0] = mean
    fitted[1 : 1 + len(sd)] = (vectors * signs / sd.sqrt()).T
    return fitted.float()


def regression_loss(predicted: Tensor, target: Tensor) -> Tensor:
    """The mean of 1 - cos(predicted, target) over views, images and ranks. Both (V, N_local, K). Scalar."""
    return mean_over_ranks(1 - F.cosine_similarity(predicted, target.to(predicted), dim=-1).mean())
