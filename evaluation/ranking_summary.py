"""What a person sees of a ranking: progress, a table for each task, pictures, a file, and the next command."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.candidates import members
from evaluation.models import load_model
from evaluation.ranking import Ranking, rank
from evaluation.ranking_plots import plot_agreement, plot_ranking
from sslkit.errors import UserError


def rank_tasks(
    zoo: Any,
    data: Any,
    metrics: Any,
    *,
    truth: str | Path | None = None,
    out: str | Path = "runs/ranking",
    pictures: bool = True,
    **how: Any,
) -> list[Ranking]:
    """Rank a zoo for one task or several and print what came of it; `recipes/rank.py` calls it.

    data: a source or a list. truth: a .json file, {data: {model: accuracy}} or {model: accuracy}.
    out: folder of NAME.json and NAME.png for each task. how: see `evaluation.rank`.
    Raises UserError before anything is computed where it can be known.
    """
    tasks = list(data) if isinstance(data, (list, tuple)) else [data]
    if tasks == [None]:
        raise UserError("name the task to rank for: data=clipart, or data=PATH/TO/IMAGES, or a list of them")
    if not zoo:
        raise UserError("name the models to rank: zoo=runs/zoo, or zoo=[runs/zoo,efficientnet_lite0,timm:resnet18]")
    accuracies = {} if truth is None else read_truth(truth)
    models = {name: load_model(one) for name, one in members(zoo).items()}  # once for all tasks
    rankings = []
    for task in tasks:
        known = accuracies.get(str(task), accuracies if _of_models(accuracies) else None)
        ranking = rank(models, task, metrics, truth=known or None, say=_line, **how)
        print(f"\n{task}: {ranking.n:,} images\n{ranking.table()}")
        for note in ranking.notes:
            print(f"note      {note}")
        write_ranking(ranking, Path(out), pictures)
        rankings.append(ranking)
    _print_end(rankings)
    return rankings


def read_truth(path: str | Path) -> Mapping[str, Any]:
    """Accuracies from a .json file. Raises UserError."""
    try:
        found = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"truth={path} cannot be read as JSON: {error}") from error
    if not isinstance(found, dict) or not found:
        raise UserError(f"truth={path} must be {{model: accuracy}}, or {{data: {{model: accuracy}}}}")
    return found


def _of_models(accuracies: Mapping[str, Any]) -> bool:
    return bool(accuracies) and all(isinstance(value, (int, float)) for value in accuracies.values())


def write_ranking(ranking: Ranking, out: Path, pictures: bool) -> None:
    """NAME.json and, with pictures, NAME.png and NAME-agreement.png; says where."""
    name = Path(ranking.data.rstrip("/")).stem or "task"
    written = [ranking.to_json(out / f"{name}.json")]
    if pictures:
        written.append(plot_ranking(ranking, out / f"{name}.png"))
        if ranking.truth is not None:
            written.append(plot_agreement(ranking, out / f"{name}-agreement.png"))
    print(f"written   {', '.join(map(str, written))}\n", flush=True)


def _print_end(rankings: Sequence[Ranking]) -> None:
    for ranking in rankings:
        if np.isnan(ranking.mean_rank).all():
            continue
        first = np.nanmin(ranking.mean_rank)
        best = [name for name, mean in zip(ranking.models, ranking.mean_rank, strict=True) if mean == first]
        print(f"best      {ranking.data}: {' and '.join(best)} (mean rank {first:.1f} of {len(ranking.models)})")
    last = rankings[-1]
    print(f"next      python recipes/evaluate.py checkpoint=NAME_OR_FOLDER data={last.data} protocols=[fine_tune]")


def _line(text: str) -> None:
    print(f"          {text}", flush=True)
