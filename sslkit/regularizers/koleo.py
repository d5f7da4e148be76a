"""KoLeo: spread the embeddings by their nearest neighbours (Sablayrolles et al. 2019, arXiv 1806.03198)."""

from torch import Tensor

from sslkit.embeddings import Embeddings, wide
from sslkit.layers.koleo import koleo, nearest_distance
from sslkit.options.ranges import ChosenShare, Ratio, Share, Weight
from sslkit.regularizers.base import Regularizer


class KoLeo(Regularizer):
    """Minus the mean log distance to the nearest other image, within each view.

    weight: multiplies the term. DINOv2 uses 0.1.
    balance: ratio of its gradient's norm to the objective's; None leaves the weight as it is.
    balance_until: finished share of the run from which on the factor of the balance is kept; None is 1.
    eps: added to the distance, so that duplicates give a finite value.
    """

    needs_images = False

    def __init__(
        self,
        dim: int,
        *,
        weight: Weight = 0.1,
        eps: Share = 1e-8,
        balance: Ratio = None,
        balance_until: ChosenShare = None,
    ) -> None:
        super().__init__(balance=balance, balance_until=balance_until)
        self.weight = weight
        self.eps = eps

    def weights(self) -> dict[str, float]:
        return {"koleo": self.weight}

    def terms(self, e: Embeddings, images: Tensor | None) -> dict[str, Tensor]:
        distance = nearest_distance(wide(e.z))
        self.watched = {"koleo/distance": distance.detach().mean()}
        return {"koleo": self.weight * koleo(distance, self.eps)}
