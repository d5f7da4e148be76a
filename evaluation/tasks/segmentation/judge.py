"""The parts that linear_seg and knn_seg share: opened data, prediction on test images, and the result."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evaluation.datasets import READ, Reading
from evaluation.features import contradicted
from evaluation.features.extraction import LOADED
from evaluation.features.places import check_network
from evaluation.protocols.base import Judged, Subject, Task, Terminal
from evaluation.results import unseen
from evaluation.results.result import Result
from evaluation.tasks.detection.output import lines_of_kept
from evaluation.tasks.segmentation.features import BATCH, Patches, each_map, each_picture, path_of
from evaluation.tasks.segmentation.label_maps import LabelMaps
from evaluation.tasks.segmentation.miou import counts, estimates, miou
from evaluation.tasks.segmentation.pictures import SHOWN, draw_maps
from evaluation.tasks.segmentation.sources import open_label_maps
from sslkit.data.copies import line_of_near, near_in_train
from sslkit.data.sources.column_values import refuse
from sslkit.errors import UserError
from sslkit.models.model import Model
from sslkit.models.places import Look, enlarge
from sslkit.options.settings import setting
from sslkit.runtime.context import Runtime
from sslkit.runtime.device import device_of
from sslkit.runtime.distributed import rank
from sslkit.runtime.hardware import GIB
from sslkit.runtime.kept_arrays import load_or_compute_rows

Scores = Callable[[Tensor, int], Tensor]  # (P, F) features of an image's patches, its pixel digest -> (P, K) scores
USUAL = "clipart_boxes"
OTHERS = ("pixel_accuracy", "class_accuracy")
SHARED = (*LOADED, *READ, "seed", "device", "workers", "out", "progress")  # options that both protocols obey


@dataclass(frozen=True, kw_only=True)
class Looking:
    """Blocks and scales at which images are classified; see `sslkit.models.places.Look`."""

    blocks: int = setting(1, "last blocks of a ViT whose patches are joined; DINOv2's +ms: 4", least=1, most=1000)
    scales: Sequence[float] = setting(
        (),
        "multiples of image_size at which windows of that size are read, as they are and mirrored, whose predictions "
        "are averaged; DINOv2's +ms: [1,1.32,1.73,2.28,3], 110 windows of each test image; []: the image once",
        least=1,
        most=8,
    )

    @property
    def look(self) -> Look:
        return Look(self.blocks, tuple(self.scales))


@dataclass(frozen=True, eq=False)
class Opened:
    """Checked model and data. grid: rows and columns of the map that is judged. look: at images."""

    model: Model
    train: LabelMaps
    test: LabelMaps
    grid: tuple[int, int]
    look: Look

    @property
    def places(self) -> str:
        """What is classified, for a recipe."""
        look, grid = self.look, f"{self.grid[0]} x {self.grid[1]} patches"
        blocks = f" of the last {look.blocks} blocks" if look.blocks > 1 else ""
        return grid + blocks + (f" at {len(look.scales)} scales and mirrored" if look.scales else "")

    def memory(self, most: int) -> str:
        """What `most` patches to learn from take, and a test image at the largest scale."""
        look, cells = self.look, self.grid[0] * self.grid[1]
        width = self.model.backbone.map_channels() * look.blocks
        count = min(most, len(self.train) * cells * max(len(look.scales), 1))
        learned = (
            f"{count:,} patches of {width:,} features, {4 * count * width / GIB:.2f} GiB, several times when fitted"
        )
        largest = max((scale**2 for scale in look.scales), default=0) * cells * len(self.train.classes)
        shown = 4 * 2 * len(look.scales) * largest / GIB
        return learned + (f"; scores of a test image, {shown:.2f} GiB" if look.scales else "")


def open_maps(protocol: str, subject: Subject, look: Look) -> Opened:
    """Open both splits and check the network's map. Raises UserError."""
    look.check(subject.model, protocol)
    data = USUAL if subject.data is None else subject.data
    train, test = subject.once("label maps", lambda: splits_of(data, subject.reading))
    grid = check_network(subject.model, protocol)
    contradicted.warn_of_pictures(subject.model, train)
    return Opened(subject.model, train, test, grid, look)


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
    key: Sequence[object],
    learned: Patches,
    protocol: str,
    recipe: str,
    start: float,
    details: dict[str, Any],
    votes: bool = False,
) -> Result:
    """Predict the classes of every pixel of the test images, and make the result.

    key: all that the scores depend on beside model and test images. learned: of the training images. votes: no image
    answers for itself, so that test images in train do not make the result leaky, and scores are probabilities. What is
    counted of an image stays in the cache, where a stopped run goes on.
    """
    model, look, test = opened.model, opened.look, opened.test
    path = path_of(runtime, "test", model, test, look, *key)
    compute = partial(_count, opened, scores, runtime, votes)
    arrays = load_or_compute_rows(path, len(test), compute, what="the predictions of test images", unit=BATCH)
    table, digests, hashes = (arrays[name] for name in ("table", "digest", "likeness"))
    if runtime.out is not None and rank() == 0:
        title = f"{opened.model.name} on {opened.test.name}: {protocol}, mIoU {100 * miou(table):.1f} %"
        Path(runtime.out).mkdir(parents=True, exist_ok=True)
        first = replace(opened, test=test.take(np.arange(min(SHOWN, len(test)))))
        shown = [guess.cpu().numpy() for _, _, guess, _ in _predict(first, scores, runtime, votes)]
        draw_maps(test, shown, Path(runtime.out) / f"{protocol}.png", title=title)
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


def _count(
    opened: Opened, scores: Scores, runtime: Runtime, votes: bool, parts: Sequence[Sequence[int]]
) -> Iterator[dict[str, np.ndarray]]:
    """Yield the counts (n, 3, K) of the test images in each part, with digests and hashes (n, 4) of their pixels."""
    some = replace(opened, test=opened.test.take(np.concatenate([np.asarray(chunk) for chunk in parts])))
    guesses = _predict(some, scores, runtime, votes)
    for chunk in parts:
        rows = []
        for _ in chunk:
            digest, likeness, guess, classes = next(guesses)
            rows.append((counts(classes.to(guess.device), guess, len(opened.test.classes)), np.int64(digest), likeness))
        yield dict(zip(("table", "digest", "likeness"), map(np.stack, zip(*rows, strict=True)), strict=True))


def _predict(
    opened: Opened, scores: Scores, runtime: Runtime, votes: bool
) -> Iterator[tuple[int, np.ndarray, Tensor, Tensor]]:
    """Yield digest, hash (4,), predicted classes (H, W) uint8 and label map of each test image."""
    model, look, name = opened.model, opened.look, "test images"
    model.backbone.to(device_of(runtime.device)).eval()
    if look.scales:
        for digest, likeness, picture, classes in each_picture(opened.test, name, runtime):
            with torch.inference_mode():
                guess, _ = look.classify(model, picture, partial(scores, digest=digest), votes=votes)
            yield digest, likeness, guess, classes
        return
    for digest, likeness, features, classes in each_map(model, opened.test, name, runtime, look):
        shares = scores(features.flatten(1).T, digest).T.unflatten(1, features.shape[-2:])
        yield digest, likeness, enlarge(shares.float(), tuple(classes.shape)), classes


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
            ("memory", opened.memory(task.options.patches)),
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
