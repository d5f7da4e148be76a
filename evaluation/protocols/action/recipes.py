"""The named recipes of action recognition: how a head, or the whole network, is trained on films.

- paper_k400: linear evaluation of Feichtenhofer et al. 2021 (arXiv 2104.14558), the settings of PySlowFast's
  `linear_k400_Slow_8x8_R50_syn0`, which DSA's table III follows
- paper_ucf101, paper_hmdb51: fine-tuning of DSA's table V: 50 epochs, batches of 128, mean of the three splits. The
  paper gives no rate: ours is that of slowfast_ucf101 for this batch, and the rest is that recipe's too
- slowfast_ucf101: PySlowFast's `finetune_ucf_Slow_R50_syn0`: 200 epochs, the first split alone
- slowfast_hmdb51: the same settings on HMDB51

None decays the weights of batch normalisation. What differs from PySlowFast, whose numbers ours need not equal:

- linear: its detached trunk is in train mode and normalises by the statistics of the batch; ours is in eval mode and
  normalises by the running ones, which stay as they are
- tests: at 256 pixels its head pools windows of 7 x 7 places of the 8 x 8 map, and the score is the mean of their
  softmax; ours is the softmax of the mean over the whole map
- the span of a clip: it spreads the frames over length * stride * fps / 30 frames of the film; ours are whole strides
  apart, counted in the film's own frames, whatever its rate
- the shape of a clip: its slow_r50 takes 8 x 8 (frames x stride) at 224 pixels; ours what the network was pretrained
  with, or 16 x 4 for `random:slow_r50`; frames=8 stride=8 asks for its own. The result's recipe says the shape
- colours: its RandomGrayscale comes before the jitter, ours after it; its colours are drawn before the crop is cut
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

from evaluation.features.checks import whole_number
from sslkit.data.recipe import View, ViewRecipe
from sslkit.errors import UserError
from sslkit.members import nearest

PROTOCOLS = ("linear", "fine_tune")
_PLAIN = View(scale=(1.0, 1.0), ratio=(1.0, 1.0), jitter=0.0, grayscale=0.0, blur=0.0)
_COLOURED = View(  # PySlowFast's without SSL_MOCOV2_AUG, which alone would jitter 0.8 of the clips and blur
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
    """protocol: "linear" (the backbone is frozen) or "fine_tune". data, folds: what it is published for.

    lr: at its highest, for a batch of batch_size; it falls to 0 along a cosine, and rises over `warmup` epochs first.
    weight_decay: added to the gradient. dropout: in front of the linear layer. view: flip and colours of a clip.
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
    """The name of the recipe that is meant: the one named, or the protocol's usual one.

    Raises UserError for an unknown name, and for a recipe of the other protocol.
    """
    for what, value, known in (("protocol", protocol, PROTOCOLS), ("recipe", recipe, RECIPES)):
        if value is not None and value not in known:
            raise UserError(f"there is no {what} {value!r}: {nearest(str(value), known)}")
    if recipe is None:
        return USUAL[protocol or "linear"]
    if protocol not in (None, RECIPES[recipe].protocol):
        raise UserError(f"recipe={recipe} is for protocol={RECIPES[recipe].protocol}, not {protocol}")
    return recipe


def changed(name: str, changes: Mapping[str, Any]) -> tuple[Recipe, str]:
    """A recipe with other settings, and what it is to be called: "paper_k400, 2 of 60 epochs, lr 0.1 instead of 0.5".

    changes: of epochs, batch_size, lr, weight_decay, dropout; None leaves the recipe's own. A rate that is not given
        goes with the batch size, and warm-up with the epochs.
    Raises UserError for values out of range.
    """
    own = RECIPES[name]
    changes = {what: value for what, value in changes.items() if value is not None}
    values = {**vars(own), **changes}
    for what, least in (("epochs", 1), ("batch_size", 2)):
        values[what] = whole_number(what, values[what], least)
    for what, most in (("lr", math.inf), ("weight_decay", math.inf), ("dropout", 1)):
        values[what] = _number(what, values[what], most)
    if values["lr"] == 0:
        raise UserError("lr=0 trains nothing: give a number above 0")
    if "lr" not in changes:
        values["lr"] = own.lr * values["batch_size"] / own.batch_size
    values["warmup"] = own.warmup * values["epochs"] / own.epochs
    description = [name]
    if values["epochs"] != own.epochs:
        description.append(f"{values['epochs']} of {own.epochs} epochs")
    for what in ("batch_size", "lr", "weight_decay", "dropout"):
        if what in changes and values[what] != getattr(own, what):
            description.append(f"{what} {values[what]:g} instead of {getattr(own, what):g}")
    return Recipe(**values), ", ".join(description)


def fitted(recipe: Recipe, films: int, *, scale: bool) -> Recipe:
    """The recipe for a set of fewer films than a batch: one batch of all. scale: whether the rate goes with it."""
    if films >= recipe.batch_size:
        return recipe
    return replace(recipe, batch_size=films, lr=recipe.lr * films / recipe.batch_size if scale else recipe.lr)


def fit_of(planned: Recipe, used: Sequence[Recipe]) -> str:
    """What `fitted` changed, of one recipe for each split: "batches of all 29 films, lr 0.227", or "" for nothing."""
    fewer = [recipe for recipe in used if recipe.batch_size < planned.batch_size]
    if not fewer:
        return ""
    films = " / ".join(dict.fromkeys(str(recipe.batch_size) for recipe in fewer))
    rates = " / ".join(dict.fromkeys(f"{recipe.lr:.3g}" for recipe in fewer))
    return f"batches of all {films} films, lr {rates}"


def _number(name: str, value: Any, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= value <= most or not math.isfinite(value):
        raise UserError(f"{name}={value!r} must be a number from 0{'' if math.isinf(most) else f' to {most:g}'}")
    return float(value)
