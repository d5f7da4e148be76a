"""A ranking as a table: models down, metrics across, best first."""

import sys
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from evaluation.ranking.consensus import Consensus
from evaluation.ranking.truth.agreement import Agreement
from sslkit.errors import UserError
from sslkit.terminal.say import columns
from sslkit.terminal.tables import align, below_names, markdown

STYLES = ("text", "markdown")
TIED = "="  # beside a score: tied with the metric's best model on these images


class Numbers(Protocol):
    """The fields of a `Ranking` that are shown; see there."""

    models: tuple[str, ...]
    metrics: tuple[str, ...]
    scores: np.ndarray
    intervals: np.ndarray
    ranks: np.ndarray
    tied: np.ndarray
    consensus: Consensus
    seconds: np.ndarray
    truth: np.ndarray | None
    agreement: Mapping[str, Sequence[Agreement]]

    def mark(self, m: int, k: int) -> str: ...


def table(ranking: Numbers, style: str = "text") -> str:
    """Return the table. Rows: models in the ranking's order. Cells: rank, score ± half its interval, `=` if tied with
    the best, and the letter of the source head if there are several.

    Left of them: the rank in the consensus, the probability to be the best, the expected regret in points of accuracy.
    The last rows are the seconds of each metric, and its agreement with the truth, if there is one. A text that is
    wider than the terminal (80 columns where there is none) has the scores of each model below its name.
    Raises UserError for an unknown style.
    """
    if style not in STYLES:
        raise UserError(f"there is no table style {style!r}; known: {', '.join(STYLES)}")
    header = [*_names(ranking), *ranking.metrics]
    lines = [header, *([_row(ranking, m) for m in ranking.consensus.order()]), *_feet(ranking)]
    if style == "markdown":
        return markdown(lines, range(1, len(header)))
    wide = align(lines, width=sys.maxsize)
    return wide if max(map(len, wide.splitlines())) <= columns() else _below_names(ranking, lines)


def _below_names(ranking: Numbers, lines: Sequence[Sequence[str]]) -> str:
    """The scores of each model below its name and its place, in blocks of the metrics that fit."""
    aside = len(_names(ranking)) - 1  # columns beside the name
    names = lines[0][: aside + 1]
    merged = [[", ".join(reversed(names)), *lines[0][aside + 1 :]]]
    for line in lines[1:]:
        texts = [text for text in reversed(line[1 : aside + 1]) if text]
        merged.append(["  ".join([*texts, line[0]]), *line[aside + 1 :]])
    return below_names(merged)


def _names(ranking: Numbers) -> list[str]:
    """Return the headers left of the metrics."""
    truth = [] if ranking.truth is None else ["truth"]
    return ["model", *truth, *(name for name, _, _ in _places(ranking))]


def _places(ranking: Numbers) -> list[tuple[str, np.ndarray, str]]:
    """Return header, values (M,) and format of the columns of the consensus; of probabilities where there are some."""
    consensus = ranking.consensus
    chances = [("P(best)", 100 * consensus.best, "{:.0f} %"), ("regret", 100 * consensus.regret, "{:.1f}")]
    return [("rank", consensus.rank, "{:g}."), *(column for column in chances if not np.isnan(column[1]).all())]


def _row(ranking: Numbers, m: int) -> list[str]:
    row = [ranking.models[m]]
    if ranking.truth is not None:
        row.append(f"{ranking.truth[m]:.4g}")
    row += ["" if np.isnan(values[m]) else form.format(values[m]) for _, values, form in _places(ranking)]
    return row + [cell(ranking, m, k) for k in range(len(ranking.metrics))]


def cell(ranking: Numbers, m: int, k: int) -> str:
    """Return rank and score of model m by metric k, as in `table`."""
    score, (low, high) = ranking.scores[m, k], ranking.intervals[m, k]
    if np.isnan(score):
        return "-"
    tied = f" {TIED}" if ranking.tied[m, k] and ranking.ranks[m, k] > 1 else ""
    half = "" if np.isnan(low) or high == low else f" ± {(high - low) / 2:.2g}"
    return f"{ranking.ranks[m, k]:g}. {score:.4g}{half}{tied} {ranking.mark(m, k)}".rstrip()


def _feet(ranking: Numbers) -> list[list[str]]:
    blank = [""] * (len(_names(ranking)) - 1)
    seconds = [f"{total:.2f}" if total else "" for total in np.nansum(ranking.seconds, 0)]
    feet = [["seconds, all models", *blank, *seconds]]
    names = dict.fromkeys(measure.name for column in ranking.agreement.values() for measure in column)
    for name in names:
        cells = []
        for metric in ranking.metrics:
            measure = next(
                (candidate for candidate in ranking.agreement.get(metric, ()) if candidate.name == name), None
            )
            cells.append("-" if measure is None else with_ends(measure))
        feet.append([name, *blank, *cells])
    return feet


def with_ends(found: Agreement) -> str:
    """Return the value, and its interval if there is one."""
    ends = "" if found.interval is None else " ({:.2f} to {:.2f})".format(*found.interval)
    return f"{found.value:.2f}{ends}"
