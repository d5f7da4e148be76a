"""Named recipes of action recognition: settings to train a linear head, or the whole network, on videos.

- paper_k400: linear evaluation of Feichtenhofer et al. 2021 (arXiv 2104.14558), the settings of PySlowFast's
  `linear_k400_Slow_8x8_R50_syn0`, which DSA's table III follows
- paper_ucf101, paper_hmdb51: fine-tuning of DSA's table V: 50 epochs, batches of 128, mean of the three splits. The
  paper gives no learning rate: ours is slowfast_ucf101's scaled to this batch size, like all other settings
- slowfast_ucf101: PySlowFast's `finetune_ucf_Slow_R50_syn0`: 200 epochs, the first split only
- slowfast_hmdb51: the same settings on HMDB51

No recipe applies weight decay to batch normalisation. Differences from PySlowFast, so that results may differ:

- linear: its detached backbone is in train mode and normalises by the batch statistics; ours is in eval mode and
  normalises by the fixed running statistics
- tests: at 256 pixels its head pools 7 x 7 windows of the 8 x 8 map, and the score is the mean of their softmax; ours
  is the softmax of the mean over the whole map
- temporal extent of a clip: it spreads the frames over length * stride * fps / 30 frames of the video; ours are exactly
  `stride` frames of the video apart, at any frame rate
- shape of a clip: its slow_r50 takes 8 x 8 (frames x stride) at 224 pixels; ours the shape used in pretraining, or
  16 x 4 for `random:slow_r50`; frames=8 stride=8 selects its own. The result's recipe contains the shape
- colours: its RandomGrayscale comes before the jitter, ours after it; it samples colours before the crop
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

from evaluation.features.checks import whole_number
from sslkit.data.views.recipe import View, ViewRecipe
from sslkit.errors import UserError, format_value
from sslkit.options.members import nearest

PROTOCOLS = ("linear", "fine_tune")
_PLAIN = View(scale=(1.0, 1.0), ratio=(1.0, 1.0), jitter=0.0, grayscale=0.0, blur=0.0)
_COLOURED = View(  # PySlowFast's without SSL_MOCOV2_AUG, the only setting that would jitter 0.8 of the clips and blur
    scale=(1.0, 1.0),
    ratio=(1.0, 1.0),
    jitter=1.0,
    brightness=0.4,
    contrast=0.4,
    saturation=0.4,
    hue=0.1,
    grayscale=0.2,
    blur=0.0,
)


@dataclass(frozen=True)
class Recipe:
    """protocol: "linear" (the backbone is frozen) or "fine_tune". data, folds: data set and splits it is published for.

    lr: peak learning rate for batch_size, after a linear warm-up of `warmup` epochs; a cosine decays it to 0.
    weight_decay: added to the gradient. dropout: before the linear layer. view: flip and colours of a clip.
    """

    protocol: str
    data: str
    folds: tuple[int, ...]
    epochs: int
    batch_size: int
    lr: float
    weight_decay: float = 0.0
    warmup: float = 0.0
    dropout: float = 0.0
    view: ViewRecipe = ViewRecipe((_PLAIN,))


_SLOWFAST = {"weight_decay": 1e-4, "dropout": 0.5, "view": ViewRecipe((_COLOURED,))}
RECIPES = {
    "paper_k400": Recipe("linear", "kinetics400", (1,), epochs=60, batch_size=64, lr=0.5, warmup=8.0),
    "paper_ucf101": Recipe("fine_tune", "ucf101", (1, 2, 3), epochs=50, batch_size=128, lr=0.01, **_SLOWFAST),
    "paper_hmdb51": Recipe("fine_tune", "hmdb51", (1, 2, 3), epochs=50, batch_size=128, lr=0.01, **_SLOWFAST),
    "slowfast_ucf101": Recipe("fine_tune", "ucf101", (1,), epochs=200, batch_size=64, lr=0.005, **_SLOWFAST),
    "slowfast_hmdb51": Recipe("fine_tune", "hmdb51", (1,), epochs=200, batch_size=64, lr=0.005, **_SLOWFAST),
}
USUAL = {"linear": "paper_k400", "fine_tune": "paper_ucf101"}


def chosen(protocol: str | None, recipe: str | None) -> str:
    """The name of the recipe: the given one, or the protocol's default.

    Raises UserError for an unknown name, and for a recipe of the other protocol.
    """
    for option, value, choices in (("protocol", protocol, PROTOCOLS), ("recipe", recipe, RECIPES)):
        if value is not None and value not in choices:
            raise UserError(f"there is no {option} {value!r}: {nearest(str(value), choices)}")
    if recipe is None:
        return USUAL[protocol or "linear"]
    if protocol not in (None, RECIPES[recipe].protocol):
        raise UserError(f"recipe={recipe} is for protocol={RECIPES[recipe].protocol}, not {protocol}")
    return recipe


def change(name: str, changes: Mapping[str, Any]) -> tuple[Recipe, str]:
    """Change a recipe's settings; return it and its description: "paper_k400, 2 of 60 epochs, lr 0.1 instead of 0.5".

    changes: epochs, batch_size, lr, weight_decay, dropout; None keeps the recipe's value. The default lr scales with
        the batch size, and the warm-up with the epochs.
    Raises UserError for values out of range.
    """
    recipe = RECIPES[name]
    changes = {option: value for option, value in changes.items() if value is not None}
    values = {**vars(recipe), **changes}
    for option, least in (("epochs", 1), ("batch_size", 2)):
        values[option] = whole_number(option, values[option], least)
    for option, most in (("lr", math.inf), ("weight_decay", math.inf), ("dropout", 1)):
        values[option] = _number(option, values[option], most)
    if values["lr"] == 0:
        raise UserError("lr must be above 0, got 0")
    if "lr" not in changes:
        values["lr"] = recipe.lr * values["batch_size"] / recipe.batch_size
    values["warmup"] = recipe.warmup * values["epochs"] / recipe.epochs
    description = [name]
    if values["epochs"] != recipe.epochs:
        description.append(f"{values['epochs']} of {recipe.epochs} epochs")
    for option in ("batch_size", "lr", "weight_decay", "dropout"):
        if option in changes and values[option] != getattr(recipe, option):
            description.append(f"{option} {values[option]:g} instead of {getattr(recipe, option):g}")
    return Recipe(**values), ", ".join(description)


def fit_batch(recipe: Recipe, films: int, *, scale: bool) -> Recipe:
    """Lower batch_size to the number of videos if there are fewer. scale: True scales lr with it."""
    if films >= recipe.batch_size:
        return recipe
    return replace(recipe, batch_size=films, lr=recipe.lr * films / recipe.batch_size if scale else recipe.lr)


def without_mirror(recipe: Recipe) -> Recipe:
    """Return the recipe for films whose mirror images are of another class."""
    return replace(recipe, view=recipe.view.replace(flip=0.0))


def fit_of(planned: Recipe, used: Sequence[Recipe]) -> str:
    """Describe the changes by `fit_batch`, a recipe a split: "batches of all 29 videos, lr 0.227", or "" for none."""
    fewer = [recipe for recipe in used if recipe.batch_size < planned.batch_size]
    if not fewer:
        return ""
    films = " / ".join(dict.fromkeys(str(recipe.batch_size) for recipe in fewer))
    rates = " / ".join(dict.fromkeys(f"{recipe.lr:.3g}" for recipe in fewer))
    return f"batches of all {films} videos, lr {rates}"


def _number(name: str, value: Any, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= value <= most or not math.isfinite(value):
        limit = "" if math.isinf(most) else f" and at most {most:g}"
        raise UserError(f"{name} must be a number, at least 0{limit}, got {format_value(value)}")
    return float(value)
