"""The views of a batch of clips: those of views.py, one draw for all frames of a clip.

A crop, flip or colour that changed from frame to frame would be motion that is not in the film (Qian et al. 2021, CVRL,
arXiv 2008.03800, section 3.2). Contrast therefore keeps the mean gray of the whole clip, not of each frame, as in
PySlowFast, which lays a clip's frames out as one image. Each view shows one of the rho clips of its video
(Feichtenhofer et al. 2021, arXiv 2104.14558).
"""

import torch
from torch import Tensor

from sslkit.data.recipe import View, ViewRecipe
from sslkit.data.views import Views, boxes_of, check, draw_views, full_precision, render
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
    size, generator, aspect (of the N videos), rank, world_size: as in `sslkit.data.views.augment`; for R = 1 and
    frames that do not change the views are those of the image, for others those of each frame but for contrast.
    Raises UserError for another shape or type.
    """
    if clips.dim() != 6 or not clips.numel():
        raise UserError(f"views are made of clips (N, R, C, T, H, W), N > 0; these have the shape {tuple(clips.shape)}")
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
    """The views that `augment_clips` makes of so many clips a video: full-size ones first, then the local crops."""
    whole = recipe.views
    repeats = -(-clips // len(whole))
    return (whole * repeats)[: max(clips, len(whole))] + recipe.each()[len(whole) :]
