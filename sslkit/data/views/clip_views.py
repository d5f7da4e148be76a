"""The augmented views of a batch of clips: as in views.py, with one draw for all frames of a clip.

A crop, flip or colour that changed from frame to frame would add motion to the video (Qian et al. 2021, CVRL, arXiv
2008.03800, section 3.2). Contrast therefore keeps the mean gray of the whole clip, not of each frame, as in PySlowFast,
which treats a clip's frames as one image. Each view shows one of the rho clips of its video (Feichtenhofer et al. 2021,
arXiv 2104.14558).
"""

import torch
from torch import Tensor

from sslkit.data.views.augmentation import Views, boxes_of, check, draw_views, full_precision, render
from sslkit.data.views.recipe import View, ViewRecipe
from sslkit.errors import UserError


@torch.no_grad()
def augment_clips(
    clips: Tensor,
    recipe: ViewRecipe,
    size: int,
    generator: torch.Generator,
    *,
    aspect: Tensor | None = None,
    rank: int = 0,
    world_size: int = 1,
) -> Views:
    """The views of a batch of videos: V tensors (N, C, T, S, S), float32 in [0, 1], on the device of the clips.

    clips: (N, R, C, T, H, W) uint8, or float in [0, 1]: R clips of each of N videos. View v shows clip v % R.
    recipe: its full-size views are repeated in turn until there are at least R of them.
    size, generator, aspect (of the N videos), rank, world_size: as in `augmentation.augment`. For R = 1 and
    identical frames the views are those of the image; otherwise those of each frame, except for contrast.
    Raises UserError for another shape or type.
    """
    if clips.dim() != 6 or not clips.numel():
        raise UserError(f"clips must have the shape (N, R, C, T, H, W), N > 0, got {tuple(clips.shape)}")
    check(clips, size, aspect, generator)
    per_video = clips.shape[1]
    views = clip_views(recipe, per_video)
    with full_precision("cpu"), full_precision(clips.device.type):
        draws = draw_views(views, clips[:, 0], generator, aspect, rank, world_size)
        made = [
            render(clips[:, number % per_video], draw, view.size or size, view)
            for number, (view, draw) in enumerate(zip(views, draws, strict=True))
        ]
    return Views(made, boxes_of(draws, clips))


def clip_views(recipe: ViewRecipe, clips: int) -> tuple[View, ...]:
    """The views that `augment_clips` makes for `clips` clips a video: full-size ones first, then the local crops."""
    whole = recipe.views
    repeats = -(-clips // len(whole))
    return (whole * repeats)[: max(clips, len(whole))] + recipe.each()[len(whole) :]
