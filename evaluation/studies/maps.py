"""Studies that map features of some networks in two dimensions, and measure how their classes separate."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from evaluation.features.extraction import extract
from evaluation.features.zoo_members import load_member
from evaluation.ranking.inputs.samples import as_sample
from evaluation.results.statistics import over_seeds
from evaluation.studies.claims import Cell, Claim, Numbers, Summary, by_row, evaluate_claims
from evaluation.studies.drawing import maps
from evaluation.studies.study import Lab, Study
from evaluation.studies.subjects import Stage, Subjects, follow, percent
from evaluation.transferability.ped import moves
from sslkit.errors import UserError
from sslkit.files.writing import write_whole
from sslkit.numerics.figures import NEIGHBOURS, largest, purity, reduce, tsne

PER_CLASS, CLASSES = 60, 10  # images and classes in a map: more points hide each other
EVERY, SAME = "all networks", "same class"
View = tuple[np.ndarray, np.ndarray]  # features (N, D), labels (N,)


@dataclass(frozen=True, kw_only=True)
class StageMaps(Study):
    """Features at some stages; the number of each is the share of 10 neighbours that are of a row's own class.

    name: of the files with the maps, beside the results: NAME-MODEL.npz. models, data: at each scale. mapped: the
    models that are drawn, with the first seed. claims: (stage, stage) pairs in the column SAME, over the networks.
    """

    name: str
    models: Mapping[str, tuple[str, ...]]
    data: Mapping[str, str]
    benchmark: str
    mapped: tuple[str, ...]
    claims: tuple[Claim, ...]
    seeds: tuple[int, ...] = (0,)

    @abstractmethod
    def stages(self, model: str, seed: int, subjects: Subjects) -> dict[str, View]:
        """The features and labels at each stage of a network, the same images at all."""

    def jobs(self, lab: Lab) -> dict[str, Callable[[], Numbers]]:
        models, subjects = self.models[lab.scale], Subjects(self.benchmark, lab)
        return {
            f"{model} | {seed}": partial(self._measure, model, seed, subjects)
            for model in models
            for seed in self.seeds
        }

    def _measure(self, model: str, seed: int, subjects: Subjects) -> Numbers:
        views = self.stages(model, seed, subjects)
        if model in self.mapped and seed == self.seeds[0]:
            _keep(views, subjects.lab.runtime.out / f"{self.name}-{model}.npz")
        return {stage: purity(_unit(x), y) for stage, (x, y) in views.items()}

    def summarize(self, by_job: Mapping[str, Numbers]) -> Summary:
        rows = {model: by_row(by_job, model) for model in dict.fromkeys(key.rpartition(" | ")[0] for key in by_job)}
        cells = {model: _cells(list(seeds.values())) for model, seeds in rows.items()}
        networks = [_mean(list(seeds.values())) for seeds in rows.values()] if len(rows) > 1 else [*by_job.values()]
        if len(rows) > 1:
            cells[EVERY] = _cells(networks)
        ladder = {
            f"{stage} | {number}": {SAME: value}
            for number, shares in enumerate(networks)
            for stage, value in shares.items()
        }
        over = "networks" if len(rows) > 1 else "seeds"
        return Summary(cells, *evaluate_claims(self.claims, ladder, {}, {SAME: "fraction"}, over=over))

    def draw(self, by_job: Mapping[str, Numbers], path: Path, title: str) -> None:
        models = [model for model in self.mapped if f"{model} | {self.seeds[0]}" in by_job]
        files = {model: path.parent / f"{self.name}-{model}.npz" for model in models}
        for file in files.values():
            if not file.exists():
                raise UserError(f"{file} is missing: move {path.with_suffix('.json')} away to make it anew")
        numbers = {model: by_job[f"{model} | {self.seeds[0]}"] for model in models}
        note = f"share: of {NEIGHBOURS} neighbours in the features, of the same class; the maps are independent (t-SNE)"
        maps({model: dict(np.load(file)) for model, file in files.items()}, numbers, note, path, title)


@dataclass(frozen=True, kw_only=True)
class TunedMaps(StageMaps):
    """Test images during fine-tuning. shares: of the steps."""

    shares: tuple[float, ...]

    def stages(self, model: str, seed: int, subjects: Subjects) -> dict[str, View]:
        task = self.data[subjects.lab.scale]
        loaded, setting = load_member(subjects.zoo[model]), replace(subjects.settings(task)[model], seed=seed)

        def measure(stage: Stage) -> View:
            return stage.features("test"), stage.labels("test")

        views = follow(loaded, subjects.splits(task), setting, self.shares, measure, subjects.lab)
        return {percent(share): view for share, view in views.items()}


@dataclass(frozen=True, kw_only=True)
class MovedMaps(StageMaps):
    """Training images before and after PED, with the options of its metric."""

    def stages(self, model: str, seed: int, subjects: Subjects) -> dict[str, View]:
        runtime, split = subjects.lab.runtime, subjects.splits(self.data[subjects.lab.scale])["train"]
        loaded = load_member(subjects.zoo[model])
        how = {"cache": runtime.cache, "device": runtime.device, "progress": runtime.progress}
        features = extract(loaded, split, **how)
        card_features = loaded.entry.card.get("features") if loaded.entry else None
        reference = (card_features["mean"], card_features["std"]) if card_features and "mean" in card_features else None
        sample = as_sample(features, reference=reference)
        after, _ = moves(sample)
        y = sample.labels.numpy()
        return {"before": (sample.features.numpy(), y), "after PED": (after.features.numpy(), y)}


def _cells(networks: list[Numbers]) -> dict[str, Cell]:
    return {stage: Cell(over_seeds([network[stage] for network in networks])) for stage in networks[0]}


def _mean(seeds: list[Numbers]) -> Numbers:
    """The numbers of a network, over its seeds."""
    return {stage: float(np.mean([numbers[stage] for numbers in seeds])) for stage in seeds[0]}


def _unit(x: np.ndarray) -> np.ndarray:
    """The rows at length 1, as the maps compare them."""
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)


def _keep(views: Mapping[str, View], path: Path) -> None:
    """Write the maps (n, 2) of the same rows at every stage, and their labels as "y"."""
    y = next(iter(views.values()))[1]
    rows = np.concatenate([np.flatnonzero(y == label)[:PER_CLASS] for label in largest(y, CLASSES)])
    flat = {stage: tsne(reduce(x[rows], 0), 0)[0] for stage, (x, _) in views.items()}
    with write_whole(path) as partial_path, partial_path.open("wb") as file:
        np.savez(file, y=y[rows], **flat)
