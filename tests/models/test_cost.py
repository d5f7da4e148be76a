"""Multiply-adds of a network, beside those that torch counts."""

import torch

import sslkit


def test_multiply_adds_are_those_that_torch_counts() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    for word, size in (("random:narrow_resnet", 28), ("random:resnet10t", 64)):
        model = sslkit.load(word, image_size=size)
        with FlopCounterMode(display=False) as counter:
            model(torch.zeros(1, 3, size, size))
        assert model.multiply_adds == counter.get_total_flops() // 2 > 10**6
    assert not any(layer._forward_hooks for layer in model.net.modules())
