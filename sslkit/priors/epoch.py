"""The network in training as it was after epoch K, frozen from there on: `epoch:K`."""

import torch
from torch import Tensor, nn

from sslkit.backbones.base import Backbone
from sslkit.errors import UserError
from sslkit.priors._of_run import RunPrior
from sslkit.priors.base import Prior


class EpochCopy(nn.Module):
    """The network as it is once `after` epochs are finished; it is saved, as nothing else could make it again.

    network: a copy of the backbone's, in eval mode and without gradient.
    """

    def __init__(self, network: nn.Module, after: int) -> None:
        super().__init__()
        self.network = network
        self.after = after
        self.is_taken = False
        self.train(False)

    def train(self, mode: bool = True) -> "EpochCopy":
        """Stay in eval mode."""
        return super().train(False)

    @torch.no_grad()
    def take(self, backbone: Backbone, epoch: int) -> None:
        """Copy the weights, at the first step after the epochs. epoch: number of finished ones."""
        if self.is_taken or epoch < self.after:
            return
        now = {**dict(backbone.net.named_parameters()), **dict(backbone.net.named_buffers())}
        for name, x in (*self.network.named_parameters(), *self.network.named_buffers()):
            x.copy_(now[name])
        self.is_taken = True

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.is_taken)

    def set_extra_state(self, state: Tensor) -> None:
        self.is_taken = bool(state)


class EpochPrior(RunPrior):
    """A method keeps the copy, and saves it, so that a resumed run has it: see `EpochCopy`.

    after: K, the number of finished epochs. copy: what the method keeps.
    """

    def __init__(self, name: str, *, size: int | None = None) -> None:
        super().__init__(name, size=size)
        number = name.partition(":")[2]
        if not number.isdecimal() or not int(number):
            raise UserError(f"prior {name}: write epoch:K, with the number of epochs after which the network is kept")
        if size is not None:
            raise UserError(f"prior {name} sees the views at their own size: leave prior_size={size} out")
        self.after = int(number)
        self.copy: EpochCopy | None = None

    @property
    def is_taken(self) -> bool:
        """Return whether the epochs are finished and the network is kept."""
        return self.copy is not None and self.copy.is_taken


def of_all_steps(prior: Prior, owner: str) -> Prior:
    """The prior, if it has features from the first step on. Raises UserError, in the owner's name, if not."""
    if isinstance(prior, EpochPrior):
        raise UserError(
            f"{owner}.prior={prior.name} has no features before: only retain, gram and paka can wait for it"
        )
    return prior
