"""Options of the linear probe that exclude each other, checked before anything is extracted."""

from evaluation.protocols import linear_aug
from sslkit.errors import UserError


def check_together(
    *,
    recipe: str = "auto",
    scale: str = "standardize",
    c: float | None = None,
    select: str = "held_out",
    iterations: int | None = None,
    epochs: int | None = None,
) -> None:
    """Check that no option is given that the recipe does not have. Raises UserError."""
    if recipe in linear_aug.RECIPES:
        if (scale, c, select, iterations) != ("standardize", None, "held_out", None):
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
