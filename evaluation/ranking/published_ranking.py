"""Run the published ranking benchmarks: their models, their data sets, their fine-tuning accuracies."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.datasets import Reading
from evaluation.features.zoo_members import lines_of
from evaluation.ranking.checks import check_ranking
from evaluation.ranking.inputs.benchmark import open_benchmark, with_one_label
from evaluation.ranking.inputs.candidates import Options, settle_images
from evaluation.ranking.inputs.references import open_reference
from evaluation.ranking.output import Output, Published
from evaluation.ranking.rank import rank_models
from evaluation.ranking.ranking import Ranking
from evaluation.ranking.summary import finish, keep_reference, line, open_tasks
from evaluation.ranking.truth import published
from sslkit.errors import UserError
from sslkit.files.leases import own_folder
from sslkit.models.loading import Loading
from sslkit.options.calls import by_keywords
from sslkit.runtime.context import Runtime
from sslkit.terminal import say


@by_keywords
def rank_published(
    asked: Published,
    *,
    metrics: Any,
    zoo: Any,
    data: Any,
    output: Output,
    options: Options,
    loading: Loading,
    reading: Reading,
    runtime: Runtime,
) -> list[Ranking]:
    """Score a published benchmark's models on its data sets and compare with the published accuracies.

    benchmark: "ped" (12 self-supervised ResNet-50, 10 sets) or "itm" (10 architectures, supervised or not, 10 sets).
    Downloads: see `open_benchmark`. metrics: see `evaluation.rank`.
    PED's reference "imagenet" is the published one, of its 50,000 validation images below `root`. All images are
    scored, as published, unless max_images is given.
    Images of several classes (VOC 2007) have the first of them, see `with_one_label`.
    Raises UserError that lists every missing file before any computation, and if max_images is too small for a set.
    """
    name, out = asked.benchmark, Path(output.out) / asked.benchmark
    words = {"zoo": zoo, "data": data, "truth": output.truth, "layers": output.layers, "trust": loading.trust}
    if named := [word for word, value in words.items() if value]:
        raise UserError(f"benchmark={name} has its own models, data sets and truth: leave out {named[0]}=")
    runtime, options = replace(runtime, say=line), settle_images(options, every=True)
    check_ranking(metrics, options, runtime)
    benchmark = open_benchmark(name, checkpoints=asked.checkpoints, root=reading.root, download=asked.download)
    accuracies = published.truth(name)
    opened = open_tasks({task: task for task in benchmark.datasets}, options, reading, runtime.seed)
    options = replace(options, reference=open_reference(options.reference, reading))
    rankings = []
    with own_folder(out, "ranks in"):
        for task, images in opened.items():
            truths = accuracies[task]
            models = {model: benchmark.zoo[model] for model in truths}
            images, note = with_one_label(images)
            if note:
                line(f"note      {note}")
            ranking = rank_models(models, images, metrics, truths, options, loading, reading, runtime)
            rankings.append(finish(replace(ranking, data=task), out, task, output.pictures))
        keep_reference(options.reference, benchmark.zoo, out)
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
            for measure in column:
                named.setdefault(measure.name, []).append(measure.value)
        shown = ", ".join(f"{name} {np.nanmean(values):.2f}" for name, values in named.items())
        fewer = f" (over {len(columns)} of them)" if 0 < len(columns) < len(rankings) else ""
        lines.append(f"{metric:<24} {shown or 'no agreement'}{fewer}")
    return "\n".join(lines)
