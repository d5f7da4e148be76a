"""Trained networks with numbers or pictures of their own: maps of some classes, swept options, the terms of a bound."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from scipy import stats

import sslkit
from evaluation.datasets import open_split
from evaluation.features.extraction import extract
from evaluation.protocols.lidar import Options, view_features
from evaluation.studies.claims import AGREES, DISAGREES, OPEN, Numbers, Summary
from evaluation.studies.drawing import draw_class_maps, draw_scatter, draw_sweeps
from evaluation.studies.study import Lab
from evaluation.studies.training import PROBE, Column, Training, measure_columns
from sslkit.errors import UserError
from sslkit.files.writing import write_whole
from sslkit.numerics.diagnostics import crowding
from sslkit.numerics.figures import purity, reduce, tsne
from sslkit.numerics.risk_bound import risk_bound

OVERLAP = "overlap"
TERMS = ("contrast", "separation", "spread", "bound")
LINEAR = "top-1"


@dataclass(frozen=True, kw_only=True)
class ClassMaps(Training):
    """Some classes of the test images in the feature space of each network: numbers of them, and a t-SNE map.

    Measured, of unit-length features: inter-class distance, intra-class variance, and the overlap, the share of the ten
    nearest neighbours that are of another class. classes: how many, drawn once for all networks. shown_images: of each
    class in the map, of the first seed.
    """

    columns: Mapping[str, Column] = field(
        default_factory=lambda: {
            "inter-class": Column("crowding", unit=""),
            "intra-class": Column("crowding", unit=""),
            OVERLAP: Column("crowding"),
        }
    )
    classes: int = 8
    shown_images: int = 60

    def numbers(self, entry: sslkit.ZooEntry, name: str, seed: int, lab: Lab) -> Numbers:
        how = {"cache": lab.runtime.cache, "root": lab.root, "device": lab.runtime.device}
        whole = extract(entry, self.judged_on[lab.scale], "test", progress=lab.runtime.progress, **how)
        chosen = np.random.default_rng(0).choice(len(whole.classes), self.classes, replace=False)
        some = whole.take(np.flatnonzero(np.isin(whole.y, chosen)))
        if seed == self.seeds[0]:
            self._keep(some.x, some.y, whole.classes, _map_file(Path(lab.runtime.out), lab.scale, name))
        spread = crowding(torch.from_numpy(np.array(some.x)), torch.from_numpy(np.array(some.y)))
        z = some.x / np.maximum(np.linalg.norm(some.x, axis=1, keepdims=True), 1e-12)
        return {"inter-class": spread.inter, "intra-class": spread.intra, OVERLAP: 1 - purity(z, some.y)}

    def _keep(self, x: np.ndarray, y: np.ndarray, classes: list[str], file: Path) -> None:
        """Write the map of the first images of each class, for `draw`."""
        rows = np.concatenate([np.flatnonzero(y == label)[: self.shown_images] for label in np.unique(y)])
        flat, _ = tsne(reduce(np.asarray(x[rows], dtype=np.float32), seed=0), seed=0)
        file.parent.mkdir(parents=True, exist_ok=True)
        with write_whole(file) as partial, partial.open("wb") as opened:
            np.savez(opened, flat=flat, y=y[rows], classes=np.array(list(map(str, classes))))

    def draw(self, by_job: Mapping[str, Numbers], path: Path, title: str) -> None:
        scale = "paper" if path.stem.endswith("-paper") else "small"
        files = {
            name: _map_file(path.parent, scale, name) for name in self.rows if f"{name} | {self.seeds[0]}" in by_job
        }
        if missing := [str(file) for file in files.values() if not file.exists()]:
            raise UserError(f"the map {missing[0]} is missing: delete {path.with_suffix('.json')} to measure it again")
        maps = {name: dict(np.load(file)) for name, file in files.items()}
        draw_class_maps(
            {name: (class_map["flat"], class_map["y"]) for name, class_map in maps.items()}, _classes(maps), path, title
        )


def _map_file(folder: Path, scale: str, row: str) -> Path:
    return folder / f"maps-{scale}" / f"{row.replace(' ', '_')}.npz"


def _classes(maps: Mapping[str, Mapping[str, np.ndarray]]) -> list[str]:
    return next(iter(maps.values()))["classes"].tolist()


@dataclass(frozen=True, kw_only=True)
class Swept(Training):
    """Networks with one option changed at a time; rows are called OPTION=VALUE. Drawn as lines over the values."""

    def draw(self, by_job: Mapping[str, Numbers], path: Path, title: str) -> None:
        draw_sweeps(self.summarize(by_job).rows, path, title)


@dataclass(frozen=True, kw_only=True)
class Bounds(Training):
    """The terms of `risk_bound` of each network, and their correlation with the linear evaluation over the networks.

    images: test images whose two views are taken. The claim: the higher the bound, the lower the accuracy.
    """

    columns: Mapping[str, Column] = field(
        default_factory=lambda: {LINEAR: PROBE, **{name: Column("lidar", unit="") for name in ("risk", *TERMS)}}
    )
    images: int = 1000

    def numbers(self, entry: sslkit.ZooEntry, name: str, seed: int, lab: Lab) -> Numbers:
        split = open_split(self.judged_on[lab.scale], "test", root=lab.root)
        views = view_features(sslkit.load(entry), split, Options(q=2).recipe, self.images, lab.runtime)
        label = dict(zip(split.ids.tolist(), split.y.tolist(), strict=True))
        bound = risk_bound(views.x[0::2], views.x[1::2], [label[image_id] for image_id in views.ids.tolist()])
        linear = measure_columns(entry, {LINEAR: self.columns[LINEAR]}, self.judged_on, lab)
        return {**linear, **{term: getattr(bound, term) for term in ("risk", *TERMS)}}

    def summarize(self, by_job: Mapping[str, Numbers]) -> Summary:
        rows = super().summarize(by_job).rows
        values = [numbers for numbers in by_job.values() if numbers.keys() >= set(TERMS)]
        if len(values) < 3:
            return Summary(rows, OPEN, "fewer than three networks measured")
        linear = [numbers[LINEAR] for numbers in values]
        told = {name: stats.pearsonr([numbers[name] for numbers in values], linear) for name in (*TERMS, "risk")}
        ends = {name: correlation.confidence_interval(0.95) for name, correlation in told.items()}
        low, high = ends["bound"]
        outcome = AGREES if high < 0 else DISAGREES if low > 0 else OPEN
        text = "; ".join(
            f"{name} r {told[name].statistic:.2f} ({low:.2f} to {high:.2f})" for name, (low, high) in ends.items()
        )
        return Summary(rows, outcome, f"correlation with the linear evaluation over {len(values)} networks: {text}")

    def draw(self, by_job: Mapping[str, Numbers], path: Path, title: str) -> None:
        scores = {name: [numbers[name] for numbers in by_job.values()] for name in (*TERMS, "risk")}
        linear = [numbers[LINEAR] for numbers in by_job.values()]
        draw_scatter(scores, {"linear evaluation": linear}, path, title, "networks")
