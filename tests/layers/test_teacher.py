"""The teacher against the moving average written out, parameter by parameter and buffer by buffer."""

import pytest
import torch
from torch import nn

from sslkit import backbones
from sslkit.errors import UserError
from sslkit.layers import teacher


def student() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3), nn.Flatten())
    return body, nn.Linear(3 * 4, 5)


def changed(*modules: nn.Module) -> None:
    with torch.no_grad():
        for module in modules:
            for p in module.parameters():
                p.add_(torch.randn_like(p))
    modules[0](torch.randn(7, 2, 2, 2))  # moves the running statistics and counts


def values(*modules: nn.Module) -> dict[str, torch.Tensor]:
    return {k: v.clone() for k, v in nn.Sequential(*modules).state_dict().items()}


def test_the_copy_is_equal_apart_and_without_gradient() -> None:
    modules = student()
    copied = teacher.copy_of(*modules)
    assert all(torch.equal(v, values(*modules)[k]) for k, v in copied.state_dict().items())
    assert not any(p.requires_grad for p in copied.parameters())
    assert all(p.requires_grad for module in modules for p in module.parameters())
    before = values(copied)
    changed(*modules)
    assert all(torch.equal(before[k], v) for k, v in values(copied).items())


def test_following_is_the_recursion_for_parameters_and_buffers() -> None:
    modules = student()
    slow = teacher.copy_of(*modules)
    expected = values(slow[0], slow[1])
    for momentum in (0.9, 0.5, 0.996):
        changed(*modules)
        teacher.follow(slow, *modules, momentum=momentum)
        fast = values(*modules)
        for k, old in expected.items():
            expected[k] = momentum * old + (1 - momentum) * fast[k] if old.is_floating_point() else fast[k]
    assert expected["0.1.num_batches_tracked"] == 3
    assert expected["0.1.running_var"].ne(1).all() and expected["0.1.running_mean"].ne(0).all()
    for k, v in values(slow[0], slow[1]).items():
        torch.testing.assert_close(v, expected[k], rtol=1e-6, atol=1e-7, msg=lambda m, k=k: f"{k}: {m}")


@pytest.mark.parametrize("momentum", [0.0, 1.0])
def test_at_the_ends_it_copies_or_stands_still(momentum: float) -> None:
    modules = student()
    slow = teacher.copy_of(*modules)
    before = values(slow[0], slow[1])
    changed(*modules)
    teacher.follow(slow, *modules, momentum=momentum)
    expected = before if momentum else values(*modules)
    for k, v in values(slow[0], slow[1]).items():
        assert torch.equal(v, expected[k]) or not v.is_floating_point(), k


def test_the_student_stays_as_it_is() -> None:
    modules = student()
    slow = teacher.copy_of(*modules)
    changed(*modules)
    before = values(*modules)
    teacher.follow(slow, *modules, momentum=0.5)
    assert all(torch.equal(before[k], v) for k, v in values(*modules).items())


@pytest.mark.parametrize("dtypes", [(torch.float64, torch.float64), (torch.float32, torch.float64)])
def test_other_and_mixed_types(dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    modules = [module.to(dtype) for module, dtype in zip(student(), dtypes, strict=True)]
    slow = teacher.copy_of(*modules)
    weight = slow[1].weight.clone()
    with torch.no_grad():
        modules[1].weight.add_(1)
    teacher.follow(slow, *modules, momentum=0.75)
    assert slow[1].weight.dtype is dtypes[1]
    torch.testing.assert_close(slow[1].weight.detach(), weight + 0.25)


def test_a_student_without_buffers() -> None:
    layer = nn.Linear(2, 2)
    slow = teacher.copy_of(layer)
    with torch.no_grad():
        layer.bias.add_(1)
    teacher.follow(slow, layer, momentum=0.5)
    torch.testing.assert_close(slow[0].bias, layer.bias - 0.5)


def test_another_network_than_the_copied_one_is_refused() -> None:
    body, head = student()
    slow = teacher.copy_of(body, head)
    with pytest.raises(ValueError, match="shorter"):
        teacher.follow(slow, body, momentum=0.5)


def test_a_momentum_is_a_share() -> None:
    assert [teacher.check_momentum(m) for m in (0, 0.996, 1)] == [0, 0.996, 1]
    for momentum in (-0.1, 1.01, float("nan")):
        with pytest.raises(UserError, match="momentum"):
            teacher.check_momentum(momentum)


@pytest.mark.parametrize("name", ["narrow_resnet", "narrow_vit"])
def test_inference_under_autocast_is_the_plain_pass_and_leaves_the_weights(name: str) -> None:
    slow = teacher.copy_of(backbones.build(name, image_size=32, in_chans=3)).eval()
    before = {k: v.clone() for k, v in slow.state_dict().items()}
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    places = []
    for _ in range(2):  # the halves are used again
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
            expected = slow(images)
            with teacher.inference(slow):
                found = slow(images)
                layers = [layer for layer in slow.modules() if type(layer) in (nn.Linear, nn.Conv2d)]
                assert layers and all(layer.weight.dtype is torch.bfloat16 for layer in layers)
                places.append(layers[0].weight.data_ptr())
        assert torch.equal(found, expected)
        assert all(torch.equal(v, before[k]) and v.dtype is before[k].dtype for k, v in slow.state_dict().items())
    assert places[0] == places[1]


def test_inference_has_no_gradient_and_puts_the_weights_back_after_an_error() -> None:
    slow = torch.nn.Sequential(torch.nn.Linear(3, 2))
    with teacher.inference(slow):
        assert not slow(torch.ones(1, 3)).requires_grad and slow[0].weight.dtype is torch.float32
    with pytest.raises(ZeroDivisionError), torch.autocast("cpu", dtype=torch.bfloat16), teacher.inference(slow):
        raise ZeroDivisionError
    assert slow[0].weight.dtype is torch.float32
