"""The task of fine-tuning: one model, the training images as crops and whole, the test images, all labelled."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from evaluation import datasets
from evaluation.datasets import AS_USUAL, Reading
from evaluation.datasets._copies import units, with_digests
from evaluation.datasets._labels import check_classes, is_labelled, refuse_numbers
from evaluation.datasets._readable import readable
from evaluation.datasets.base import Split
from evaluation.features import contradicted
from evaluation.tuning.pixels import Pool
from sslkit.data.copies import near_in_train
from sslkit.data.held_out import held_out
from sslkit.data.images import Images
from sslkit.data.loader import read_spaced
from sslkit.data.sources.class_names import renumber, unseen
from sslkit.errors import UserError
from sslkit.models.model import Model


@dataclass(frozen=True, eq=False)
class Labelled:
    """N images of one or two splits.

    crops: for training views (whole, squashed to a square). centres: for testing (centre squares).
    y: (N,) int64, (N, K) int8, or numbers (N,) float64. ids: (N,) unique names; with two splits they begin with
    "SPLIT/".
    images: (N,) int64, equal for the same image. groups: (N,) int64 or None. likeness: (N, 4) int64 or None, as of
        `Split`.
    own_val: (N,) bool, the data set's own validation images, or None where it has none.
    """

    crops: Pool
    centres: Pool
    y: np.ndarray
    ids: np.ndarray
    images: np.ndarray
    groups: np.ndarray | None = None
    own_val: np.ndarray | None = None
    likeness: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, eq=False)
class Task:
    """A model with its training and test images; the labels of both are indices into `classes`.

    digest: sha256 of all images and labels, as the splits were opened. mirror: training images at random.
    """

    model: Model
    train: Labelled
    test: Labelled
    classes: Sequence[str]
    metric: str
    name: str
    digest: str
    mirror: bool = True

    @cached_property
    def in_train(self) -> np.ndarray:
        """(M,) bool: test images that are also training images."""
        return np.isin(self.test.images, self.train.images)

    @property
    def near_in_train(self) -> np.ndarray | None:
        """(M,) bool: test images with a near-copy in train; None where it is not known."""
        return near_in_train([self.train.likeness], self.test.likeness)

    def rows(self, chosen: np.ndarray | None = None) -> np.ndarray:
        """Return the chosen (N,) bool training rows sorted by name, so that no result depends on the listing.

        chosen: None for all.
        """
        rows = np.arange(len(self.train)) if chosen is None else np.flatnonzero(chosen)
        return rows[np.argsort(self.train.ids[rows], kind="stable")]

    def held_out(self, chosen: np.ndarray, share: float, seed: int, fold: int = 0) -> np.ndarray:
        """Return (N,) bool: about `share` of each class of the chosen training rows; images of one group, and copies of
        one image, stay together.

        fold: see `sslkit.data.held_out.held_out`.
        Raises UserError if no class has two images (or groups) to split.
        """
        rows = np.flatnonzero(chosen)
        groups = None if self.train.groups is None else self.train.groups[rows]
        names, first, member = units(self.train.ids[rows], self.train.images[rows], groups)
        out = np.zeros(len(chosen), bool)
        out[rows] = held_out(self.train.y[rows][first], names.tolist(), share, seed=seed, fold=fold)[member]
        if not out.any():
            raise UserError(
                f"{self.name}: no class has {max(2, fold + 1)} labelled images, so none can be held out to choose the "
                "setting; use more labels, fewer folds, or a grid of one setting"
            )
        return out


def open_task(model: Model, dataset: Any, reading: Reading = AS_USUAL, *, takes_numbers: bool = False) -> Task:
    """Open the splits of a data set for a model.

    dataset: any source of `evaluation.datasets.open_split`, or a mapping of "train", "test" and optionally "val" to
        open `Split`s. Without a "test" split, "val" is the test.
        Of a source, images that cannot be read are left out; of given splits, `open_splits` has done it. Splits that
        have no digests of their images yet are read for them.
    takes_numbers: labels may be numbers, which a head with one output learns.
    Raises UserError if a split or its labels are missing, for -1 labels, and for classes that occur only in test.
    """
    model = model.seeing(reading.resize, reading.interpolation)
    splits = check_splits(dataset) if isinstance(dataset, Mapping) else open_splits(dataset, reading)
    first = splits["train"]
    if not takes_numbers:
        refuse_numbers(first, "this")
    check_classes([first], "fine-tuning")
    splits = {name: with_digests(_renumber(split, first)) for name, split in splits.items()}
    train = _join({name: splits[name] for name in ("train", "val") if name in splits}, model)
    test = _join({"test": splits["test"]}, model)
    if train.y.ndim == 1 and not first.has_numbers:
        unseen(test.y, train.y, first.classes, first.name)
    contradicted.warn(model, contradicted.contradiction(model, lambda most: read_spaced(train.centres.parts[0], most)))
    digest, mirror = _digest(splits, train, test), reading.mirrors(first)
    return Task(model, train, test, first.classes, first.metric, first.name, digest, mirror)


def open_splits(dataset: Any, reading: Reading = AS_USUAL, *, takes_numbers: bool = False) -> dict[str, Split]:
    """Return the splits to tune and to test on, without images that cannot be read. Raises UserError as `open_task`."""
    opened = check_splits(_open(dataset, reading, takes_numbers))
    return {name: readable(split) for name, split in opened.items()}


def check_splits(splits: Mapping[str, Split]) -> dict[str, Split]:
    copied = dict(splits)
    if "test" not in copied and "val" in copied:
        copied["test"] = copied.pop("val")
    for name in ("train", "test"):
        if name not in copied:
            raise UserError(f"fine-tuning needs the splits train and test; there is no {name}: {', '.join(copied)}")
    for name, split in copied.items():
        _check(split, name)
    return copied


def _open(dataset: Any, reading: Reading, takes_numbers: bool) -> dict[str, Split]:
    if isinstance(dataset, Split):
        raise UserError('one open split is not enough to fine-tune: give {"train": Split, "test": Split}')
    entry = datasets.find_published(dataset)
    offered = entry.counts if entry else datasets.splits_of(dataset, reading.cache, reading.columns)
    wanted = [split for split in ("train", "val", "test") if split in offered]
    return {split: reading.open(dataset, split, takes_numbers=takes_numbers) for split in wanted}


def _join(given: Mapping[str, Split], model: Model) -> Labelled:
    parts = list(given.values())
    groups, hashes = [split.groups for split in parts], [split.likeness for split in parts]
    return Labelled(
        crops=Pool([_whole(split.images, model) for split in parts]),
        centres=Pool([model.clean(split.images) for split in parts]),
        y=np.concatenate([split.y for split in parts]),
        ids=_names(given),
        images=np.concatenate([split.pixel_digests for split in parts]),
        groups=None if any(group is None for group in groups) else np.concatenate(groups),
        own_val=np.repeat([False, True], [len(split) for split in parts]) if len(parts) > 1 else None,
        likeness=None if any(some is None for some in hashes) else np.concatenate(hashes),
    )


def _names(given: Mapping[str, Split]) -> np.ndarray:
    """Return names (N,) str, with the split as a prefix, because two folders may have files of the same name."""
    if len(given) == 1:
        return np.concatenate([np.asarray(split.ids).astype(str) for split in given.values()])
    return np.array([f"{name}/{row}" for name, split in given.items() for row in split.ids])


def _whole(images: Images, model: Model) -> Images:
    """Return the images for crops: arrays unchanged, files decoded a little larger than the crops."""
    size = round(model.image_size * 8 / 7) if images.native_size is None else max(images.native_size)
    how = {"channels": model.in_chans, "fit": "squash", "interpolation": model.resizing.interpolation}
    return model.with_scale(images, image_size=size, **how)


def _check(split: Split, name: str) -> None:
    where = f"{split.name} ({name})"
    if split.y is None or not len(split.y):
        raise UserError(f"{where} has no labels, which fine-tuning needs: give class folders or y_{name}")
    if split.y.ndim == 1 and (missing := int((~is_labelled(split.y)).sum())):
        raise UserError(f"{where}: {missing} of {len(split.y)} images have no label; leave them out of the split")


def _renumber(split: Split, train: Split) -> Split:
    """Return the split with its labels renumbered as in train."""
    if split.has_numbers != train.has_numbers:
        raise UserError(f"{split.name}: the labels of one split are numbers, those of the other classes")
    if split.y.ndim != train.y.ndim:
        raise UserError(f"{split.name}: one split has several labels per image, the other has one")
    if split.y.ndim == 2 or split.has_numbers or list(split.classes) == list(train.classes):
        return split
    return replace(split, y=renumber(split.y, split.classes, train.classes, split.name))


def _digest(given: Mapping[str, Split], *read: Labelled) -> str:
    digest = hashlib.sha256()
    for name, split in given.items():
        digest.update(f"{name} {split.digest} ".encode())
        digest.update(np.ascontiguousarray(split.y))
    scales = {pool.scale for read_split in read for pool in read_split.centres.parts}
    if scales - {split.images.scale for split in given.values()}:  # those of the model's training
        digest.update(repr(sorted(map(repr, scales))).encode())
    return digest.hexdigest()
