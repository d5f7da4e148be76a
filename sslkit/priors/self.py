"""The network that is trained as its own prior, by a slow copy of it (after Weng et al. 2025, arXiv 2501.18452)."""

from torch import Tensor

from sslkit.embeddings import Embeddings
from sslkit.errors import UserError
from sslkit.priors.base import Prior


def slow_features(e: Embeddings, owner: str) -> Tensor:
    """(N, F) of the images of all ranks, rank by rank. Raises UserError, in the owner's name, if e has none."""
    if e.slow is None:
        raise UserError(f"{owner}.prior=self needs the slow network's features (e.slow), which a sslkit.method makes")
    return e.slow


class SelfPrior(Prior):
    """Features of each image's first view by a slow copy of the backbone: `sslkit.composition.slow` makes them.

    They are those of a training step and of no other image: nothing can be looked up, and views have none of their own.
    """

    specified = False
    resizes = False

    @classmethod
    def from_name(cls, name: str, *, size: int | None, precision: str) -> "SelfPrior":
        return cls(name)

    def extract(self, pixels: Tensor) -> Tensor:
        raise UserError(f"prior {self.name} is the network in training: only dsa, adc and guide can have it as prior")
