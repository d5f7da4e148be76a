"""The slow copy of the backbone that `prior=self` learns from."""

from torch import Tensor, nn

from sslkit.embeddings import wide
from sslkit.layers import teacher
from sslkit.numerics import schedules

MOMENTUM = 0.99  # at the start; it rises to 1 as a cosine; as of teachers of short runs, not tuned for priors


class SlowNetwork(nn.Module):
    """An exponential moving average of the backbone. It has no gradient and is not the objective's teacher.

    What keeps the network from following itself: the average is slow, its features are the backbone's, which cluster
    better than the projections that learn from them (Weng et al. 2025, section 3), and those of the first view teach
    the others. It is always in eval mode, so that an image's features depend on no other image of the batch.
    """

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.network = teacher.copy_of(backbone)
        self.train(False)

    def train(self, mode: bool = True) -> "SlowNetwork":
        """Stay in eval mode."""
        return super().train(False)

    def forward(self, view: Tensor) -> Tensor:
        """Normalised views (N, C, H, W) to features (N, F), fp32."""
        with teacher.inference(self.network):
            return wide(self.network(view))

    def follow(self, backbone: nn.Module, progress: float) -> None:
        """Move towards the backbone after an optimiser step. progress: 0 to 1."""
        teacher.follow(self.network, backbone, momentum=schedules.along_cosine(MOMENTUM, 1.0, progress))
