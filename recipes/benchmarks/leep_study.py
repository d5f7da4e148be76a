"""LEEP and NCE of the ranking study's zoo by each kind of source head, against fine-tuning, NLEEP, LogME and kNN.

    python recipes/benchmarks/ranking_tasks.py runs/tasks
    python recipes/benchmarks/ranking_zoo.py runs/study
    python recipes/benchmarks/leep_study.py runs/study --tasks runs/tasks      (half an hour on two cores; resumes)
    python recipes/benchmarks/leep_study.py --table --markdown                 (print the committed results)

Truth: accuracies after fine-tuning of results/ranking_study.json, of its seven tasks with one class an image. Heads are
fitted to the entries' pretraining data and kept in the zoo, as recipes/rank.py does. All metrics, the three others too,
score the same features of the same images. Where a machine gives the zoo other bits than those that were fine-tuned
(`weights` of the results), the truth is that of the same recipe and seed. Intervals: 95 % over models.
"""

import argparse
import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ranking_study_table import _markdown, _text
from ranking_zoo import _models
from results import keep, load

import evaluation
from evaluation.datasets import Split, open_split
from evaluation.features.zoo_members import load_member, members
from evaluation.ranking.agreement import spearman
from evaluation.ranking.candidates import sampled
from evaluation.ranking.paired_agreement import difference, over_tasks

RESULTS, STUDY = "leep_study", Path(__file__).parent / "results" / "ranking_study.json"
IMAGES, WHEEL = 500, 32  # scored images of a task; pixels of networks outside a zoo
OTHERS = ("nleep", "logme", "knn")
HEADS: dict[str, dict[str, Any]] = {
    "as rank.py": {},
    "prototypes": {"source": "prototypes"},
    "labels": {"source": "labels"},
    **{f"{k} clusters": {"source": "clusters", "clusters": k} for k in (100, 10, 30, 300)},
}
SUBSETS = {  # heads, and a word in the names of the models
    "labels of fashion_mnist": ("labels", "-fashion_mnist-"),
    "100 clusters of fashion_mnist": ("100 clusters", "-fashion_mnist-"),
}
Scores = Mapping[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("zoo", nargs="?", type=Path, default=Path("runs/study"), help="folder of ranking_zoo.py")
    parser.add_argument("--tasks", type=Path, default=Path("runs/tasks"), help="folder of ranking_tasks.py")
    parser.add_argument("--cache", default="runs/cache", help="folder of the features")
    parser.add_argument("--heads", nargs="+", default=["others", *HEADS], help="some of them, for several processes")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--table", action="store_true", help="print the results and exit")
    parser.add_argument("--markdown", action="store_true", help="print the tables in Markdown")
    args = parser.parse_args()
    if not args.table:
        torch.set_num_threads(args.threads)
        measure(args.zoo, args.tasks, args.cache, args.heads)
    study = json.loads(STUDY.read_text())
    print("\n\n".join(tables(load(RESULTS)["runs"], study, _markdown if args.markdown else _text)))


def measure(zoo: Path, tasks: Path, cache: str, heads: Sequence[str]) -> None:
    """Score every model on every task by these heads and by the other metrics; finished cells are not done again."""
    study = json.loads(STUDY.read_text())
    given = members(_models(zoo).strip("[]").split(","))
    models = {name: load_member(one, WHEEL) for name, one in given.items()}
    same = {name: study["models"][name]["weights"] == one.digest[:12] for name, one in models.items()}
    keep(RESULTS, "weights", {"of the truth": same})
    splits = {task: _split(task, tasks) for task in study["mean_of"]}
    how = {"bootstrap": 0, "progress": False, "cache": cache}
    for name, source in ((name, HEADS.get(name, {})) for name in heads):
        for task, split in splits.items():
            key = f"{task} | {name}"
            if key in load(RESULTS)["runs"]:
                continue
            ranking = evaluation.rank(models, split, OTHERS if name == "others" else ["leep", "nce"], **source, **how)
            keep(RESULTS, key, scores_of(ranking))
            print(key, flush=True)


def _split(task: str, folder: Path) -> Split:
    file = folder / f"{task}.npz"
    return sampled(open_split(str(file) if file.is_file() else task, "train"), IMAGES, 0)


def scores_of(ranking: evaluation.Ranking) -> dict[str, Any]:
    """Return the scores by metric and model, without nan, and the head of each model."""
    found = {
        metric: {
            model: float(value)
            for model, value in zip(ranking.models, ranking.scores[:, k], strict=True)
            if np.isfinite(value)
        }
        for k, metric in enumerate(ranking.metrics)
    }
    heads = {model: f"{one['classes']} {one['kind']} of {one['data']}" for model, one in ranking.sources.items()}
    return {"scores": found, "heads": heads}


def tables(runs: Mapping[str, Any], study: Mapping[str, Any], show: Any) -> list[str]:
    """Return the table of agreement, that of paired differences, and a line on the weights."""
    tasks = study["mean_of"]
    truth = {task: study["truth"][task] for task in tasks}
    known = [head for head in HEADS if all(f"{task} | {head}" in runs for task in tasks)]
    columns = {f"{metric}, {head}": of(runs, tasks, head, metric) for head in known for metric in ("leep", "nce")}
    for name, (head, word) in SUBSETS.items():
        columns |= {f"{metric}, {name}": _only(of(runs, tasks, head, metric), word) for metric in ("leep", "nce")}
    others = {metric: of(runs, tasks, "others", metric) for metric in OTHERS}
    first = [["metric, source head", "models", "weighted tau", "regret@1", *tasks]]
    first += [_row(name, column, truth) for name, column in {**others, **columns}.items()]
    second = [["difference of weighted tau, on the models of the head", *(f"less {other}" for other in OTHERS)]]
    for name, column in columns.items():
        if min(map(len, column.values())) > 2:
            pairs = [[(truth[task], column[task], others[other][task]) for task in tasks] for other in OTHERS]
            second.append([name, *(_shown(difference(list(pair)), "+.2f") for pair in pairs)])
    return [show(first), show(second), _on_weights(runs, study, others)]


def of(runs: Mapping[str, Any], tasks: Sequence[str], head: str, metric: str) -> dict[str, Scores]:
    """Return {task: {model: score}} of a metric by a head."""
    return {task: runs[f"{task} | {head}"]["scores"][metric] for task in tasks}


def _only(column: Mapping[str, Scores], word: str) -> dict[str, Scores]:
    return {task: {name: one for name, one in scores.items() if word in name} for task, scores in column.items()}


def _row(name: str, column: Mapping[str, Scores], truth: Mapping[str, Scores]) -> list[str]:
    count = min(map(len, column.values()))
    if count < 3:
        return [name, str(count), *["-"] * (2 + len(column))]
    pairs = [(truth[task], scores) for task, scores in column.items()]
    each = [f"{over_tasks([pair], n=0).value:.2f}" for pair in pairs]
    return [
        name,
        str(count),
        _shown(over_tasks(pairs), ".2f"),
        _shown(over_tasks(pairs, "regret@1"), ".1f", 100),
        *each,
    ]


def _shown(found: Any, form: str, scale: float = 1) -> str:
    ends = (
        ""
        if found.interval is None
        else " ({} to {})".format(*(f"{scale * end:{form.lstrip('+')}}" for end in found.interval))
    )
    return f"{scale * found.value:{form}}{ends}"


def _on_weights(runs: Mapping[str, Any], study: Mapping[str, Any], others: Mapping[str, Mapping[str, Scores]]) -> str:
    """Say how many networks have the bits of the truth, and how the others' scores agree with those of then."""
    same = runs["weights"]["of the truth"]
    found = []
    for metric in OTHERS:
        before = study["metrics"][metric]["scores"]
        values = []
        for task, scores in others[metric].items():
            names = sorted(set(scores) & set(before[task]))
            values.append(spearman(*([column[name] for name in names] for column in (scores, before[task]))))
        found.append(f"{metric} {np.mean(values):.2f}")
    return (
        f"{sum(same.values())} of {len(same)} networks have the bits that were fine-tuned; Spearman's correlation of "
        f"their scores with the committed ones of those, mean over the tasks: {', '.join(found)}."
    )


if __name__ == "__main__":
    main()
