"""Any timm model, downloaded or from a local file of weights."""

import torch
from torch import nn

from sslkit.backbones.pretrained import timm_network
from sslkit.priors.base import NetworkPrior


class TimmPrior(NetworkPrior):
    """`timm:NAME[:FILE]`."""

    @classmethod
    def named(cls, name: str, *, size: int | None, precision: str) -> "TimmPrior":
        _, model, weights = (*name.split(":", 2), "", "")[:3]
        with torch.random.fork_rng(devices=[]):  # keeps the caller's random state
            network, config = _timm(name, model, weights)
        return cls.of(name, network, config, size=size, precision=precision)


def _timm(prior: str, name: str, weights: str) -> tuple[nn.Module, dict]:
    local = f"prior=timm:{name}:FILE, or a prior without download, prior=pca or prior=hog"
    network, config = timm_network(name, weights, where=f"prior {prior}", local=local)
    return network, {**config, "size": min(config["input_size"][1:])}
