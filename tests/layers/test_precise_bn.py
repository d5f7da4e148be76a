"""Precise batch norm against the moments of all rows in float64."""

import pytest
import torch
from torch import nn

from sslkit.layers.precise_bn import precise_batch_norm, recompute_statistics


def test_statistics_are_those_of_all_batches(generator: torch.Generator) -> None:
    net = nn.Sequential(nn.Conv2d(3, 5, 1), nn.BatchNorm2d(5), nn.ReLU(), nn.BatchNorm2d(5)).train()
    batches = [torch.randn(4, 3, 6, 6, generator=generator) * (1 + i) + i for i in range(3)]
    assert precise_batch_norm(net, net, batches) == 3
    with torch.no_grad():
        x = torch.stack([net[0](batch) for batch in batches]).double()  # (batches, n, C, H, W)
    rows = x.permute(2, 0, 1, 3, 4).flatten(1)
    assert torch.allclose(net[1].running_mean.double(), rows.mean(1), rtol=1e-5, atol=1e-5)
    within = x.permute(2, 0, 1, 3, 4).flatten(2).var(2).mean(1)
    between = x.mean((1, 3, 4)).var(0, unbiased=False)
    assert torch.allclose(net[1].running_var.double(), within + between, rtol=1e-5)
    assert net[1].momentum == net[3].momentum == 0.1


def test_layers_in_eval_mode_and_weights_stay() -> None:
    net = nn.Sequential(nn.BatchNorm1d(2).eval(), nn.BatchNorm1d(2).train())
    precise_batch_norm(net, net, [torch.randn(8, 2) + 5])
    assert net[0].running_mean.tolist() == [0, 0] and net[1].running_mean.min() > 3
    assert precise_batch_norm(net.eval(), net, [torch.zeros(8, 2)]) == 0


def test_a_layer_that_is_used_twice_is_refused() -> None:
    norm = nn.BatchNorm1d(2)
    with pytest.raises(ValueError, match="used once in each forward pass"):
        precise_batch_norm(nn.Sequential(norm), lambda batch: norm(norm(batch)), [torch.randn(8, 2)])
    assert norm.momentum == 0.1


def test_statistics_alone_are_made_anew_and_the_rest_is_as_in_evaluation() -> None:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(), nn.Conv2d(4, 5, 1), nn.BatchNorm2d(5)]
    net = nn.Sequential(*layers)
    net[3].eval()
    batches = [torch.randn(6, 3, 8, 8) for _ in range(4)]
    weights = {name: value.clone() for name, value in net.named_parameters()}
    recompute_statistics(net, iter(batches))
    seconds = [net[4](net[2](net[1](net[0](images)))).transpose(0, 1).flatten(1) for images in batches]
    assert torch.allclose(net[5].running_mean, torch.stack(seconds).mean((0, 2)), atol=1e-5), "without dropout"
    assert all(torch.equal(value, weights[name]) for name, value in net.named_parameters())
    assert net.training and net[1].training and not net[3].training and net[1].momentum == 0.1
    mean, second = (layer.running_mean.clone() for layer in (net[1], net[5]))
    recompute_statistics(net, [images + 9 for images in batches], kept=["1"])
    assert torch.equal(net[1].running_mean, mean) and not torch.allclose(net[5].running_mean, second, atol=0.1)
    recompute_statistics(nn.Linear(2, 2), [])
