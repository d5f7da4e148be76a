"""Copies between host and device, and seeds; on a GPU they are tried by tests/on_pretended_gpu."""

import copy

import torch

import sslkit
from sslkit.runtime.device import Late, seed_generators, to_device_of, use_seed


def test_on_the_cpu_numbers_can_be_read_at_once_and_nothing_is_copied() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    late = Late(x)
    assert not late.is_late and late.read().tolist() == [1, 2] and not late.read().requires_grad
    assert copy.deepcopy(late) is late  # an event of a GPU has no copy
    assert to_device_of(x, torch.zeros(1)) is x


def test_a_seed_gives_the_same_numbers_and_leaves_the_generator() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    with use_seed(7):
        drawn = torch.rand(3)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(drawn, torch.rand(3, generator=torch.Generator().manual_seed(7)))
    seed_generators(7, torch.device("cpu"))
    assert torch.equal(drawn, torch.rand(3))


def test_a_method_is_built_without_a_change_to_any_seed(monkeypatch) -> None:
    """`torch.manual_seed` seeds every GPU, and a fork of the CPU's state alone does not restore them."""
    seeds: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    monkeypatch.setattr(torch.cuda, "manual_seed", seeds.append)
    before = torch.get_rng_state()
    sslkit.method("byol+guide", backbone="narrow_resnet", image_size=16)
    assert not seeds and torch.equal(torch.get_rng_state(), before)
