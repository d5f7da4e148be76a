"""The views of a batch: their randomness, their limits, and each option that has an exact answer."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from sslkit.data.views import augmentation
from sslkit.data.views.augmentation import augment, contact_sheet, view_generator
from sslkit.data.views.recipe import BYOL, SIMCLR, View, ViewRecipe
from sslkit.errors import UserError

SIZE = 48
PLAIN = View(scale=(1.0, 1.0), ratio=(1.0, 1.0), flip=0.0, jitter=0.0, grayscale=0.0, blur=0.0)


def one(view: View, images: Tensor, size: int = SIZE, seed: int = 0) -> Tensor:
    return augment(images, ViewRecipe((view,)), size, torch.Generator().manual_seed(seed))[0]


def test_a_plain_view_is_the_image(pictures: Tensor) -> None:
    torch.testing.assert_close(one(PLAIN, pictures), pictures / 255, atol=1e-6, rtol=0)


def test_half_of_the_views_are_mirrored(pictures: Tensor) -> None:
    images = pictures.repeat(16, 1, 1, 1)
    view, whole = one(replace(PLAIN, flip=0.5), images), images / 255
    same, mirrored = ((view - x).abs().amax((1, 2, 3)) < 1e-5 for x in (whole, whole.flip(-1)))
    assert (same | mirrored).all()
    assert 0.45 < mirrored.float().mean() < 0.55


def test_solarize_inverts_above_the_threshold(pictures: Tensor) -> None:
    images = pictures / 255
    view = one(replace(PLAIN, solarize=1.0, threshold=0.7), images)
    torch.testing.assert_close(view, torch.where(images >= 0.7, 1 - images, images), atol=1e-5, rtol=0)


@pytest.mark.parametrize("channels", [1, 2, 3, 5])
@pytest.mark.parametrize("recipe", [SIMCLR, BYOL], ids=["simclr", "byol"])
def test_any_number_of_channels(recipe: ViewRecipe, channels: int, generator: torch.Generator) -> None:
    images = torch.randint(0, 256, (5, channels, 20, 31), generator=generator, dtype=torch.uint8)
    made = augment(images, recipe, 24, generator)
    assert [v.shape for v in made] == [(5, channels, 24, 24)] * 2
    assert all(v.dtype == torch.float32 and v.min() >= 0 and v.max() <= 1 for v in made)
    assert not torch.equal(*made)


@pytest.mark.parametrize("shape", [(8, 8), (1, 1), (1, 7), (300, 3)])
@pytest.mark.parametrize("size", [1, 2, 28])
def test_tiny_and_narrow_images(shape: tuple[int, int], size: int, generator: torch.Generator) -> None:
    images = torch.rand(40, 3, *shape, generator=generator)
    for view in augment(images, BYOL.replace(scale=(0.001, 1.0)), size, generator):
        assert view.shape == (40, 3, size, size) and view.isfinite().all()


def test_bytes_and_floats_give_the_same_views(pictures: Tensor) -> None:
    for a, b in zip(
        augment(pictures, BYOL, 32, view_generator(1, 2, 3)),
        augment(pictures / 255, BYOL, 32, view_generator(1, 2, 3)),
        strict=True,
    ):
        assert (a - b).abs().mean() < 1e-5  # a pixel at the threshold of solarize may fall on either side


def test_images_laid_out_channels_last_give_the_same_views(pictures: Tensor) -> None:
    for a, b in zip(
        augment(pictures, SIMCLR, 32, view_generator(1, 2, 3)),
        augment(pictures.to(memory_format=torch.channels_last), SIMCLR, 32, view_generator(1, 2, 3)),
        strict=True,
    ):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0)


def test_one_state_one_batch_of_views(pictures: Tensor) -> None:
    first, again, other = (augment(pictures, SIMCLR, 40, view_generator(0, 1, step)) for step in (7, 7, 8))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_every_step_has_a_generator_of_its_own() -> None:
    numbers = [(seed, epoch, step) for seed in range(5) for epoch in range(5) for step in range(40)]
    assert len({torch.rand((), generator=view_generator(*n)).item() for n in numbers}) == len(numbers)
    assert torch.equal(view_generator(3, 2, 1).get_state(), view_generator(3, 2, 1).get_state())


def test_the_global_random_state_is_not_touched(pictures: Tensor) -> None:
    before = torch.get_rng_state()
    augment(pictures, BYOL, 16, view_generator(0, 0, 0))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("chunk", [1, 300_000])
def test_views_do_not_depend_on_the_chunks(chunk: int, monkeypatch: pytest.MonkeyPatch, pictures: Tensor) -> None:
    whole = augment(pictures, BYOL, 32, view_generator(0, 0, 0))
    monkeypatch.setitem(augmentation.CHUNK_BYTES, "cpu", chunk)
    for a, b in zip(whole, augment(pictures, BYOL, 32, view_generator(0, 0, 0)), strict=True):
        assert (a - b).abs().mean() < 1e-5


@pytest.mark.parametrize("world_size", [2, 4])
def test_many_processes_make_the_views_of_one(world_size: int, pictures: Tensor) -> None:
    aspect = torch.linspace(0.5, 2, 64)
    alone = augment(pictures, BYOL, 32, view_generator(0, 0, 0), aspect=aspect)
    for rank in range(world_size):
        rows = slice(rank, None, world_size)
        options = {"aspect": aspect[rows], "rank": rank, "world_size": world_size}
        for a, b in zip(alone, augment(pictures[rows], BYOL, 32, view_generator(0, 0, 0), **options), strict=True):
            assert (a[rows] - b).abs().mean() < 1e-5


def test_aspect_changes_the_crops(pictures: Tensor) -> None:
    recipe, images = ViewRecipe((View(),)), pictures[:1].expand(64, -1, -1, -1)
    (square,) = augment(images, recipe, SIZE, view_generator(0, 0, 0), aspect=torch.ones(64))
    (wide,) = augment(images, recipe, SIZE, view_generator(0, 0, 0), aspect=torch.full((64,), 3.0))
    assert torch.equal(square, augment(images, recipe, SIZE, view_generator(0, 0, 0))[0])
    assert (square - wide).abs().mean() > 0.01


def test_autocast_does_not_reach_the_pixels(pictures: Tensor) -> None:
    plain = augment(pictures, SIMCLR, 32, view_generator(0, 0, 0))
    with torch.autocast("cpu", torch.bfloat16):
        cast = augment(pictures, SIMCLR, 32, view_generator(0, 0, 0))
    assert all(torch.equal(a, b) for a, b in zip(plain, cast, strict=True))


def test_autocast_does_not_reach_the_draws_for_another_device(
    pictures: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    types = []
    chain = augmentation.color.chain
    monkeypatch.setattr(augmentation.color, "chain", lambda *a: types.append(chain(*a).dtype) or chain(*a))
    with torch.autocast("cpu", torch.bfloat16):
        augment(pictures.to("meta"), SIMCLR, 32, view_generator(0, 0, 0))
    assert types == [torch.float32]  # the two views are drawn together


def test_colours_change_in_every_order(pictures: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = []
    chain = augmentation.color.chain
    monkeypatch.setattr(augmentation.color, "chain", lambda *a: orders.append(a[-2].argsort(1)) or chain(*a))
    one(View(), pictures.repeat(8, 1, 1, 1))
    seen, times = orders[0].unique(dim=0, return_counts=True)
    assert len(seen) == 24 and times.max() < 50  # of 512 / 24 = 21


def test_no_step_waits_for_the_device(pictures: Tensor) -> None:
    """A meta tensor has no values, so that asking for one, as .item() or a boolean mask does, raises."""
    made = augment(pictures.to("meta"), BYOL, 32, view_generator(0, 0, 0))
    assert [v.device.type for v in made] == ["meta"] * 2
    assert [v.shape for v in made] == [(64, 3, 32, 32)] * 2


@pytest.mark.gpu
def test_a_gpu_makes_the_same_views(pictures: Tensor) -> None:
    torch.cuda.set_sync_debug_mode("error")
    images = pictures.pin_memory().to("cuda", non_blocking=True)
    try:
        made = augment(images, BYOL, 32, view_generator(0, 0, 0))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for a, b in zip(augment(pictures, BYOL, 32, view_generator(0, 0, 0)), made, strict=True):
        assert (a - b.cpu()).abs().mean() < 1e-4


def test_recipes_for_small_images() -> None:
    assert SIMCLR.at(224) == SIMCLR and BYOL.at(65) == BYOL
    small = BYOL.at(64)
    assert [v.blur for v in small.views] == [0, 0] and [v.solarize for v in small.views] == [0.0, 0.2]
    assert small.views[0].brightness == 0.2 and SIMCLR.at(32).views[0].hue == 0.1


def test_replace_changes_all_views() -> None:
    recipe = BYOL.replace(scale=[0.2, 1.0], flip=0.0)
    assert [(v.scale, v.flip) for v in recipe.views] == [((0.2, 1.0), 0.0)] * 2
    assert [v.blur for v in recipe.views] == [1.0, 0.1]
    with pytest.raises(UserError, match=r"'solarise'.*did you mean 'solarize'"):
        BYOL.replace(solarise=0.5)


@pytest.mark.parametrize(
    "option",
    [{"flip": 1.5}, {"blur": float("nan")}, {"hue": 0.6}, {"brightness": -1}, {"jitter": "often"}, {"scale": 0.2},
     {"scale": (0, 1)}, {"scale": (0.5, 0.2)}, {"ratio": (1, float("inf"))}, {"sigma": "12"}],
    ids=str,
)  # fmt: skip
def test_options_out_of_range_are_named(option: dict) -> None:
    with pytest.raises(UserError, match=next(iter(option))):
        View(**option)


@pytest.mark.parametrize(
    ("images", "size", "aspect", "said"),
    [
        (torch.zeros(3, 8, 8), 8, None, r"\(N, C, H, W\)"),
        (torch.zeros(0, 3, 8, 8), 8, None, "N > 0"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.int64), 8, None, "int64"),
        (torch.zeros(2, 3, 8, 8), 0, None, "image_size must be at least 1"),
        (torch.zeros(2, 3, 8, 8), 8, torch.ones(3), "aspect"),
    ],
)
def test_what_is_no_batch_of_images_is_refused(images: Tensor, size: int, aspect: Tensor | None, said: str) -> None:
    with pytest.raises(UserError, match=said):
        augment(images, SIMCLR, size, view_generator(0, 0, 0), aspect=aspect)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_contact_sheet_shows_images_beside_their_views(channels: int) -> None:
    images = torch.full((10, channels, 20, 30), 51, dtype=torch.uint8)
    sheet = contact_sheet(images, [torch.full((10, channels, 16, 16), v) for v in (0.4, 0.6)])
    assert sheet.size == (3 * 18, 8 * 18)
    assert [sheet.getpixel((x, 9)) for x in (0, 9, 27, 45)] == [(255,) * 3, (51,) * 3, (102,) * 3, (153,) * 3]
