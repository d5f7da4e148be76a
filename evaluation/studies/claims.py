"""The table of a study, and findings as differences between its rows, checked on what was measured here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from evaluation.results.statistics import Estimate, over_seeds

Numbers = Mapping[str, float]
AGREES, DISAGREES, OPEN = "agrees", "disagrees", "open"
SEEDS = "seeds"
MANY = 3  # pairs of rows from which the interval is over pairs, not over seeds


@dataclass(frozen=True)
class Cell:
    """One number: measured here (None: not measured at this scale), and the paper's (None: it has none)."""

    measured: Estimate | None = None
    published: float | None = None


@dataclass(frozen=True)
class Summary:
    """The table of a study: rows of cells by column, and the verdict on the paper's claim.

    outcome: AGREES, DISAGREES or OPEN (the interval has room for both). sentence: the numbers behind it.
    findings: the outcome of each finding that says a difference and has an interval.
    """

    rows: Mapping[str, Mapping[str, Cell]]
    outcome: str
    sentence: str
    findings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Claim:
    """The paper's finding that a column is larger (sign 1), smaller (-1) or the same (0) in each row than in its base.

    text: the finding, as a person would say it. pairs: (row, base). within: differences that count as none, where the
    paper finds none; the default is a point of accuracy.
    """

    text: str
    column: str
    pairs: tuple[tuple[str, str], ...]
    sign: int = 1
    within: float = 0.01


def by_row(by_job: Mapping[str, Numbers], row: str) -> dict[int, Numbers]:
    """The numbers of a row by seed; the keys are "ROW | SEED"."""
    return {
        int(key.rpartition(" | ")[2]): numbers for key, numbers in by_job.items() if key.rpartition(" | ")[0] == row
    }


def evaluate_claims(
    claims: Sequence[Claim],
    by_job: Mapping[str, Numbers],
    published: Mapping[str, Mapping[str, float]],
    units: Mapping[str, str],
    over: str = SEEDS,
) -> tuple[str, str, tuple[str, ...]]:
    """The outcome of all claims, the worst of them, a sentence with the numbers of each, and the findings of `Summary`.

    published: the paper's numbers, by row and column. units: of the columns. over: what the numbers after the | of a
    key are.
    """
    told = [_evaluate_claim(claim, by_job, published, units[claim.column], over) for claim in claims]
    outcomes = [outcome for outcome, _, _ in told]
    worst = next((verdict for verdict in (DISAGREES, OPEN) if verdict in outcomes), AGREES) if outcomes else OPEN
    text = "; ".join(
        f"{claim.text}: {verdict}, {numbers}" for claim, (verdict, numbers, _) in zip(claims, told, strict=True)
    )
    with_interval = zip(claims, told, strict=True)
    return worst, text, tuple(verdict for claim, (verdict, _, drawn) in with_interval if claim.sign and drawn)


def _evaluate_claim(
    claim: Claim, by_job: Mapping[str, Numbers], published: Mapping[str, Mapping[str, float]], unit: str, over: str
) -> tuple[str, str, bool]:
    """Return outcome and numbers of a claim, and whether they have an interval."""
    differences = [_by_seed(by_job, row, base, claim.column) for row, base in claim.pairs]
    differences = [seeds for seeds in differences if seeds]
    if not differences:
        return OPEN, "not measured", False
    if len(differences) >= MANY and over == SEEDS:  # settings of a metric on the same data sets are no sample
        values, over = [float(np.mean([*seeds.values()])) for seeds in differences], "rows"
    else:
        common = sorted(set.intersection(*(set(seeds) for seeds in differences)))
        values = [float(np.mean([seeds[seed] for seeds in differences])) for seed in common]
    mean = _mean_difference(values, unit)
    members = _members(claim, by_job, unit) if 1 < len(differences) < MANY else ""
    numbers = f"{format_difference(mean)} over {len(values)} {over}{members}{_paper_difference(claim, published)}"
    return outcome(mean, claim.sign, claim.within), numbers, mean.interval is not None


def _mean_difference(values: Sequence[float], unit: str) -> Estimate:
    return replace(over_seeds(values, unit=""), unit=unit)  # a difference may be below 0, unlike a fraction


def _members(claim: Claim, by_job: Mapping[str, Numbers], unit: str) -> str:
    """What each of a few pairs of rows says by itself: their mean hides how unlike they are."""
    rows = [row for row, _ in claim.pairs]
    texts = []
    for row, base in claim.pairs:
        if values := [*_by_seed(by_job, row, base, claim.column).values()]:
            name = row if rows.count(row) == 1 else f"{row} over {base}"
            texts.append(f"{name}: {format_difference(_mean_difference(values, unit))}")
    return f" ({', '.join(texts)})"


def _by_seed(by_job: Mapping[str, Numbers], row: str, base: str, column: str) -> dict[int, float]:
    """The difference of two rows for each seed that both have."""
    of_row, of_base = by_row(by_job, row), by_row(by_job, base)
    return {seed: of_row[seed][column] - of_base[seed][column] for seed in sorted(of_row.keys() & of_base.keys())}


def _paper_difference(claim: Claim, published: Mapping[str, Mapping[str, float]]) -> str:
    both = [
        (published.get(row, {}).get(claim.column), published.get(base, {}).get(claim.column))
        for row, base in claim.pairs
    ]
    differences = [row - base for row, base in both if row is not None and base is not None]
    return f", in the paper {np.mean(differences):+.3g}" if differences else ""


def outcome(difference: Estimate, sign: int, within: float = 0.01) -> str:
    """AGREES or DISAGREES where the whole interval is as the finding says, or is not, otherwise OPEN.

    A difference of sign 1 or -1 lies beyond zero; one of sign 0, which is none, between -within and within.
    """
    if difference.interval is None:
        return OPEN
    low, high = difference.interval
    if sign == 0:
        return AGREES if max(-low, high) <= within else DISAGREES if max(low, -high) > within else OPEN
    if low <= 0 <= high:
        return OPEN
    return AGREES if (difference.value > 0) == (sign > 0) else DISAGREES


def format_difference(difference: Estimate) -> str:
    """A difference in points or in its unit, with its interval."""
    scale, unit = (100, " points") if difference.unit == "fraction" else (1, f" {difference.unit}".rstrip())
    ends = difference.interval and f" ({scale * difference.interval[0]:+.2g} to {scale * difference.interval[1]:+.2g})"
    return f"{scale * difference.value:+.2g}{unit}{ends or ''}"
