"""What a model says of images: a table of classes with probabilities, or of numbers, to be shown and written."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sslkit.errors import UserError
from sslkit.models.answers import Answers, apart, in_digits, table_of
from sslkit.terminal.say import and_so_on
from sslkit.zoo.classifier import IDENTITY, SIGMOID, SOFTMAX

ABOVE = 0.5  # a probability from which an image has one of several classes: then it is likelier than not
BETWEEN = "|"  # several classes in a cell, as lists of labels are read
HEAD = {SOFTMAX: ("path", "class", "probability"), SIGMOID: ("path", "classes"), IDENTITY: ("path",)}


@dataclass(frozen=True, eq=False)
class Predictions(Answers):
    """The predictions of N images, which `Model.predict` returns.

    ids: the path of each image, or its number where it is in no file. classes: the names of the K classes or numbers.
    link: "softmax" (one class an image), "sigmoid" (several) or "identity" (numbers).
    values: (N, K) float32, probabilities or numbers. half_widths: of K numbers, what 90 % of new images lie within; ()
    where that is not known. unreadable: paths of images that were left out.
    print() shows the first; `write` writes all.
    """

    ids: Sequence[str]
    classes: tuple[str, ...]
    link: str
    values: np.ndarray
    unreadable: tuple[str, ...] = ()
    half_widths: tuple[float, ...] = ()

    @property
    def probabilities(self) -> np.ndarray:
        """(N, K) float32. Raises UserError for numbers, which are in `values`."""
        if self.link == IDENTITY:
            raise UserError("this model tells numbers, not classes: they are in `values`")
        return self.values

    @property
    def labels(self) -> list[str]:
        """The likeliest class of each image, or those that are likelier than not, with | between them."""
        return [label for label, *_ in map(self._cells, self.probabilities)]

    @classmethod
    def join(cls, parts: Iterable["Predictions"]) -> "Predictions":
        """The predictions of all parts; there is at least one."""
        parts = list(parts)
        ids = [name for batch in parts for name in batch.ids]
        bad = tuple(name for batch in parts for name in batch.unreadable)
        return replace(parts[0], ids=ids, values=np.concatenate([batch.values for batch in parts]), unreadable=bad)

    def __str__(self) -> str:
        return table_of(self, len(self), "image", None if self.link == IDENTITY else len(HEAD[self.link]))

    def _cells(self, row: np.ndarray) -> list[str | float]:
        """What stands between an image's path and its probabilities: (K,) of the image."""
        if self.link == SOFTMAX:
            return [self.classes[row.argmax()], float(row.max())]
        if self.link == SIGMOID:
            return [BETWEEN.join(name for name, value in zip(self.classes, row, strict=True) if value > ABOVE)]
        numbers = [float(value) for value in row]
        ends = zip(numbers, self.half_widths, strict=False)
        return [*numbers, *(end for value, half in ends for end in (value - half, value + half))]

    def columns(self) -> list[str]:
        names = apart(self.classes, HEAD[self.link])
        ends = [f"{name}_{end}" for name, _ in zip(names, self.half_widths, strict=False) for end in ("low", "high")]
        return [*HEAD[self.link], *names, *ends]

    def lines(self) -> Iterator[list[str | float]]:
        for name, row in zip(self.ids, self.values, strict=True):
            yield [name, *in_digits(self._cells(row)), *in_digits([] if self.link == IDENTITY else row)]

    @property
    def texts(self) -> int:
        return len(HEAD[self.link]) - (self.link == SOFTMAX)

    @property
    def sure(self) -> np.ndarray | None:
        """(N,) the highest probability of each image; of several classes the mean of how sure each is."""
        if self.link == IDENTITY:
            return None
        return np.maximum(self.values, 1 - self.values).mean(1) if self.link == SIGMOID else self.values.max(1)

    @property
    def counts(self) -> Counter:
        """Images by their classes."""
        return Counter(self.captions)

    @property
    def captions(self) -> list[str]:
        return [] if self.link == IDENTITY else self.labels

    @staticmethod
    def tell(counts: Mapping[str, float], sure: float, images: int, most: int) -> list[str]:
        """Lines on the classes of all images; none of numbers. sure: mean probability. most: classes that are named."""
        if not counts:
            return []
        each = and_so_on([f"{name} {count:,}" for name, count in Counter(counts).most_common()], most)
        return [f"classes   {each}", f"sure      mean probability of the predicted class {sure:.3f}"]
