"""The data of a run: the training images, and the labelled images for evaluation."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sslkit.backbones import words
from sslkit.composition.method import Method
from sslkit.data.cached_images import CachedImages, Room
from sslkit.data.decoded_images import DecodedImages
from sslkit.data.near_groups import group_images
from sslkit.data.sources import class_names
from sslkit.data.sources.named import ImageOptions, Images, check_columns, open_source, splits
from sslkit.data.views.cropped import CroppedImages
from sslkit.errors import UserError
from sslkit.options.members import classes
from sslkit.runtime import processes
from sslkit.runtime.hardware import is_cpu
from sslkit.terminal import say
from sslkit.terminal.say import counted
from sslkit.training.config import Config

LEAST_TO_CHOOSE = 100  # held-out images, of which half choose: one of 50 is two points, as much as weights differ by
PUBLISHED_SIZE, CPU_SIZE = 224, 96  # pixels of views from files: as published, and as a CPU finishes


@dataclass
class Data:
    """train: training images. bank, query: images to train and to test kNN and probe on; None if unlabelled.

    choice: held-out images apart from query, by which the weights to keep are chosen; None where none are, see
    `sslkit.training.choosing`.
    held_out: whether the query images are from a held-out split.
    fixed: training images without a draw in each epoch, for priors: of videos the center clips.
    withheld: rows whose labels an objective that learns from labels may not see, without a held-out split.
    """

    train: Images
    bank: CachedImages | None
    query: CachedImages | None
    image_size: int
    held_out: bool = True
    fixed: Images | None = None
    withheld: np.ndarray | None = None
    choice: CachedImages | None = None

    @property
    def unit(self) -> str:
        """The name of a row's content, for messages."""
        return self.train.item.rows


def open_data(config: Config, own: Any = None) -> Data:
    """The training images or videos and, if there are labels, those for evaluation.

    own: images or a Dataset of a Python program, in the place of `config.data.source`.
    Warnings about the data are those of the first process, with whose images the others compare theirs.
    """
    with warnings.catch_warnings():
        if not processes.is_main():
            warnings.simplefilter("ignore")
        data = _open(config, own)
    for images in (data.train, data.fixed):
        images.workers = config.workers
    return data


def images_of(config: Config, own: Any = None) -> Images:
    """The training images or videos as a finished run leaves them, for their digest: without labels it did not see."""
    if classes(config.method_name)["objective"].needs_labels:
        data = open_data(config, own)
        withhold(data)
        return data.train
    return _open_training(config, own)[0]


def _open_training(config: Config, own: Any) -> tuple[Images, int]:
    """The training images or videos, and the size of their views."""
    source, options = _source(config, own)
    if isinstance(source, Images) and source.source is None:  # cannot be opened again
        check_columns(source, config.columns)
        channels = config.data.channels or source.channels
        fitted = source.at(image_size=source.image_size, channels=channels, fit=source.fit)
        train = group_images(fitted, config.columns)
    else:
        train = open_source(source, replace(options, split=splits(source, options.cache, config.columns)[0]))
    if config.resume and getattr(train, "varies", False):
        raise UserError(f"resume=true, but reading a row of {train.name} twice gives other pixels: start a new run")
    size = config.image_size or train.view_size or (CPU_SIZE if is_cpu(config.device) else PUBLISHED_SIZE)
    return train.for_views(size), size


def _source(config: Config, own: Any) -> tuple[Any, ImageOptions]:
    return config.data.source if own is None else own, config.data.reading(config, config.cache)


def _open(config: Config, own: Any) -> Data:
    """The training data, and as it is judged on what has labels."""
    source, options = _source(config, own)
    train, size = _open_training(config, own)

    def clean(split: str) -> Images:
        if split == train.split:  # not listed again
            return train.clean(size)
        scale = train.scale.or_else(config.scale)
        values = {"channels": train.channels, "range": scale.range or config.range, "opacity": scale.opacity}
        values |= {} if scale.fill is None else {"fill": scale.fill}
        return open_source(source, replace(options, split=split, **values)).clean(size)

    return _with_judges(Data(train, None, None, size, fixed=train.without_draws(size)), config, clean)


def _with_judges(data: Data, config: Config, clean: Callable[[str], Images]) -> Data:
    """Add bank and query, if there are labels. clean: opens a split for evaluation."""
    train, splits_there = data.train, data.train.splits
    if len(train) < config.batch_size:
        lower = "at least 2 are needed" if len(train) < 2 else f"batch_size={len(train)} takes all in one step"
        raise UserError(
            f"data {config.data.source!r} has {counted(len(train), data.unit[:-1])}, fewer than one batch "
            f"(batch_size={config.batch_size}): {lower}"
        )
    if isinstance(train, DecodedImages):  # a single one that can be read would stand in for all others
        first = int(train.__getitems__([0])["index"][0])
        if int(train.__getitems__([(first + 1) % len(train)])["index"][0]) == first:
            raise UserError(f"only one of {len(train)} images of {train.name} can be read, {train.path(first)}")
    if train.labels is None or len(train.classes) < 2:
        return data
    room = Room(Path(config.cache or config.out))
    bank = clean(splits_there[0])
    held_out = next((name for name in ("test", "val") if name in splits_there), None)
    query = clean(held_out) if held_out else None
    if query is not None and query.labels is not None:
        if query.classes != bank.classes or not np.isin(query.labels, bank.labels).all():
            _number_as_learned(query, bank)
        bank, query = (cap(images, config, room=room) for images in (bank, query))
        return _set_apart(_drop_few_labels(replace(data, bank=bank, query=query), config), config, room)
    learned, asked = held_out_rows(bank.labels, bank.groups)
    labelled = (bank.labels[rows][bank.labels[rows] >= 0] for rows in (learned, asked))
    withheld = None if too_few(*labelled) else asked  # all, whatever eval.max_images is
    bank, query = (cap(bank, config, rows, room=room) for rows in (learned, asked))
    data = replace(data, bank=bank, query=query, held_out=False, withheld=withheld)
    return _set_apart(_drop_few_labels(data, config), config, room)


def _number_as_learned(query: Images, bank: Images) -> None:
    """Number the labels of held-out images as those of training, by name; classes that are not there are not asked for.

    Raises UserError if no class is.
    """
    labels, unseen = class_names.known(query.labels, query.classes, bank.labels, bank.classes, query.name)
    if unseen and processes.is_main():
        lost = int((query.labels >= 0).sum() - (labels >= 0).sum())
        say.warning(
            f"warning: {query.name}: train has no image of {class_names.list_names(unseen)}, so that "
            f"{counted(lost, 'held-out image')} of these classes are not used for evaluation"
        )
    query.labels, query.classes = labels, bank.classes


def _drop_few_labels(data: Data, config: Config) -> Data:
    """Drop bank and query if labels are too few: at least two classes with two held-out images each, and k neighbours.

    Raises UserError for fewer than eval.k labelled images.
    """
    learned, asked = (subset.images.labels[subset.rows] for subset in (data.bank, data.query))
    if too_few(learned, asked):
        if processes.is_main():
            say.line(f"too few labelled {data.unit} to evaluate ({len(asked)} held out): this run is not evaluated")
        return replace(data, bank=None, query=None, held_out=True)
    if len(learned) < config.eval.k:
        raise UserError(
            f"eval.k={config.eval.k} neighbours, but only {len(learned)} labelled {data.unit}: lower eval.k"
        )
    return data


def _set_apart(data: Data, config: Config, room: Room) -> Data:
    """Take half of the held-out images, of whole groups, to choose weights by, where the run chooses."""
    if data.query is None or not chooses(config, len(data.query.rows)):
        return data
    images, rows = data.query.images, data.query.rows
    groups = None if images.groups is None else images.groups[rows]
    halves = held_out_rows(images.labels[rows], groups, share=0.5)
    if any(too_few(data.bank.images.labels[data.bank.rows], images.labels[rows[half]]) for half in halves):
        return data
    query, choice = (CachedImages(images, rows[half], room=room) for half in halves)
    return replace(data, query=query, choice=choice)


def chooses(config: Config, count: int) -> bool:
    """Return whether the run chooses weights, where so many held-out images have labels."""
    is_between = config.init is not None and config.interpolate == words.AUTO and count >= LEAST_TO_CHOOSE
    return is_between or (config.eval.by is None and (config.keep == "best" or config.stop is not None))


def too_few(learned: np.ndarray, asked: np.ndarray) -> bool:
    """Return True unless there are two classes to learn from, and two with two images each to be asked for."""
    return len(np.unique(learned)) < 2 or (np.unique(asked, return_counts=True)[1] >= 2).sum() < 2


def held_out_rows(
    labels: np.ndarray, groups: np.ndarray | None = None, share: float = 0.2
) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train on and rows to test on, the same share of every class, always the same ones.

    groups: (N,) of each row, whose rows stay together, with the label of the first; None: each row is one.
    """
    groups = range(len(labels)) if groups is None else groups
    _, first, of_row = np.unique(groups, return_index=True, return_inverse=True)
    labels = labels[first]
    order = np.random.default_rng(0).permutation(len(labels))
    ranked = order[np.argsort(labels[order], kind="stable")]
    test = np.zeros(len(labels), bool)
    for rows in np.split(ranked, np.flatnonzero(np.diff(labels[ranked])) + 1):
        test[rows[: round(share * len(rows))]] = True
    return np.flatnonzero(~test[of_row]), np.flatnonzero(test[of_row])


def cap(images: Images, config: Config, rows: np.ndarray | None = None, *, room: Room | None = None) -> CachedImages:
    """The labelled rows of `rows` (all rows if the images have no labels), at most eval.max_images, always the same.

    room: to keep them in for the next reading.
    """
    rows = np.arange(len(images)) if rows is None else rows
    rows = rows if images.labels is None else rows[images.labels[rows] >= 0]
    if len(rows) > config.eval.max_images:
        rows = np.sort(np.random.default_rng(0).choice(rows, config.eval.max_images, replace=False))
    images.workers = config.workers
    return CachedImages(images, rows, room=room)


def rows_to_learn(config: Config, data: Data, method: Method, *, whole: bool) -> Images | CroppedImages:
    """The data set that the loader reads: crops of files for the views of the method, or arrays, cut on the device.

    whole: with crops, give the whole images as well.
    """
    if not isinstance(data.train, DecodedImages):
        return data.train
    return CroppedImages(data.train, method.recipe, method.image_size, whole=whole)


def withhold(data: Data) -> None:
    """Remove the labels of the held-out images from training, if there is no held-out split."""
    if data.withheld is not None:
        data.train.labels = data.train.labels.copy()
        data.train.labels[data.withheld] = -1
