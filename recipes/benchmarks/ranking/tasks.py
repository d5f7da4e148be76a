"""Tasks of the ranking study that are parts of the embedded sets: a class group, few images, many classes.

python recipes/benchmarks/ranking/run.py tasks runs/tasks      (writes one .npz for each task, a few seconds)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cli
import numpy as np

from evaluation.tasks.detection.datasets.clipart_boxes import CLASSES, open_clipart_boxes
from sslkit.data.sources.named import open_images
from sslkit.files.writing import write_whole


@dataclass(frozen=True)
class Part:
    """A part of an embedded set. classes: names, or the number of the most frequent ones. train, test: images a class.

    pool: splits of the set whose images are divided anew into train and test. None: the test images of a part are test
    images of the set.
    """

    data: str
    classes: Sequence[str] | int
    train: int
    test: int = 10**9
    pool: Sequence[str] | None = None


BOTH = ("train", "test")
TASKS = {
    "digits_few": Part("digits", 10, 10, 100, BOTH),
    "mnist_few": Part("mnist5k", 10, 10, 100),
    "clothes": Part("fashion_mnist", ("T-shirt/top", "Pullover", "Dress", "Coat", "Shirt"), 20),
    "characters": Part("glyphs", 40, 5, 15, ("novel_test",)),  # letters of scripts that no entry was trained on
}


SCENES, SCENE_SEEDS = "clipart_scenes", {"train": (0,), "test": (0, 1, 2)}  # several classes an image


def main() -> None:
    parser = cli.parser(__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    made = {name: arrays_of(spec) for name, spec in TASKS.items()}
    for name, arrays in {**made, SCENES: scenes()}.items():
        path = folder / f"{name}.npz"
        with write_whole(path) as partial, partial.open("wb") as file:
            np.savez_compressed(file, **arrays)
        counts = {split: len(arrays[f"y_{split}"]) for split in ("train", "test")}
        print(f"{path}: {len(arrays['classes'])} classes, {counts['train']} training and {counts['test']} test images")


def arrays_of(spec: Part) -> dict[str, np.ndarray]:
    """The images and labels of both splits, and the names of the classes, in the set's order."""
    opened = [open_images(spec.data, split=split) for split in spec.pool or BOTH]
    names = list(opened[0].classes)
    pixels, labels = [images.pixels for images in opened], [images.labels for images in opened]
    if spec.pool is not None:
        whole, all_labels = np.concatenate(pixels), np.concatenate(labels)
        first = np.concatenate([np.flatnonzero(all_labels == label)[: spec.train] for label in range(len(names))])
        is_first = np.isin(np.arange(len(all_labels)), first)
        pixels, labels = [whole[is_first], whole[~is_first]], [all_labels[is_first], all_labels[~is_first]]
    chosen = _chosen(spec, names, labels[0])
    arrays = {"classes": np.array([names[label] for label in chosen])}
    for split, most, x, y in zip(BOTH, (spec.train, spec.test), pixels, labels, strict=True):
        rows = np.concatenate([np.flatnonzero(y == label)[:most] for label in chosen])
        arrays[f"x_{split}"] = x[rows]
        arrays[f"y_{split}"] = np.searchsorted(chosen, y[rows])
    return arrays


def scenes() -> dict[str, np.ndarray]:
    """The images of the detection set `clipart_boxes` at 64 pixels, with 1 for each of the four classes in them."""
    arrays: dict[str, np.ndarray] = {"classes": np.array(CLASSES)}
    for split, seeds in SCENE_SEEDS.items():
        images, labels = [], []
        for boxes in (open_clipart_boxes(split, seed) for seed in seeds):
            for image, target in boxes:
                images.append(image.float().reshape(3, 64, 2, 64, 2).mean((2, 4)).round().byte().numpy())
                labels.append(np.isin(np.arange(len(CLASSES)), target["labels"].numpy() - 1))
        arrays[f"x_{split}"], arrays[f"y_{split}"] = np.stack(images), np.stack(labels)
    return arrays


def _chosen(spec: Part, names: Sequence[str], labels: np.ndarray) -> np.ndarray:
    """Labels of the part's classes, ascending."""
    if isinstance(spec.classes, int):
        counts = np.bincount(labels, minlength=len(names))
        return np.sort(np.argsort(-counts, kind="stable")[: spec.classes])
    return np.sort([names.index(name) for name in spec.classes])
