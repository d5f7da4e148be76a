"""Run the published ranking benchmarks: their models, their data sets, their fine-tuning accuracies."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.features.zoo_members import lines_of
from evaluation.ranking import published
from evaluation.ranking.benchmark import open_benchmark, with_one_label
from evaluation.ranking.candidates import chosen
from evaluation.ranking.checks import BOOTSTRAP, check_used, checked_metrics
from evaluation.ranking.rank import rank
from evaluation.ranking.ranking import Ranking
from evaluation.ranking.references import CARD, open_reference
from evaluation.ranking.summary import finish, keep_reference, line, open_tasks
from sslkit.errors import UserError
from sslkit.files.leases import owned
from sslkit.terminal import say


def rank_published(
    name: str,
    checkpoints: str | Path,
    *,
    metrics: Any,
    out: str | Path = "runs/ranking",
    pictures: bool = True,
    download: bool = False,
    bootstrap: int = BOOTSTRAP,
    seed: int = 0,
    reference: Any = CARD,
    **how: Any,
) -> list[Ranking]:
    """Score a published benchmark's models on its data sets and compare with the published accuracies.

    name: "ped" (12 self-supervised ResNet-50, 10 sets) or "itm" (10 architectures, supervised or not, 10 sets).
    checkpoints: folder of the model files. root (of how): folder of the data sets. download: see `open_benchmark`.
    reference: of PED; "imagenet" for the published one, of its 50,000 validation images below `root`.
    Images of several classes (VOC 2007) have the first of them, see `with_one_label`.
    how: max_images is None for all, as published; see `evaluation.rank`, also for metrics.
    Raises UserError that lists every missing file before any computation, and if max_images is too small for a set.
    """
    for given in ("zoo", "data", "truth", "trust"):
        if how.pop(given, None) is not None:
            raise UserError(f"benchmark={name} has its own models, data sets and truth: leave out {given}=")
    choice, reading, runtime = chosen({"device": "cpu", **how, "seed": seed})
    specs = checked_metrics(metrics, bootstrap=bootstrap, runtime=runtime)
    benchmark = open_benchmark(name, checkpoints=checkpoints, root=reading.root, download=download)
    accuracies = published.truth(name)
    tasks = {task: task for task in benchmark.datasets}
    opened = open_tasks(tasks, choice, reading, seed)
    check_used(specs, choice.source, reference)
    how |= {"reference": open_reference(reference, reading), "split": choice.split}
    how |= {"bootstrap": bootstrap, "seed": seed, "say": line}
    how.pop("max_images", None)  # they are drawn
    rankings = []
    with owned(Path(out) / name, "ranks in"):
        for task, images in opened.items():
            known = accuracies[task]
            models = {model: benchmark.zoo[model] for model in known}
            images, said = with_one_label(images)
            if said:
                line(f"note      {said}")
            ranking = rank(models, images, metrics, truth=known, **how)
            rankings.append(finish(replace(ranking, data=task), Path(out) / name, task, pictures))
        keep_reference(how["reference"], benchmark.zoo, Path(out) / name)
    for told in lines_of({name: why for ranking in rankings for name, why in ranking.left_out.items()}):
        say.line(told)
    say.lines(f"\nmean over {len(rankings)} data sets\n{means(rankings)}")
    return rankings


def means(rankings: list[Ranking]) -> str:
    """Return a line for each metric: every measure of agreement, averaged over the data sets that have one."""
    lines = []
    for metric in rankings[0].metrics:
        columns = [ranking.agreement[metric] for ranking in rankings if metric in ranking.agreement]
        named: dict[str, list[float]] = {}
        for column in columns:
            for one in column:
                named.setdefault(one.name, []).append(one.value)
        shown = ", ".join(f"{name} {np.nanmean(values):.2f}" for name, values in named.items())
        fewer = f" (over {len(columns)} of them)" if 0 < len(columns) < len(rankings) else ""
        lines.append(f"{metric:<24} {shown or 'no agreement'}{fewer}")
    return "\n".join(lines)
