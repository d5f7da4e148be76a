"""Checks of a step's input: shapes, numbers of images and views, pixels. Each raises UserError with one line."""

from typing import Protocol

import torch
from torch import Tensor

from sslkit.backbones.base import Backbone
from sslkit.data.views.crops import Crops
from sslkit.data.views.recipe import ViewRecipe
from sslkit.errors import UserError, format_value
from sslkit.objectives.base import Objective
from sslkit.runtime import distributed


class Steps(Protocol):
    """The parts of a `sslkit.Method` that are checked: its name, its backbone and its objective."""

    name: str
    backbone: Backbone
    objective: Objective
    recipe: ViewRecipe
    image_size: int
    needs_images: bool


def check_step(method: Steps, images: Tensor | Crops, index: Tensor, labels: Tensor | None) -> None:
    """Raises UserError for a batch that the method cannot learn from; the arguments are those of `Method.forward`."""
    if isinstance(images, Crops):
        _check_crops(images, method)
    elif isinstance(images, Tensor):
        _check_shape(images, method.backbone)
    else:
        raise UserError(
            f"images must be a tensor, got {format_value(images)}: for an array write torch.from_numpy(images)"
        )
    _check_index(index, len(images))
    if len(images) * distributed.world_size() < 2:
        raise UserError("a step needs at least two images: losses compare them and batch norm needs a batch")
    check_batch(method, len(images) * distributed.world_size())
    if method.backbone.item.axes:
        check_clips(method, images.shape[1])
    if method.objective.needs_labels and labels is None:
        raise UserError(f"{method.name} learns from labels: call method(images, index, labels=labels)")
    # On a GPU the check would stall the step; there a NaN shows in the loss, which stops the training.
    if isinstance(images, Tensor) and images.is_floating_point() and images.device.type == "cpu":
        _check_floats(images)


def _check_index(index: Tensor, count: int) -> None:
    whole = isinstance(index, Tensor) and not (index.is_floating_point() or index.is_complex())
    if not whole or index.shape != (count,):
        kind = f"{index.dtype} {tuple(index.shape)}" if isinstance(index, Tensor) else format_value(index)
        raise UserError(
            f"index must be ({count},) whole numbers, the rows of the {count} images in the data set, got {kind}: "
            "without a data set write torch.arange(len(images))"
        )


def _check_shape(images: Tensor, body: Backbone) -> None:
    of_one, several = body.input_shape()[:-2], bool(body.item.axes)
    if images.dim() == 3 + several + len(of_one) and images.shape[1 + several : -2] == of_one:
        return
    numbers = ", ".join(map(str, of_one))
    if several:
        wanted = f"clips must be (N, R, {numbers}, H, W), R of each video, for frames={body.item.frames}"
    else:
        wanted = f"images must be (N, {numbers}, H, W) for in_chans={numbers}"
    raise UserError(f"{wanted}, got {tuple(images.shape)}")


def _check_crops(crops: Crops, method: Steps) -> None:
    sizes = [view.size or method.image_size for view in method.recipe.each()]
    body = method.backbone
    if body.item.axes or (crops.channels, crops.sizes) != (body.in_chans, sizes):
        raise UserError(
            f"the batch holds crops of {crops.channels} channels and {crops.sizes} pixels; {method.name} takes "
            f"{body.in_chans} channels and {f'{body.item.name}s' if body.item.axes else f'{sizes} pixels'}: make "
            "CroppedImages from the recipe and image_size of this method"
        )
    if method.needs_images and crops.whole is None:
        raise UserError(f"a regulariser of {method.name} reads the whole images: give CroppedImages(..., whole=True)")


def check_batch(method: Steps, images: int) -> None:
    """Raises UserError if a step of `images` images, over all ranks, is too small for the objective."""
    least = method.objective.least_images
    if images < least:
        hint = method.objective.least_images_hint
        raise UserError(f"{method.name} needs at least {least} images a step, not {images}: raise the batch size{hint}")


def check_clips(method: Steps, clips: int) -> None:
    """Raises UserError if the objective cannot compare `clips` clips of a video."""
    most = method.objective.most_views
    if most is not None and clips > most:
        raise UserError(f"{method.name} compares {most} clips of a video, not {clips}: set data.clips={most}")


def check_crops(body: Backbone, recipe: ViewRecipe, image_size: int) -> None:
    """Raises UserError if the backbone does not accept the size of the local crops."""
    training = body.training
    for size in {view.size for view in recipe.each()} - {None, image_size}:
        try:
            with torch.no_grad():
                body.eval()(torch.zeros(2, *body.input_shape(size)))
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise UserError(
                f"backbone {body.recipe.name} takes no local crops of {size} pixels ({reason}): set another "
                "views.local_size, or views.n_local=0"
            ) from error
    body.train(training)


def _check_floats(images: Tensor) -> None:
    if not images.isfinite().all():
        row = (~images.isfinite()).flatten(1).any(1).nonzero()[0].item()
        raise UserError(f"image {row} of the batch (row {row} of `images`) has NaN or infinite pixels")
    low, high = images.aminmax()
    if low < -1e-3 or high > 1 + 1e-3:
        raise UserError(
            f"float images must lie in [0, 1], got {low.item():.3g} to {high.item():.3g}; pass uint8, divide by 255, "
            "or leave the normalisation to sslkit.method(normalize=...)"
        )
