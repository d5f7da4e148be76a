"""The views of clips are those of images, the same for all frames of a clip."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from sslkit.data.views import color
from sslkit.data.views.augmentation import augment, view_generator, views_of_row
from sslkit.data.views.draw import draw_views
from sslkit.data.views.recipe import BYOL, SIMCLR, View, ViewRecipe
from sslkit.errors import UserError

N, R, T, S = 5, 2, 4, 40
LOCAL = ViewRecipe((View(), View()), View(scale=(0.05, 0.14), size=16), 3)


@pytest.fixture
def clips(pictures: Tensor) -> Tensor:
    """(N, R, 3, T, 48, 48) uint8: every frame another picture."""
    return pictures[: N * R * T].view(N, R, T, 3, 48, 48).transpose(2, 3).contiguous()


@pytest.mark.parametrize("recipe", [SIMCLR, BYOL, LOCAL], ids=["simclr", "byol", "local"])
@pytest.mark.parametrize("floats", [False, True])
def test_each_frame_is_the_images_view_of_the_same_draw_but_for_contrast(
    clips: Tensor, recipe: ViewRecipe, floats: bool
) -> None:
    clips = clips / 255 if floats else clips
    recipe, aspect = recipe.replace(contrast=0.0), torch.linspace(0.5, 2.0, N)
    views = augment(clips, recipe, S, view_generator(1, 2, 3), aspect=aspect)
    assert len(views) == len(recipe.each())
    for frame in range(T):
        for clip in range(R):
            alone = augment(clips[:, clip, :, frame], recipe, S, view_generator(1, 2, 3), aspect=aspect)
            assert torch.equal(views.boxes, alone.boxes)
            for number in range(clip, len(views), R):
                difference = (views[number][:, :, frame] - alone[number]).abs()
                assert difference.mean() < 1e-5  # a pixel at the threshold of solarize may fall on either side


def test_colours_are_those_of_an_image_of_all_frames_side_by_side(clips: Tensor) -> None:
    """With contrast, whose gray is the mean of the whole clip; of crops it would be that of each."""
    colours = View(scale=(1.0, 1.0), ratio=(1.0, 1.0), flip=0.0, jitter=1.0, blur=0.0, solarize=0.5)
    recipe = ViewRecipe((colours, colours))
    (view, _) = augment(clips[:, :1], recipe, 48, view_generator(1, 2, 3))
    row = clips[:, 0].transpose(2, 3).flatten(3)  # (N, 3, 48, T * 48)
    one = view_generator(1, 2, 3)
    (draw, _) = draw_views(recipe.each(), clips[:, 0], one, None, 0, 1)
    wide = color.apply(row.float(), draw.deviation, draw.mean, torch.empty(row.shape))
    wide = torch.where(wide >= draw.threshold.view(-1, 1, 1, 1), 1 - wide, wide)
    difference = (view.transpose(2, 3).flatten(3) - wide).abs()
    assert difference.mean() < 1e-3
    assert (wide.std() > 0.1) and (view - clips[:, 0] / 255).abs().mean() > 0.05


def test_what_stands_still_stays_still_under_contrast_while_something_bright_moves() -> None:
    contrast = View(scale=(1.0, 1.0), ratio=(1.0, 1.0), flip=0.0, jitter=1.0, grayscale=0.0, blur=0.0)
    contrast = replace(contrast, brightness=0.0, saturation=0.0, hue=0.0)
    clips = torch.full((8, 1, 3, T, 48, 48), 60, dtype=torch.uint8)
    clips[:, :, 0] = 90
    for frame in range(T):  # it comes in from the right, larger in each frame
        clips[:, 0, :, frame, :, 44 - 8 * frame :] = 250
    (view,) = augment(clips, ViewRecipe((contrast,)), 48, view_generator(0, 0, 0))
    still = view[..., :16]
    torch.testing.assert_close(still, still[:, :, :1].expand_as(still), atol=1e-6, rtol=0)
    assert (still - clips[:, 0, ..., :16] / 255).abs().amax((1, 2, 3, 4)).gt(0.02).sum() > 4, "contrast does change it"


def test_a_view_shows_its_clip_and_no_other(clips: Tensor) -> None:
    changed = clips.clone()
    changed[:, 1] = 255 - changed[:, 1]
    before = augment(clips, LOCAL, S, view_generator(0, 0, 0))
    after = augment(changed, LOCAL, S, view_generator(0, 0, 0))
    assert [torch.equal(a, b) for a, b in zip(before, after, strict=True)] == [True, False, True, False, True]


def test_a_still_clip_stays_still(pictures: Tensor) -> None:
    still = pictures[:8, None, :, None].expand(-1, -1, -1, T, -1, -1)
    for view in augment(still, BYOL, S, view_generator(0, 0, 0)):
        torch.testing.assert_close(view, view[:, :, :1].expand_as(view), atol=1e-6, rtol=0)


def test_shapes_and_range(clips: Tensor) -> None:
    views = augment(clips, LOCAL, S, view_generator(0, 0, 0))
    assert [v.shape for v in views] == [(N, 3, T, S, S)] * 2 + [(N, 3, T, 16, 16)] * 3
    assert all(v.dtype == torch.float32 and v.min() >= 0 and v.max() <= 1 for v in views)
    assert views.boxes.shape == (5, N, 5)


@pytest.mark.parametrize(("per_video", "expected"), [(1, "ab"), (2, "ab"), (3, "aba"), (4, "abab"), (5, "ababa")])
def test_full_size_views_are_repeated_until_each_clip_has_one(per_video: int, expected: str) -> None:
    a, b, local = View(flip=0.1), View(flip=0.2), View(flip=0.3, size=16)
    views = views_of_row(ViewRecipe((a, b), local, 2), per_video)
    assert views == (*({"a": a, "b": b}[name] for name in expected), local, local)


def test_all_clips_are_shown(clips: Tensor) -> None:
    three = torch.cat([clips, clips[:, :1]], 1)
    views = augment(three, SIMCLR, S, view_generator(0, 0, 0))
    assert len(views) == 3


def test_ranks_make_together_what_one_process_makes(clips: Tensor) -> None:
    whole = augment(clips[:4], BYOL, S, view_generator(0, 1, 2))
    for rank in range(2):
        part = augment(clips[rank:4:2], BYOL, S, view_generator(0, 1, 2), rank=rank, world_size=2)
        for a, b in zip(whole, part, strict=True):
            torch.testing.assert_close(a[rank::2], b, atol=1e-6, rtol=0)


def test_the_crop_is_of_the_film_as_it_is_meant_to_be_seen() -> None:
    square = replace(View(), scale=(0.2, 0.2), ratio=(1.0, 1.0))
    clips = torch.zeros(64, 1, 3, 1, 100, 100, dtype=torch.uint8)
    aspect = torch.full((64,), 16 / 9)
    boxes = augment(clips, ViewRecipe((square,)), 8, view_generator(0, 0, 0), aspect=aspect).boxes[0]
    assert (boxes[:, 3] * 16 / 9 / boxes[:, 2]).sub(1).abs().max() < 0.05


@pytest.mark.parametrize(
    ("clips", "size", "reason"),
    [
        (torch.zeros(2, 3, 4, 8, 8), 8, r"clips must have the shape \(N, R, C, T, H, W\)"),
        (torch.zeros(0, 1, 3, 4, 8, 8), 8, "N > 0"),
        (torch.zeros(2, 1, 3, 4, 8, 8, dtype=torch.int64), 8, "uint8"),
        (torch.zeros(2, 1, 3, 4, 8, 8), 0, "image_size"),
    ],
)
def test_what_is_no_batch_of_clips(clips: Tensor, size: int, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        augment(clips, SIMCLR, size, view_generator(0, 0, 0))
