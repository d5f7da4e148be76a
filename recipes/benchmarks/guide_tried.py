"""Parts of guide_study.py: its data, its control priors, and rules for the balance."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from math import cos, pi
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from objectives import held_out
from torch import Tensor

import sslkit
from sslkit import backbones
from sslkit.composition import balance
from sslkit.composition.method import Method
from sslkit.embeddings import Embeddings
from sslkit.priors.base import resize_and_crop

LETTERS = 500  # of the 1,219 of the embedded glyphs


class Falling(balance.Shares):
    """The balance falls to 0 along half a cosine."""

    def factor(self, name: str) -> Tensor | float:
        return super().factor(name) * (1 + cos(pi * self.progress)) / 2


class Fading(balance.Shares):
    """The balance falls with the number of steps, as 1 / (1 + steps / 200), whatever the length of the run."""

    def factor(self, name: str) -> Tensor | float:
        return super().factor(name) / (1 + self.steps / 200)


@contextmanager
def rule(name: str | None) -> Iterator[None]:
    """The rule of the shares while a run lasts; None is the library's. "alone" switches the objective off."""
    rules = {"falling": Falling, "fading": Fading}
    prepare = Method.prepare

    def begin(method: Method, *given: Any, **options: Any) -> None:
        for plugin in method.regularizers.values():
            if hasattr(plugin, "begin"):  # a form of guide_forms.py that needs more than the embeddings
                plugin.begin(method)
        prepare(method, *given, **options)
        if name == "alone":
            method.objective.align, method.objective.constrain = (
                _times_zero(part) for part in (method.objective.align, method.objective.constrain)
            )

    with (
        mock.patch.object(balance, "Shares", rules.get(name, balance.Shares)),
        mock.patch.object(Method, "prepare", begin),
    ):
        yield


def _times_zero(loss: Callable[[Embeddings], Tensor | None]) -> Callable[[Embeddings], Tensor | None]:
    def nothing(e: Embeddings) -> Tensor | None:
        value = loss(e)
        return None if value is None else 0 * value

    return nothing


def pixels(views: Tensor) -> Tensor:
    """A prior: pixels, at most 32 a side. Of its whitened components the first 50 are those of prior pca."""
    return resize_and_crop(views, min(32, *views.shape[-2:]), "bilinear").flatten(1)


def write_shuffled(path: Path, images: Path) -> None:
    """Write a control: each image's prior is the pixels of another image, always the same one."""
    x = np.load(images)["x_train"]
    order = np.random.default_rng(0).permutation(len(x))
    np.save(path, (x[order].reshape(len(x), -1) / 255).astype(np.float32))


def random_network(views: Tensor) -> Tensor:
    """A control: what a network of random weights, the same in all runs, says of a view."""
    return _random_network(views.shape[1], views.shape[-1])((views - 0.5) / 0.25)


@cache
def _random_network(channels: int, size: int) -> torch.nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(12345)
        return backbones.build("narrow_resnet", image_size=size, in_chans=channels).eval().requires_grad_(False)


def write_data(name: str, path: Path, *, choosing: bool) -> None:
    """Write a set as .npz: training images of which a fifth is held out (choosing), or training and test images."""
    if name == "fashion" and choosing:
        held_out(path)
        return
    part_of = {"fashion": lambda split: _all("fashion_mnist", split), "letters": _letters}[name]
    if choosing:
        parts = _every_fifth_held_out(*part_of("train"))
    else:
        parts = {split: part_of(split) for split in ("train", "test")}
    np.savez(path, **{f"{k}_{part}": v for part, xy in parts.items() for k, v in zip("xy", xy, strict=True)})


def _all(name: str, split: str) -> tuple[np.ndarray, np.ndarray]:
    images = sslkit.open_images(name, split=split)
    return images.__getitems__(list(range(len(images))))["images"].numpy(), np.asarray(images.labels)


def _letters(split: str) -> tuple[np.ndarray, np.ndarray]:
    """Renders of letters drawn once from all scripts: 16 of each in training, 4 in test; the class is the letter."""
    x, y = _all("glyphs", split)
    drawn = np.sort(np.random.default_rng(0).permutation(y.max() + 1)[:LETTERS])
    kept = np.isin(y, drawn)
    return x[kept], np.searchsorted(drawn, y[kept])


def _every_fifth_held_out(x: np.ndarray, y: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Hold out every fifth image of each class, in the order of the rows."""
    place = np.zeros(len(y), dtype=int)
    for label in np.unique(y):
        place[y == label] = np.arange((y == label).sum())
    held = place % 5 == 4
    return {"train": (x[~held], y[~held]), "test": (x[held], y[held])}
