"""Batches shuffled over ranks where statistics of batch norms would tell keys from others."""

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from sslkit.embeddings import own_rows
from sslkit.runtime import distributed
from sslkit.runtime.device import to_device_of


def encode(network: nn.Module, images: Tensor, generator: torch.Generator | None) -> Tensor:
    """network(images) (N, ...), with shuffled images where batch statistics could leak (He et al. 2020, 1911.05722)."""
    return encode_shuffled(network, images, generator) if would_leak(network) else network(images)


def would_leak(network: nn.Module) -> bool:
    """Return whether a rank's batch statistics could reveal which keys share a query's batch (He et al., 3.3).

    False with one process, and where batch norm covers all ranks: there all keys share their statistics.
    """
    together = (nn.SyncBatchNorm, distributed.SyncBatchNorm)
    norms = [m for m in network.modules() if isinstance(m, _BatchNorm)]
    return distributed.world_size() > 1 and any(m.training and not isinstance(m, together) for m in norms)


def encode_shuffled(network: nn.Module, images: Tensor, generator: torch.Generator | None) -> Tensor:
    """network(images), where each rank encodes a random share of all ranks' images; rows return in their own order."""
    if generator is None:
        raise ValueError("shuffled batch norm: every rank must draw one permutation, from a generator in one state")
    everything = distributed.gather(images)
    order = to_device_of(torch.randperm(len(everything), generator=generator), images)
    features = distributed.gather(network(everything[own_rows(order, 0)]))
    return features[own_rows(order.argsort(), 0)]
