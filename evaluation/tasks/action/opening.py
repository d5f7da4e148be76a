"""Open and check the network, the videos of each split and the clip shape before action recognition computes."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from evaluation.features.checks import whole_number
from evaluation.protocols.base import Subject
from evaluation.tasks.action import datasets, recipes
from evaluation.tasks.action.crops import Sizes
from evaluation.tasks.action.options import Options
from evaluation.tasks.action.reading import ClipShape, EvalViews
from sslkit.errors import UserError
from sslkit.models.model import Model

CHANGES = ("epochs", "batch_size", "lr", "weight_decay", "dropout")  # of a recipe


@dataclass(frozen=True, eq=False)
class Opened:
    """A network of clips, the training and the test videos of each official split, and what they are cut to.

    mirror: training clips at random. on_error: a video that cannot be decoded: "skip" or "raise".
    """

    model: Model
    films: list[tuple[datasets.Films, datasets.Films]]
    shape: ClipShape
    mirror: bool = True
    on_error: str = "skip"


def open_run(subject: Subject, options: Options) -> Opened:
    """Open and check all that a run needs. Raises UserError."""
    plan, _ = plan_recipe(options)
    EvalViews(options.clips, options.crops, options.rule)
    _check(options, plan.protocol)
    model = subject.model
    source = source_of(model, subject.data, options.recipe) or plan.data
    used = _folds(source, options.folds, plan.folds)
    shape = _shape(model, options.frames, options.stride)
    films = [
        tuple(datasets.open_films(source, split, subject.reading, fold=fold) for split in ("train", "test"))
        for fold in used
    ]
    mirror = subject.reading.mirrors(films[0][0])
    return Opened(model, films, shape, mirror, subject.reading.on_error)


def plan_recipe(options: Options) -> tuple[recipes.Recipe, str]:
    """The recipe with what is changed of it, and what it is called. Raises UserError."""
    changes = {name: value for name, value in vars(options).items() if name in CHANGES}
    return recipes.change(recipes.chosen(options.protocol, options.recipe), changes)


def source_of(model: Model, data: str | None, recipe: str | None) -> str | None:
    """The videos that are asked for, or without a recipe those that a zoo entry was pretrained on; else None."""
    if data or recipe:
        return data
    source = str(model.entry.card.get("data", {}).get("source", "")) if model.entry else ""
    return source if source.startswith("video:") else None


def check_clips(model: Model) -> None:
    """Raises UserError for a network of images."""
    if not model.item.axes:
        raise UserError(
            f"action needs a network of clips, and {model.name} takes images: give a zoo entry that was pretrained on "
            "videos (recipes/train.py data=video:FOLDER), or random:slow_r50"
        )


def _folds(source: str, asked: Sequence[int] | None, usual: Sequence[int]) -> list[int]:
    """The official splits to run. Raises UserError for one that the data do not have."""
    folds = datasets.folds_of(source)
    if asked is None:
        return [fold for fold in usual if fold in folds]
    wanted = [asked] if isinstance(asked, int) else list(asked)
    if not wanted or len(set(wanted)) < len(wanted) or not set(wanted) <= set(folds):
        raise UserError(f"folds={wanted} must be different ones of {list(folds)}, the splits of {source}")
    return wanted


def _check(options: Options, protocol: str) -> None:
    if options.features == "once" and protocol != "linear":
        raise UserError("features=once is for protocol=linear: fine-tuning changes the features")


def _shape(model: Model, frames: int | None, stride: int | None) -> ClipShape:
    """Raises UserError for a network of images."""
    check_clips(model)
    (usual,) = model.item.axes
    length = whole_number("frames", usual if frames is None else frames, 1)
    step = whole_number("stride", model.stride or max(64 // length, 1) if stride is None else stride, 1)
    shape = ClipShape(length, step, Sizes.for_size(model.image_size))
    if not model.backbone.convolutional:
        _try(model, length, shape.sizes.test)
    return shape


@torch.no_grad()
def _try(model: Model, length: int, size: int) -> None:
    """Raises UserError for a network that cannot take the test crops, which are larger than what it was trained on."""
    try:
        model.net(torch.zeros(1, model.in_chans, length, size, size))
    except (RuntimeError, AssertionError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{model.name} cannot take the test clips of {length} frames of {size} px: {reason}") from error
