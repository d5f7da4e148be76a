"""The published ranking benchmarks as a whole: their models, their data sets, their fine-tuning accuracies."""

from pathlib import Path
from typing import Any

import numpy as np

from evaluation import published
from evaluation.benchmark import open_benchmark
from evaluation.ranking import Ranking, rank
from evaluation.ranking_summary import write_ranking


def rank_published(
    name: str,
    checkpoints: str | Path,
    *,
    metrics: Any,
    root: str | Path = "data",
    out: str | Path = "runs/ranking",
    pictures: bool = True,
    zoo: Any = None,
    data: Any = None,
    truth: Any = None,
    max_images: int | None = None,
    **how: Any,
) -> list[Ranking]:
    """Score a published benchmark's models on its data sets and compare with its published accuracies.

    name: "ped" (12 self-supervised ResNet-50, 10 sets) or "itm" (10 architectures, supervised or not, 10 sets).
    checkpoints: folder of the model files. root: folder of the data sets. metrics, how: see `evaluation.rank`.
    Raises UserError that lists every missing file before anything is computed.
    """
    benchmark = open_benchmark(name, checkpoints=checkpoints, root=root)
    accuracies = published.truth(name)
    rankings = []
    for task in benchmark.datasets:
        known = accuracies[task]
        models = {model: benchmark.zoo[model] for model in known}
        ranking = rank(models, task, metrics, truth=known, root=root, max_images=max_images, say=_line, **how)
        print(f"\n{task}: {ranking.n:,} images\n{ranking.table()}")
        write_ranking(ranking, Path(out) / name, pictures)
        rankings.append(ranking)
    print(f"\nmean over {len(rankings)} data sets\n{means(rankings)}")
    return rankings


def means(rankings: list[Ranking]) -> str:
    """A line for each metric: every measure of agreement, averaged over the data sets."""
    lines = []
    for metric in rankings[0].metrics:
        columns = [ranking.agreement[metric] for ranking in rankings if metric in ranking.agreement]
        named: dict[str, list[float]] = {}
        for column in columns:
            for one in column:
                named.setdefault(one.name, []).append(one.value)
        shown = ", ".join(f"{name} {np.nanmean(values):.2f}" for name, values in named.items())
        lines.append(f"{metric:<24} {shown or 'no agreement'}")
    return "\n".join(lines)


def _line(text: str) -> None:
    print(f"          {text}", flush=True)
