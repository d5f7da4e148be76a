"""The pretended GPU finds every kind of fault and wait that is planted, and nothing where there is none."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from contract import batch, build
from pretended_device import Pretended
from torch import Tensor, nn

from sslkit import priors


def mixed(x: Tensor) -> None:
    x + torch.ones(3)


def mixed_in_a_list(x: Tensor) -> None:
    torch.cat([x, torch.ones(3)])


def mixed_with_a_network(x: Tensor) -> None:
    nn.Linear(3, 2)(x)


def mixed_in_backward(x: Tensor) -> None:
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, given: Tensor) -> Tensor:
            return given * 2

        @staticmethod
        def backward(ctx, grad: Tensor) -> Tensor:
            return grad * torch.ones(3)

    Wrong.apply(x.requires_grad_()).sum().backward()


def two_devices(x: Tensor) -> None:
    x + x.to("cuda:1")


def numpy(x: Tensor) -> None:
    x.numpy()


def asarray(x: Tensor) -> None:
    np.asarray(x)


def generator_of_the_cpu(x: Tensor) -> None:
    torch.rand(3, device=x.device, generator=torch.Generator())


def generator_in_place(x: Tensor) -> None:
    x.uniform_(generator=torch.Generator())


def index_of_a_cpu_tensor(x: Tensor) -> None:
    torch.ones(3)[x.long()]


def integers_multiplied(x: Tensor) -> None:
    x.long()[None] @ x.long()


def read_too_early(x: Tensor) -> None:
    x.to("cpu", non_blocking=True).numpy()


def read_too_early_in_place(x: Tensor) -> None:
    kept = torch.empty(3, pin_memory=True)
    kept.copy_(x, non_blocking=True)
    kept.sum()


FAULTS = [
    mixed, mixed_in_a_list, mixed_with_a_network, mixed_in_backward, two_devices, numpy, asarray, generator_of_the_cpu,
    generator_in_place, index_of_a_cpu_tensor, integers_multiplied, read_too_early, read_too_early_in_place,
]  # fmt: skip


@pytest.mark.parametrize("planted", FAULTS)
def test_a_fault_is_found_where_it_is(planted) -> None:
    with Pretended(devices=2) as gpu:
        planted(torch.arange(3.0).cuda())
    places = {one.place for one in gpu.faults}
    assert places == {f"tests/test_pretended_device.py {planted.__name__}"} or "backward" in places.pop(), gpu.report()


def item(x: Tensor) -> None:
    x.sum().item()


def truth(x: Tensor) -> None:
    bool(x.sum() > 0)


def tolist(x: Tensor) -> None:
    x.tolist()


def written(x: Tensor) -> None:
    str(x)


def boolean_mask(x: Tensor) -> None:
    x[x > 1]


def boolean_mask_of_values(x: Tensor) -> None:
    x[x > 1] = x[:1]


def nonzero(x: Tensor) -> None:
    x.nonzero()


def unique(x: Tensor) -> None:
    x.unique()


def to_the_cpu(x: Tensor) -> None:
    x.cpu()


def from_the_cpu(x: Tensor) -> None:
    torch.ones(3).to(x)


def unpinned(x: Tensor) -> None:
    torch.ones(3).to(x.device, non_blocking=True)


def pinned_and_waited_for(x: Tensor) -> None:
    torch.ones(3).pin_memory().to(x.device)


def copied_in_place(x: Tensor) -> None:
    x.copy_(torch.ones(3))


def new_tensor(x: Tensor) -> None:
    x.new_tensor([1.0, 2.0])


def made_of_a_list(x: Tensor) -> None:
    torch.tensor([1.0, 2.0], device=x.device)


def index_on_the_cpu(x: Tensor) -> None:
    x[torch.tensor([0, 2])]


def repeats(x: Tensor) -> None:
    x.repeat_interleave(x.long())


def eigenvalues(x: Tensor) -> None:
    torch.linalg.eigh(x[:, None] * x)


def factor(x: Tensor) -> None:
    torch.linalg.cholesky(torch.eye(3, device=x.device))


def synchronize(x: Tensor) -> None:
    torch.cuda.synchronize()


def event_just_recorded(x: Tensor) -> None:
    event = torch.cuda.Event()
    event.record()
    event.synchronize()


WAITS = [
    item, truth, tolist, written, boolean_mask, boolean_mask_of_values, nonzero, unique, to_the_cpu, from_the_cpu,
    unpinned, pinned_and_waited_for, copied_in_place, new_tensor, made_of_a_list,
    index_on_the_cpu, repeats, eigenvalues, factor, synchronize, event_just_recorded,
]  # fmt: skip


@pytest.mark.parametrize("planted", WAITS)
def test_a_wait_is_found_where_it_is(planted) -> None:
    with Pretended() as gpu:
        x = torch.arange(3.0).pin_memory().to("cuda", non_blocking=True)
        assert not gpu.waits
        planted(x)
    assert {one.place for one in gpu.waits} == {f"tests/test_pretended_device.py {planted.__name__}"}
    assert not gpu.faults


def arithmetic(x: Tensor) -> None:
    (2 * x + torch.tensor(3.0)).clamp_(min=0).where(x > 1, 0.0)


def filled(x: Tensor) -> None:
    x[x > 1] = 0
    x[:1] = 5.0


def made_there(x: Tensor) -> None:
    torch.zeros(3, device=x.device) + torch.arange(3, device=x.device) + x.new_full((3,), 2.0) + torch.zeros_like(x)


def pinned(x: Tensor) -> None:
    torch.ones(3).pin_memory().to(x.device, non_blocking=True) + x


def read_late(x: Tensor) -> None:
    found, event = x.to("cpu", non_blocking=True), torch.cuda.Event()
    event.record()
    for _ in range(200):
        x.add_(1)
    event.synchronize()
    assert found.tolist() == [0, 1, 2]


def trained(x: Tensor) -> None:
    layer = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout()).to(x.device)
    optimizer = torch.optim.AdamW(layer.parameters(), 1e-3)
    F.mse_loss(copy.deepcopy(layer)(x.expand(4, 3)), layer(x.expand(4, 3))).backward()
    nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
    optimizer.step()
    assert all(p.is_cuda and p.grad.device == torch.device("cuda", 0) for p in layer.parameters())


@pytest.mark.parametrize("sound", [arithmetic, filled, made_there, pinned, read_late, trained])
def test_what_a_gpu_does_without_waiting_is_neither(sound) -> None:
    with Pretended() as gpu:
        x = torch.arange(3.0).pin_memory().to("cuda", non_blocking=True)
        gpu.watching = sound is not trained  # whose weights are copied
        sound(x)
    assert not gpu.faults and not gpu.waits, gpu.report()
    assert gpu.launches


def test_numbers_are_those_of_the_cpu_and_the_cpu_is_left_alone() -> None:
    images, index = batch(6)
    losses = []
    for device in ("cpu", "cuda"):
        with Pretended() as gpu:
            m = build("byol+koleo").to(device)
            loss = m(images.to(device), index.to(device))["loss"]
            assert (loss.device.type, bool(gpu.launches)) == (device, device == "cuda")
            losses.append(loss.item())
        assert not gpu.faults, gpu.report()
    assert losses[0] == losses[1]


def test_what_is_cached_in_one_context_is_on_the_device_in_the_next() -> None:
    for _ in range(2):
        with Pretended() as gpu:
            priors.build("hog")(torch.zeros(2, 3, 16, 16, device="cuda"))
        assert gpu.launches and not gpu.faults, gpu.report()


def test_launches_and_bytes_are_counted_and_views_are_free() -> None:
    with Pretended() as gpu:
        x = torch.zeros(4, 8, device="cuda")
        gpu.clear()
        x.T[1:].unsqueeze(0) + 1
        x.expand(16, 4, 8).sum()
    assert gpu.launches == {"add": 1, "sum": 1}
    assert gpu.bytes == {"add": 2 * 7 * 4 * 4, "sum": 4 * 8 * 4 + 4}
    assert sum(gpu.places.values()) == 2 and all(place.startswith("tests/test_pre") for place in gpu.places)


def test_seeds_are_those_of_the_device() -> None:
    with Pretended() as gpu:
        torch.manual_seed(5)
        before = torch.cuda.get_rng_state()
        torch.cuda.manual_seed_all(6)
        torch.cuda.set_rng_state(before)
        assert gpu.seed == 5
