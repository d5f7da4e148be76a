"""Running means and variances that are made anew are those of the images, and nothing else changes."""

import torch
from torch import nn

from sslkit.layers.batch_statistics import recompute_statistics


def test_statistics_are_means_over_batches_of_the_layers_inputs() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(), nn.Conv2d(4, 5, 1), nn.BatchNorm2d(5)
    )
    net.train()
    net[3].eval()
    batches = [torch.randn(6, 3, 8, 8) for _ in range(4)]
    weights = {name: value.clone() for name, value in net.named_parameters()}
    recompute_statistics(net, iter(batches))
    first = torch.stack([net[0](images).transpose(0, 1).flatten(1) for images in batches])
    assert torch.allclose(net[1].running_mean, first.mean((0, 2)), atol=1e-5)
    assert torch.allclose(net[1].running_var, first.var(2).mean(0), atol=1e-4)
    net[1].train()
    seconds = [net[4](net[2](net[1](net[0](images)))).transpose(0, 1).flatten(1) for images in batches]
    assert torch.allclose(net[5].running_mean, torch.stack(seconds).mean((0, 2)), atol=1e-5), "without dropout"
    assert all(torch.equal(value, weights[name]) for name, value in net.named_parameters())
    assert net.training and net[1].training and not net[3].training and net[1].momentum == 0.1


def test_a_network_without_batch_normalisation_is_not_run() -> None:
    recompute_statistics(nn.Linear(2, 2), iter([None]))
