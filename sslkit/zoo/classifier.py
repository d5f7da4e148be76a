"""The classifier of an entry: what turns the features of its backbone into classes or numbers.

Its layers are kept like a source head, as `heads/classifier.safetensors`; its classes are in the card's `classifier`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sslkit.errors import UserError

if TYPE_CHECKING:  # a card is read without torch
    from torch import Tensor, nn

NAME = "classifier"  # of the head's file, and of the card's field
SOFTMAX, SIGMOID, IDENTITY = LINKS = ("softmax", "sigmoid", "identity")  # one class, several classes, numbers


@dataclass(frozen=True, eq=False)
class Classifier:
    """What turns features into classes or numbers; calibration and units are in its weights.

    layers: features (N, D) -> outputs (N, K), in eval mode. classes: the K names, of classes or of numbers.
    link: from outputs to predictions: softmax (one class an image), sigmoid (several) or identity (numbers).
    half_widths: of K numbers, what 90 % of new images lie within; () where that is not known.
    about: for the card: `data` and `made`, how it came about, in words; and its accuracy on images that took no part,
        as `measured` = {metric, value, low, high, n, images}.
    """

    layers: nn.Sequential
    classes: tuple[str, ...]
    link: str
    about: dict[str, Any]
    half_widths: tuple[float, ...] = ()

    def __call__(self, features: Tensor) -> Tensor:
        """Probabilities of classes, or numbers (N, K), of features (N, D)."""
        return self.predictions(self.layers(features))

    def predictions(self, outputs: Tensor) -> Tensor:
        """Probabilities of classes, or numbers (N, K), of the layers' outputs (N, K)."""
        if self.link == SOFTMAX:
            return outputs.softmax(1)
        return outputs.sigmoid() if self.link == SIGMOID else outputs

    def of_card(self) -> dict[str, Any]:
        """The content of the card's field."""
        halves = {"half_widths": list(self.half_widths)} if self.half_widths else {}
        return {"classes": list(self.classes), "link": self.link, **self.about, **halves}


def check(classes: list[str], outputs: int, where: str) -> None:
    """Raises UserError unless the classifier of `where` has one output for each class."""
    if len(classes) != outputs:
        raise UserError(f"{where}: the classifier has {outputs} outputs, and the card names {len(classes)} classes")
