"""Options of the linear probe, of which some exclude each other: that is checked before anything is extracted."""

from dataclasses import dataclass
from typing import Annotated

from evaluation.learners.linear_heads import SCALES
from evaluation.protocols import linear_aug
from evaluation.protocols._option_types import CountOrNone, PositiveOrNone
from sslkit.errors import UserError
from sslkit.options.settings import Limits

RECIPES = ("auto", "lbfgs", "grid")
SELECT = ("held_out", "test")


@dataclass(frozen=True, kw_only=True)
class Options:
    """recipe: auto, lbfgs or grid on features; simclr90, moco100 or vissl28 on augmented views (see `linear_aug`).

    scale: of the features: standardize (by the training rows), l2 or none.
    c: weight of the loss beside the penalty, of recipe lbfgs; None: the best on validation.
    select: held_out, or test to reproduce results selected so.
    iterations: of recipe grid. epochs: of recipes on views; None: the published.
    """

    recipe: Annotated[str, Limits(choices=(*RECIPES, *linear_aug.RECIPES))] = "auto"
    scale: Annotated[str, Limits(choices=tuple(SCALES))] = "standardize"
    c: PositiveOrNone = None
    select: Annotated[str, Limits(choices=SELECT)] = "held_out"
    iterations: CountOrNone = None
    epochs: CountOrNone = None


def check_together(options: Options) -> None:
    """Check that no option is given that the recipe does not have. Raises UserError."""
    recipe, c, iterations, epochs = options.recipe, options.c, options.iterations, options.epochs
    if recipe in linear_aug.RECIPES:
        if options != Options(recipe=recipe, epochs=epochs):
            raise UserError(f"recipe={recipe} has no option scale, c, select or iterations, only epochs")
        return
    if epochs is not None:
        raise UserError(f"epochs={epochs} is an option of {', '.join(linear_aug.RECIPES)}, not of recipe={recipe}")
    if recipe == "grid" and c is not None:
        raise UserError(f"c={c} is an option of recipe=lbfgs; the strengths of recipe=grid are its weight decays")
    if c is not None and iterations is not None:
        raise UserError(f"c={c} is an option of recipe=lbfgs, iterations={iterations} one of recipe=grid")
    if recipe == "lbfgs" and iterations is not None:
        raise UserError(f"iterations={iterations} is an option of recipe=grid, not of recipe=lbfgs")


def check_on_features(recipe: str) -> None:
    """Check that a recipe is one for features. Raises UserError for those on augmented views."""
    if recipe in linear_aug.RECIPES:
        raise UserError(
            f"recipe={recipe} trains on augmented views, which features have not: evaluation.linear_on_views takes the "
            "model and the images"
        )
