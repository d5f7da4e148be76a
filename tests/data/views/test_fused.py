"""The views of a GPU, whose kernels run here one operation at a time, against those of the CPU."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

import sslkit
from sslkit.data.views import crops, fused
from sslkit.data.views.augmentation import augment, view_generator
from sslkit.data.views.recipe import BYOL, SIMCLR, View, ViewRecipe

LOCAL = ViewRecipe((View(blur=0.0),), local=View(scale=(0.05, 0.4), size=12, solarize=0.3), n_local=2)


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Views made by the kernels' functions, without a compiler. The number of views of each call."""
    calls = []
    render = fused.render

    def counted(sources: Sequence[Tensor], *rest) -> list[Tensor]:
        calls.append(len(sources))
        return render(sources, *rest)

    monkeypatch.setattr(fused, "suits", lambda *_: True)
    monkeypatch.setattr(fused, "_compile", lambda function: function)
    monkeypatch.setattr(fused, "render", counted)
    return calls


def pairs(
    images: Tensor, recipe: ViewRecipe, size: int, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[Tensor, Tensor]]:
    ours = augment(images, recipe, size, view_generator(0, 1, 2), compiled=True)
    monkeypatch.setattr(fused, "suits", lambda *_: False)
    return list(zip(ours, augment(images, recipe, size, view_generator(0, 1, 2)), strict=True))


@pytest.mark.parametrize("recipe", [SIMCLR, BYOL, LOCAL], ids=["simclr", "byol", "local"])
@pytest.mark.parametrize("size", [32, 48, 61])
def test_views_are_those_of_the_cpu(recipe, size, pictures: Tensor, uncompiled, monkeypatch) -> None:
    for ours, plain in pairs(pictures[:24], recipe, size, monkeypatch):
        assert ours.shape == plain.shape and ours.dtype == torch.float32
        torch.testing.assert_close(ours, plain, atol=2e-5, rtol=0)
    assert uncompiled == [len(recipe.each())]


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_any_number_of_channels_and_floats(channels: int, uncompiled, monkeypatch, generator: torch.Generator) -> None:
    images = torch.rand(6, channels, 20, 33, generator=generator)
    for ours, plain in pairs(images, BYOL, 24, monkeypatch):
        torch.testing.assert_close(ours, plain, atol=2e-5, rtol=0)


def test_clips(uncompiled, monkeypatch, pictures: Tensor) -> None:
    clips = pictures[:24].view(4, 1, 6, 3, 48, 48).transpose(2, 3).contiguous()
    for ours, plain in pairs(clips, SIMCLR, 32, monkeypatch):
        torch.testing.assert_close(ours, plain, atol=2e-5, rtol=0)


@pytest.mark.parametrize("recipe", [BYOL, SIMCLR.replace(flip=1.0)], ids=["byol", "mirrored"])
def test_views_of_crops(recipe: ViewRecipe, pictures: Tensor, uncompiled, monkeypatch) -> None:
    batch = crops.Crops((torch.stack([pictures, pictures.flip(0)], 1),), torch.zeros(2, 64, 4))
    ours = crops.finish(batch, recipe, view_generator(0, 0, 0), compiled=True)
    monkeypatch.setattr(fused, "suits", lambda *_: False)
    for a, b in zip(ours, crops.finish(batch, recipe, view_generator(0, 0, 0)), strict=True):
        torch.testing.assert_close(a, b, atol=2e-5, rtol=0)


def test_without_a_compiler_the_views_are_made_and_it_is_said_once(pictures: Tensor, monkeypatch) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("Cannot find a working triton installation.\nmore")

    monkeypatch.setattr(fused, "_failed", [])
    monkeypatch.setattr(fused, "_compile", refuse)
    monkeypatch.setattr(fused, "suits", lambda *_: not fused._failed)
    with pytest.warns(UserWarning, match="slower: Cannot find a working triton installation"):
        views = augment(pictures, SIMCLR, 32, view_generator(0, 0, 0), compiled=True)
    plain = augment(pictures, SIMCLR, 32, view_generator(0, 0, 0), compiled=True)  # warns no more
    assert all(torch.equal(a, b) for a, b in zip(views, plain, strict=True))


def test_memory_that_runs_out_is_not_a_missing_compiler(pictures: Tensor, monkeypatch) -> None:
    def full(_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(fused, "_failed", [])
    monkeypatch.setattr(fused, "_compile", full)
    monkeypatch.setattr(fused, "suits", lambda *_: True)
    with pytest.raises(torch.OutOfMemoryError):
        augment(pictures, SIMCLR, 32, view_generator(0, 0, 0), compiled=True)
    assert not fused._failed


@pytest.mark.parametrize("asked", [False, True])
def test_only_views_that_are_asked_for_are_compiled(asked: bool, uncompiled) -> None:
    images = sslkit.open_images("digits", image_size=16)
    method = sslkit.method("simclr", image_size=16, in_chans=images.channels)
    method.compiled_views = asked
    method.make_views(images.__getitems__([0, 1])["images"])
    assert uncompiled == [2] * asked


def test_on_a_cpu_nothing_is_compiled(pictures: Tensor) -> None:
    assert not fused.suits([pictures.repeat(40, 1, 1, 1)], [224])


@pytest.mark.nightly
def test_compiled_kernels_give_the_same_views(pictures: Tensor, monkeypatch) -> None:
    """By torch's compiler for the CPU: two kernels for what is read, then one for each function and axis of blur."""
    from torch._inductor import metrics

    monkeypatch.setattr(fused, "suits", lambda *_: True)
    torch._dynamo.reset(), metrics.reset()
    for ours, plain in pairs(pictures[:8], BYOL, 24, monkeypatch):
        torch.testing.assert_close(ours, plain, atol=2e-5, rtol=0)
    assert metrics.generated_kernel_count == 6  # for both views; the mean is torch's own
