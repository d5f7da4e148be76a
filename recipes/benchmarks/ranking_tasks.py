"""Tasks of the ranking study that are parts of the embedded sets: class groups, few and many images, fine classes.

python recipes/benchmarks/ranking_tasks.py runs/tasks      (writes one .npz for each task, a few seconds)
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evaluation.protocols.detection.clipart_boxes import CLASSES, open_clipart_boxes
from sslkit.data.sources import open_images
from sslkit.files import write_whole


@dataclass(frozen=True)
class Part:
    """A part of an embedded set. classes: names, or the number of the most frequent ones. train, test: images a class.

    The test images of a part are test images of the set.
    """

    data: str
    classes: Sequence[str] | int
    train: int
    test: int = 10**9


TASKS = {
    "clipart_living": Part("clipart", ("animals", "food", "plants", "people"), 20),
    "clipart_things": Part("clipart", ("transportation", "buildings", "tools", "electronics"), 60),
    "scripts": Part("glyph_scripts", 10, 100, 60),
    "characters": Part("glyphs", 50, 16),
    "clothes": Part("fashion_mnist", ("T-shirt/top", "Pullover", "Dress", "Coat", "Shirt"), 20),
}


SCENES, SCENE_SEEDS = "clipart_scenes", {"train": (0,), "test": (0, 1, 2)}  # several classes an image


def main(folder: Path) -> None:
    made = {name: arrays_of(part) for name, part in TASKS.items()}
    for name, arrays in {**made, SCENES: scenes()}.items():
        path = folder / f"{name}.npz"
        with write_whole(path) as partial, partial.open("wb") as file:
            np.savez_compressed(file, **arrays)
        counts = {split: len(arrays[f"y_{split}"]) for split in ("train", "test")}
        print(f"{path}: {len(arrays['classes'])} classes, {counts['train']} training and {counts['test']} test images")


def arrays_of(part: Part) -> dict[str, np.ndarray]:
    """The images and labels of both splits, and the names of the classes, in the set's order."""
    splits = {split: open_images(part.data, split=split) for split in ("train", "test")}
    names = list(splits["train"].classes)
    chosen = _chosen(part, names, splits["train"].labels)
    arrays = {"classes": np.array([names[label] for label in chosen])}
    for split, most in (("train", part.train), ("test", part.test)):
        images = splits[split]
        rows = np.concatenate([np.flatnonzero(images.labels == label)[:most] for label in chosen])
        arrays[f"x_{split}"] = images.pixels[rows]
        arrays[f"y_{split}"] = np.searchsorted(chosen, images.labels[rows])
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


def _chosen(part: Part, names: Sequence[str], labels: np.ndarray) -> np.ndarray:
    """Labels of the part's classes, ascending."""
    if isinstance(part.classes, int):
        counts = np.bincount(labels, minlength=len(names))
        return np.sort(np.argsort(-counts, kind="stable")[: part.classes])
    return np.sort([names.index(name) for name in part.classes])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
