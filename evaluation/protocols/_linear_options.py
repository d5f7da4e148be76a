"""Options of the linear probe, of which some exclude each other: that is checked before anything is extracted."""

from collections.abc import Mapping
from dataclasses import dataclass

from evaluation.learners.linear_heads import SCALES, Grid
from evaluation.protocols import linear_aug
from sslkit.errors import UserError
from sslkit.options.settings import MOST, overlaid, setting

# "auto" is "grid" from this number of rows: the time of L-BFGS grows with them, 72 CPU s at 100,000 rows of 512
# features (recipes/benchmarks/growth)
MANY = 200_000
RECIPES = ("auto", "lbfgs", "grid")
SELECT = ("held_out", "test")
LBFGS = {"tol": 1e-6, "max_iter": 10_000}  # where they are not given
OF_LBFGS = ("c", *LBFGS)


@dataclass(frozen=True, kw_only=True)
class Options:
    recipe: str = setting(
        "auto",
        f"lbfgs or grid on features, or auto: lbfgs for fewer than {MANY:,} rows; simclr90, moco100 or vissl28 on "
        "augmented views (see linear_aug)",
        choices=(*RECIPES, *linear_aug.RECIPES),
    )
    scale: str = setting(
        "standardize", "of the features: standardize (by the training rows), l2 or none", choices=tuple(SCALES)
    )
    c: float | None = setting(
        None,
        "weight of the loss beside the penalty, of recipe lbfgs; null: the best on validation of 45, in equal ratios "
        "from 1e-5 to 1e6 (lambda = 1 / c), of which a coarse search tries at most 18",
        above=0,
    )
    select: str = setting(
        "held_out",
        "held_out (or val); or test, to reproduce results selected on the test set: the result is then leaky",
        choices=SELECT,
    )
    tol: float | None = setting(None, f"of the final fit of recipe lbfgs; null: {LBFGS['tol']:g}", above=0)
    max_iter: int | None = setting(
        None, f"iterations of the final fit of recipe lbfgs; null: {LBFGS['max_iter']:,}", least=1, most=MOST
    )
    grid: Mapping | None = setting(
        None,
        "of recipe grid, what is not as usual: {learning_rates:[0.1,0.01],weight_decays:[0],iterations:12500,"
        "batch_size:1024}",
    )
    epochs: int | None = setting(None, "of recipes on views; null: the published", least=1, most=MOST)

    def heads(self) -> Grid:
        """The grid, checked. Raises UserError."""
        return overlaid(Grid(), self.grid or {}, "grid.")

    def resolve_recipe(self, rows: int) -> str:
        """Resolve "auto" for so many rows."""
        if self.recipe != "auto":
            return self.recipe
        has_option = any(getattr(self, name) is not None for name in OF_LBFGS)
        return "grid" if self.grid is not None or (rows >= MANY and not has_option) else "lbfgs"


def check_together(options: Options) -> None:
    """Check that no option is given that the recipe does not have. Raises UserError."""
    if options.recipe in linear_aug.RECIPES:
        if options != Options(recipe=options.recipe, epochs=options.epochs):
            raise UserError(f"recipe={options.recipe} has none of these options, only epochs")
        return
    if options.epochs is not None:
        recipes = ", ".join(linear_aug.RECIPES)
        raise UserError(f"epochs={options.epochs} is an option of {recipes}, not of recipe={options.recipe}")
    values = ((name, getattr(options, name)) for name in OF_LBFGS)
    present = [f"{name}={value:g}" for name, value in values if value is not None]
    if present and (options.recipe == "grid" or options.grid is not None):
        raise UserError(f"{' and '.join(present)}: options of recipe=lbfgs; recipe=grid has those of grid= instead")
    if options.recipe == "lbfgs" and options.grid is not None:
        raise UserError("grid= holds options of recipe=grid; recipe=lbfgs has c, tol and max_iter")
    options.heads()


def check_on_features(recipe: str) -> None:
    """Check that a recipe is one for features. Raises UserError for those on augmented views."""
    if recipe in linear_aug.RECIPES:
        raise UserError(
            f"recipe={recipe} trains on augmented views, which features have not: evaluation.linear_on_views takes the "
            "model and the images"
        )
