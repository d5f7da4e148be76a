"""Rankings: the order of the models for each task, its intervals, agreement with the truth, and cost."""

import re
from dataclasses import dataclass, replace

import numpy as np

from evaluation import transferability
from evaluation.features.zoo_members import lines_of
from evaluation.ranking.ranking import FEWEST, Ranking
from evaluation.ranking.scoring import parse
from evaluation.ranking.table import TIED, with_ends
from evaluation.ranking.truth.agreement import Agreement
from evaluation.report import commands
from evaluation.report.answer import Verdict, of_ranking
from evaluation.report.cells import (
    MISSING,
    NOTHING,
    OUTSIDE,
    Cell,
    Column,
    Table,
    of_bytes,
    of_number,
    of_seconds,
    provenance,
)
from evaluation.report.charts import DotChart, ScatterChart, dots, scatter, score_decimals, truth_places
from evaluation.report.reading import Material, Ranked
from sslkit.errors import UserError
from sslkit.options import members

OF_AGREEMENT = {
    "weighted tau (Vigna)": "scipy.stats.weightedtau: 1 the same order, -1 the opposite; top models count more",
    "weighted tau (ITM)": "tau with weights 1 / (sum of the ranks by truth)",
    "Kendall tau-a": "tau in which all pairs count the same",
    "Spearman": "correlation of the ranks",
    "Pearson": "linear correlation of score and accuracy",
    "regret@1": "best accuracy less the accuracy of the first by score: 0 is best",
    "regret@3": "best accuracy less the best of the first three by score: 0 is best",
    "recall@1": "1 if the best model is the first by score, else 0",
    "recall@3": "1 if the best model is among the first three by score, else 0",
    "rel@1": "accuracy of the first by score over the best accuracy: 1 is best",
    "rel@3": "best accuracy among the first three by score over the best accuracy: 1 is best",
}


@dataclass(frozen=True)
class Task:
    """One task on the page. first: which model to take, or that they cannot be told apart.

    agreement, scatters: empty without truth.
    without: metrics without any score. outside: models that are no entries of the zoo. command: "" if the data was not
    recorded; lost: models that it leaves out, since their place was not recorded. truth: commands that add the truth.
    """

    name: str
    first: Verdict
    table: Table
    dots: list[DotChart]
    without: list[str]
    outside: list[str]
    lost: list[str]
    scatters: list[ScatterChart]
    agreement: Table | None
    cost: Table
    notes: tuple[str, ...]
    command: str
    truth: tuple[str, str]
    path: str


def task_of(ranked: Ranked, material: Material) -> Task:
    """Put a ranking on the page."""
    entries, recorded = material.names, ranked.ranking  # commands take the names as recorded, tables those with a mark
    outside = [name for name in recorded.models if name not in entries]
    command = commands.ranking(recorded, material.zoo, entries)
    ranking = _mark_outside(recorded, set(outside))
    ranked = replace(ranked, ranking=ranking, command=command)
    metrics = range(len(ranking.metrics))
    return Task(
        name=_name(ranked),
        first=of_ranking(ranked),
        table=_table(ranked),
        dots=[chart for k in metrics if (chart := dots(ranking, k)) is not None],
        without=[ranking.metrics[k] for k in metrics if not len(ranking.order_by(k))],
        outside=outside,
        lost=commands.lost(recorded, entries),
        scatters=[chart for k in metrics if (chart := scatter(ranking, k)) is not None],
        agreement=_agreement(ranked),
        cost=_cost(ranked),
        notes=(*ranking.explanation, *ranking.notes, *lines_of(ranking.left_out)),
        command=command,
        truth=commands.ranking_with_truth(recorded, material.zoo, entries),
        path=str(ranked.path),
    )


def _mark_outside(ranking: Ranking, outside: set[str]) -> Ranking:
    """Return the ranking with a mark at the names of models that are no entries of the zoo."""
    shown = {name: f"{name}{OUTSIDE}" if name in outside else name for name in ranking.models}
    sources = {shown.get(name, name): source for name, source in ranking.sources.items()}
    return replace(ranking, models=tuple(shown.values()), sources=sources)


def _name(ranked: Ranked) -> str:
    """Return the task without folder and suffix, or else the name of the file."""
    stem = re.sub(r"\.(npz|csv)$", "", ranked.ranking.data.rstrip("/").rpartition("/")[2])
    return stem or ranked.path.stem


def _table(ranked: Ranked) -> Table:
    ranking = ranked.ranking
    columns = [Column("model")]
    if ranking.truth is not None:
        columns.append(Column("truth", "accuracy after fine-tuning, with the place", True))
    columns += [Column(name, about, True) for name, about, *_ in _consensus(ranking)]
    columns += _metric_columns(ranking)
    rows = [_row(ranked, int(m)) for m in ranking.consensus.order()]
    order = " and ".join(name for name, *_ in _consensus(ranking)[:-1]) or "consensus"
    return Table(f"{_name(ranked)}: models by {order}; a cell is rank, score ± half its interval", columns, rows)


def _consensus(ranking: Ranking) -> list[tuple[str, str, np.ndarray, str]]:
    """Return name, meaning, values (M,) and format of what the order goes by, first what decides; rank is the last."""
    consensus = ranking.consensus
    columns = [
        ("regret", "points of accuracy that are expected to be lost", 100 * consensus.regret, "{:.1f}"),
        ("P(best)", "probability to fine-tune best", 100 * consensus.best, "{:.0f} %"),
    ]
    filled = [column for column in columns if not np.isnan(column[2]).all()]
    return [*filled, ("rank", "over the metrics that score every model", consensus.rank, "{:g}")]


def _metric_columns(ranking: Ranking) -> list[Column]:
    return [Column(metric, _summary(metric), True) for metric in ranking.metrics]


def _row(ranked: Ranked, m: int) -> list[Cell]:
    ranking = ranked.ranking
    row = [Cell(ranking.models[m])]
    if ranking.truth is not None:
        truth = float(ranking.truth[m])
        how = provenance(
            quantity="accuracy after fine-tuning, as given by truth=", data=ranking.data, ranking=ranked.path
        )
        row.append(Cell(f"{truth_places(ranking)[m]}. {truth:.4g}", how, truth))
    for name, about, values, form in _consensus(ranking):
        quantity = f"{name}, {about}; consensus of {', '.join(ranking.consensus.metrics)}"
        how = provenance(quantity=quantity, data=ranking.data, command=ranked.command, date=ranked.date)
        row.append(of_number(float(values[m]), form, how))
    return row + [_score(ranked, m, k) for k in range(len(ranking.metrics))]


def _score(ranked: Ranked, m: int, k: int) -> Cell:
    ranking = ranked.ranking
    score, (low, high), rank = float(ranking.scores[m, k]), ranking.intervals[m, k], float(ranking.ranks[m, k])
    if np.isnan(score):
        return Cell(NOTHING, key="", aside="no score: the model lacks an input of the metric; see the notes")
    tied = bool(ranking.tied[m, k]) and rank > 1
    has_interval = not np.isnan([low, high]).any()
    span = ranking.rank_intervals[m, k]
    how = provenance(
        metric=f"{ranking.metrics[k]}: {_summary(ranking.metrics[k])}",
        data=ranking.data,
        n=f"{ranking.n:,} images",
        interval=f"95 %, bootstrap over images: {low:.4g} to {high:.4g}"
        if has_interval
        else f"none: none was drawn, or fewer than {FEWEST} images",
        rank="{:g}, 95 % {:g} to {:g}".format(rank, *span) if not np.isnan(span).any() else f"{rank:g}",
        tied="not distinguishable from the best on these images" if tied else "",
        seconds=f"{ranking.seconds[m, k]:.3f}, shared work counts for the first metric",
        command=ranked.command,
        date=ranked.date,
    )
    return Cell(_format_score(ranking, m, k, tied), how, rank, "tied with the best" if tied else "")


def _format_score(ranking: Ranking, m: int, k: int, tied: bool) -> str:
    """Return rank, score and half its interval, with the same decimals in the whole column."""
    digits, (low, high) = score_decimals(ranking, k), ranking.intervals[m, k]
    half = "" if np.isnan(low) or high == low else f" ± {(high - low) / 2:.{digits}f}"
    shown = f"{ranking.ranks[m, k]:g}. {ranking.scores[m, k]:.{digits}f} {ranking.mark(m, k)}".rstrip()
    return f"{TIED} {shown}{half}" if tied else shown + half


def _agreement(ranked: Ranked) -> Table | None:
    ranking = ranked.ranking
    by_metric = [
        {agreement.name: agreement for agreement in ranking.agreement.get(metric, ())} for metric in ranking.metrics
    ]
    measures = dict.fromkeys(agreement.name for agreements in ranking.agreement.values() for agreement in agreements)
    if not measures:
        return None
    rows = [
        [Cell(measure), *(_agreement_cell(agreements.get(measure), ranked) for agreements in by_metric)]
        for measure in measures
    ]
    columns = [Column("agreement with the truth"), *_metric_columns(ranking)]
    return Table(f"{_name(ranked)}: how the scores agree with the accuracies after fine-tuning", columns, rows)


def _agreement_cell(agreement: Agreement | None, ranked: Ranked) -> Cell:
    if agreement is None or np.isnan(agreement.value):
        return MISSING
    how = provenance(
        measure=f"{agreement.name}: {OF_AGREEMENT.get(agreement.name, '')}".rstrip(": "),
        data=ranked.ranking.data,
        n=f"{agreement.n} models",
        interval=f"95 %, {agreement.kind}" if agreement.interval else agreement.kind,
        truth="accuracies after fine-tuning, as given by truth=",
        command=ranked.command,
        date=ranked.date,
    )
    return Cell(with_ends(agreement), how, agreement.value)


def _cost(ranked: Ranked) -> Table:
    ranking = ranked.ranking
    columns = [Column("metric"), Column("models", "with a score", True), Column("seconds, all models", "", True)]
    columns += [Column("slowest model", "", True), Column("most memory", "of the process, above its start", True)]
    rows = []
    for k, metric in enumerate(ranking.metrics):
        is_timed = ~np.isnan(ranking.seconds[:, k])
        seconds, memory = ranking.seconds[is_timed, k], ranking.memory[:, k]
        slowest = ranking.models[int(np.nanargmax(ranking.seconds[:, k]))] if is_timed.any() else ""
        about = {"metric": metric, "data": ranking.data, "n": f"{ranking.n:,} images", "command": ranked.command}
        about |= {"date": ranked.date, "not_counted": "the extraction of the features"}
        memory = float(np.nanmax(memory)) if not np.isnan(memory).all() else None
        rows.append(
            [
                Cell(metric),
                Cell(str(int(is_timed.sum())), key=int(is_timed.sum())),
                of_seconds(float(seconds.sum()) if is_timed.any() else None, provenance(**about)),
                of_seconds(float(seconds.max()) if is_timed.any() else None, provenance(model=slowest, **about)),
                of_bytes(memory, provenance(quantity="largest over the models", **about)),
            ]
        )
    return Table(f"{_name(ranked)}: cost of the scores, without the extraction", columns, rows)


def _summary(metric: str) -> str:
    """Return the first line of a metric's docstring; "" for an unknown metric."""
    try:
        return members.summary(transferability.find(parse(metric).metric).score)
    except UserError:
        return ""
