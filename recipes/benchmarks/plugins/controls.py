"""Data and controls of the study."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from objectives.settings import open_arrays
from torch import Tensor

from sslkit import backbones
from sslkit.composition.method import Method
from sslkit.embeddings import Embeddings
from sslkit.runtime.device import use_seed

LETTERS = 500  # of the 1,219 of the embedded glyphs


@contextmanager
def objective_switched_off(off: bool) -> Iterator[None]:
    """While a run lasts, the objective's terms are 0, so that only its regulariser learns."""
    prepare = Method.prepare

    def begin(method: Method, *given: Any, **options: Any) -> None:
        prepare(method, *given, **options)
        if off:
            objective = method.objective
            objective.align, objective.constrain = (
                _times_zero(function) for function in (objective.align, objective.constrain)
            )

    with mock.patch.object(Method, "prepare", begin):
        yield


def _times_zero(loss: Callable[[Embeddings], Tensor | None]) -> Callable[[Embeddings], Tensor | None]:
    def nothing(e: Embeddings) -> Tensor | None:
        value = loss(e)
        return None if value is None else 0 * value

    return nothing


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
    with use_seed(12345):
        return backbones.build("narrow_resnet", image_size=size, in_chans=channels).eval().requires_grad_(False)


def write_data(name: str, path: Path) -> None:
    """Write a set as .npz, with its training and test images."""
    sets = {"fashion": "fashion_mnist", "clipart": "clipart"}
    part_of = _letters if name == "letters" else lambda split: open_arrays(sets[name], split)
    parts = {split: part_of(split) for split in ("train", "test")}
    np.savez(
        path, **{f"{k}_{split}": np.asarray(v) for split, xy in parts.items() for k, v in zip("xy", xy, strict=True)}
    )


def _letters(split: str) -> tuple[np.ndarray, np.ndarray]:
    """Renders of letters drawn once from all scripts: 16 of each in training, 4 in test; the class is the letter."""
    x, y = open_arrays("glyphs", split)
    drawn = np.sort(_shuffle_letters(y)[:LETTERS])
    is_drawn = np.isin(y, drawn)
    return x[is_drawn], np.searchsorted(drawn, y[is_drawn])


def write_novel_letters(path: Path) -> None:
    """Write all renders of the letters that `letters` does not have, as test images."""
    parts = [open_arrays("glyphs", split) for split in ("train", "test")]
    x, y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    new = np.sort(_shuffle_letters(y)[LETTERS:])
    is_new = np.isin(y, new)
    np.savez(path, x_test=x[is_new], y_test=np.searchsorted(new, y[is_new]))


def _shuffle_letters(y: np.ndarray) -> np.ndarray:
    return np.random.default_rng(0).permutation(y.max() + 1)
