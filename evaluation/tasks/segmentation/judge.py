"""The parts that linear_seg and knn_seg share: opened data, prediction on test images, and the result."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from evaluation.datasets import READ, Reading
from evaluation.features import contradicted
from evaluation.features.extraction import LOADED
from evaluation.features.places import check_network
from evaluation.protocols.base import Judged, Subject, Task, Terminal
from evaluation.results import unseen
from evaluation.results.result import Result
from evaluation.tasks.detection.output import lines_of_kept
from evaluation.tasks.segmentation.features import Patches, each_map
from evaluation.tasks.segmentation.label_maps import LabelMaps
from evaluation.tasks.segmentation.miou import counts, estimates, miou
from evaluation.tasks.segmentation.pictures import SHOWN, draw_maps
from evaluation.tasks.segmentation.sources import open_label_maps
from sslkit.data.copies import line_of_near, near_in_train
from sslkit.data.sources.column_values import refuse
from sslkit.errors import UserError
from sslkit.models.model import Model
from sslkit.models.segmenter import enlarge
from sslkit.runtime.context import Runtime
from sslkit.runtime.distributed import rank

Scores = Callable[[Tensor, int], Tensor]  # (P, F) features of an image's patches, its pixel digest -> (P, K) scores
USUAL = "clipart_boxes"
OTHERS = ("pixel_accuracy", "class_accuracy")
SHARED = (*LOADED, *READ, "seed", "device", "workers", "out", "progress")  # options that both protocols obey


@dataclass(frozen=True, eq=False)
class Opened:
    """Checked model and data. grid: rows and columns of the map that is judged."""

    model: Model
    train: LabelMaps
    test: LabelMaps
    grid: tuple[int, int]


def open_maps(protocol: str, subject: Subject) -> Opened:
    """Open both splits and check the network's map. Raises UserError."""
    data = USUAL if subject.data is None else subject.data
    train, test = subject.once("label maps", lambda: splits_of(data, subject.reading))
    grid = check_network(subject.model, protocol)
    contradicted.warn_of_pictures(subject.model, train)
    return Opened(subject.model, train, test, grid)


def splits_of(data: Any, reading: Reading) -> tuple[LabelMaps, LabelMaps]:
    """Train and test of a source, or of {"train": ..., "test": ...}. Raises UserError for different classes."""
    sources = data if isinstance(data, dict) else {"train": data, "test": data}
    refuse(reading.columns, str(sources.get("train")), "has label maps, which no column names")
    if not {"train", "test"} <= set(sources):
        raise UserError(f"data must have the splits train and test; it has {', '.join(sources) or 'none'}")
    train, test = (open_label_maps(sources[split], split, reading) for split in ("train", "test"))
    if train.classes != test.classes:
        raise UserError(f"{train.name}: train and test have different classes: {train.classes} and {test.classes}")
    if len(train) < 5 or len(test) < 2:
        raise UserError(f"{train.name}: {len(train)} images to learn from and {len(test)} for the test are too few")
    return train, test


def evaluate_maps(
    opened: Opened,
    scores: Scores,
    runtime: Runtime,
    *,
    learned: Patches,
    protocol: str,
    recipe: str,
    start: float,
    details: dict[str, Any],
    votes: bool = False,
) -> Result:
    """Predict the classes of every pixel of the test images, and make the result.

    learned: of the training images. votes: no image answers for itself, so that test images in train do not make the
    result leaky.
    """
    table, digests, hashes, shown = _predict_all(opened, scores, runtime)
    if runtime.out is not None and rank() == 0:
        title = f"{opened.model.name} on {opened.test.name}: {protocol}, mIoU {100 * miou(table):.1f} %"
        Path(runtime.out).mkdir(parents=True, exist_ok=True)
        draw_maps(opened.test, shown, Path(runtime.out) / f"{protocol}.png", title=title)
    value, others = estimates(table)
    in_train = np.isin(digests, learned.digest)
    others |= unseen.beside(in_train, lambda rows: estimates(table[rows])[0])
    remarks = (opened.test.note, _line_of_near(learned, hashes, in_train, opened.test.name))
    right, truth, guessed = table.sum(0)
    union = np.maximum(truth + guessed - right, 1)
    per_class = dict(zip(opened.test.classes, (right / union).round(4).tolist(), strict=True))
    return Result.from_estimate(
        value,
        protocol=protocol,
        recipe=recipe,
        metric="miou",
        model=opened.model.name,
        data=opened.test.name,
        others=others,
        seeds=[runtime.seed],
        digests={"model": opened.model.digest, "train": opened.train.digest, "test": opened.test.digest},
        leaky=not votes and unseen.is_leaky(in_train),
        seconds=time.perf_counter() - start,
        details={
            **details,
            **unseen.details(in_train),
            "grid": list(opened.grid),
            "image_size": opened.model.image_size,
            "iou": per_class,
            "images": [len(opened.train), len(opened.test)],
            **({"notes": notes} if (notes := "; ".join(filter(None, remarks))) else {}),
        },
    )


def _line_of_near(learned: Patches, hashes: np.ndarray, in_train: np.ndarray, data: str) -> str:
    """Return the line on test images with a near-copy in train; "" for none beside those that are the same."""
    first = np.unique(learned.digest, return_index=True)[1]
    near = near_in_train([learned.likeness[first]], hashes)
    if near is None or not (near & ~in_train).any():
        return ""
    return line_of_near(int((near | in_train).sum()), int(in_train.sum()), len(in_train), f"test images of {data}")


def _predict_all(
    opened: Opened, scores: Scores, runtime: Runtime
) -> tuple[np.ndarray, list[int], np.ndarray, list[np.ndarray]]:
    """Return the counts (N, 3, K) of the test images, digests and hashes (N, 4) of their pixels, and the first maps."""
    tables, digests, hashes, shown = [], [], [], []
    for digest, likeness, features, classes in each_map(opened.model, opened.test, "test images", runtime):
        grid = features.shape[-2:]
        shares = scores(features.flatten(1).T, digest).T.unflatten(1, grid)
        guess = enlarge(shares.float(), tuple(classes.shape))
        tables.append(counts(classes.to(shares.device), guess, len(opened.test.classes)))
        digests.append(digest)
        hashes.append(likeness)
        if len(shown) < SHOWN:
            shown.append(guess.cpu().numpy())
    return np.stack(tables), digests, np.stack(hashes), shown


def terminal(protocol: str) -> Terminal:
    """The terminal of a protocol on label maps."""

    def fits(model: Model, options: Any) -> None:
        check_network(model, protocol)

    def plan(opened: Opened, task: Task, runtime: Runtime) -> list[tuple[str, str]]:
        train, test = opened.train, opened.test
        left_out = f" ({train.left_out:,} without an object are left out)" if train.left_out else ""
        return [
            (
                "data",
                f"{train.name}: {len(train):,} images with {len(train.classes)} classes of pixels{left_out}, "
                f"{len(test):,} test",
            ),
            ("plan", f"{protocol} on maps of {opened.grid[0]} x {opened.grid[1]} at {opened.model.image_size} pixels"),
        ]

    def remarks(models: Sequence[Judged]) -> list[str]:
        rows = [(entry, result) for entry in models for result in entry.results if result.protocol == protocol]
        pictures = [f"pictures  {entry.folder / protocol}.png" for entry, _ in rows]
        return [*(_worst(result) for _, result in rows), *dict.fromkeys(pictures), *lines_of_kept(models)]

    return Terminal(usual=None, fits=fits, plan=plan, remarks=remarks)


def _worst(result: Result) -> str:
    """One line on the classes with the highest and the lowest IoU."""
    ranked = sorted(result.details["iou"].items(), key=lambda item: -item[1])
    shown = ranked if len(ranked) <= 6 else [*ranked[:3], *ranked[-3:]]
    return f"{'IoU':<9} {result.model}: " + ", ".join(f"{name} {100 * value:.1f}" for name, value in shown)
