"""Results of evaluate.py: every number with its interval, and differences between models on the same images."""

from dataclasses import asdict, replace

from evaluation.judging.summary import shown
from evaluation.report import commands
from evaluation.report.cells import NOTHING, Cell, Column, Table, made, of_estimate, of_text
from evaluation.report.reading import Material, Member
from evaluation.results.comparison import LEVEL, Comparison, compare_all
from evaluation.results.result import Result
from evaluation.results.tables import flags
from sslkit.errors import UserError

COLUMNS = [
    Column("model"),
    Column("data"),
    Column("protocol"),
    Column("metric"),
    Column("value", "with its 95 % interval; the column `interval` has its kind", number=True),
    Column("n", "images, episodes, classes or rows that the value is over", number=True),
    Column("interval", "kind of the 95 % interval"),
    Column("recipe"),
    Column("flags", "warnings about the number"),
]
PAIRS = [
    Column("data"),
    Column("protocol", "with its metric and recipe"),
    Column("first"),
    Column("second"),
    Column("difference", "value of the first less the value of the second, in points of per cent", number=True),
    Column("p", "two-sided, after Holm's adjustment for all pairs of the same data and protocol", number=True),
    Column("verdict", "better: an adjusted p below 0.05"),
]


def results_table(material: Material) -> Table | None:
    """Return the main numbers of all models; None without results."""
    rows = [(member, row) for member in material.judged for row in _named(shown(member.results), member)]
    return _table("Results of recipes/evaluate.py; fractions in per cent", rows)


def further_table(material: Material) -> Table | None:
    """Return all further numbers of the same results; None if there are none."""
    rows = [
        (member, replace(result, metric=name, **asdict(other)))
        for member in material.judged
        for result in member.results
        for name, other in result.others.items()
    ]
    return _table("Further numbers of the same runs", rows)


def comparisons(material: Material) -> Table | None:
    """Compare every pair of results on the same images or episodes; None if there are no pairs.

    Errors of the comparison go to the material's problems.
    """
    rows = []
    for (data, protocol, metric, _), results in sorted(_same_rows(material).items(), key=lambda item: item[0]):
        if len(results) < 2 or metric == "mean_per_class":
            continue
        recipes = {result.recipe for result in results}
        protocol_name = f"{protocol}, {metric}" + (f" ({recipes.pop()})" if len(recipes) == 1 else "")
        try:
            rows += [_pair(data, protocol_name, pair, results[0]) for pair in compare_all(results)]
        except UserError as error:
            material.problems.append(f"{protocol} on {data} is not compared: {error}")
    return Table("Pairs of models on the same images or episodes", PAIRS, rows) if rows else None


def _same_rows(material: Material) -> dict[tuple[str, ...], list[Result]]:
    """Group results with outcomes by data, protocol, metric, and the digest of the rows."""
    groups: dict[tuple[str, ...], list[Result]] = {}
    for member in material.judged:
        for result in _named(member.results, member):
            if result.outcomes is not None and result.paired_on:
                key = (result.data, result.protocol, result.metric, result.paired_on)
                groups.setdefault(key, []).append(result)
    return groups


def without_labels(material: Material) -> list[str]:
    """Return the data sets whose results cannot be compared without the labels, which results do not contain."""
    results = [result for member in material.judged for result in member.results]
    return sorted({result.data for result in results if result.metric == "mean_per_class"})


def _named(results: list[Result], member: Member) -> list[Result]:
    """Rename the results of a moved or copied entry to its folder's name."""
    return [replace(result, model=member.name) for result in results]


def _table(caption: str, rows: list[tuple[Member, Result]]) -> Table | None:
    ordered = sorted(rows, key=lambda row: (row[1].data, row[1].protocol, row[1].recipe))
    return Table(caption, COLUMNS, [_row(member, result) for member, result in ordered]) if rows else None


def _row(member: Member, result: Result) -> list[Cell]:
    flagged = "; ".join(flags(result))
    return [
        Cell(result.model),
        of_text(result.data),
        Cell(result.protocol),
        Cell(result.metric),
        of_estimate(result.estimate, how(member, result)),
        Cell(f"{result.n:,}", key=result.n) if result.n else Cell(NOTHING, key=""),
        of_text(result.kind),
        of_text(result.recipe),
        Cell(flagged) if flagged else Cell("none", key=""),
    ]


def how(member: Member, result: Result) -> str:
    """Return the lines on the origin of a result."""
    splits = result.details.get("splits")
    return made(
        protocol=f"{result.protocol}, {result.recipe}",
        metric=result.metric,
        data=result.data + (f", splits {', '.join(splits)}" if splits else ""),
        n=f"{result.n:,}" if result.n else "",
        interval=f"95 %, {result.kind}" if result.interval else "none",
        seeds=", ".join(map(str, result.seeds)) or "no random draws",
        converged={True: "yes", False: "no", None: ""}[result.converged],
        seconds=f"{result.seconds:.2f}, without the extraction",
        command=commands.judging(result, member.folder if member.card else None),
        date=result.date,
        versions=", ".join(f"{name} {version}" for name, version in result.versions.items()),
        digests=", ".join(f"{name} {digest[:12]}" for name, digest in result.digests.items()),
    )


def _pair(data: str, protocol_name: str, pair: Comparison, result: Result) -> list[Cell]:
    """Return the row of a comparison. result: one of the group, for its rows."""
    ends = "" if pair.interval is None else " ({:+.1f} to {:+.1f})".format(*(100 * end for end in pair.interval))
    detectable = "" if pair.detectable is None else f"{100 * pair.detectable:.1f} points, in 80 % of such samples"
    about = made(
        verdict=pair.verdict,
        test=f"{pair.test}, paired on the same {'images' if result.outcomes.dtype == bool else 'episodes'}",
        data=data,
        n=f"{pair.n:,} pairs",
        interval="95 %, by pairs" if pair.interval else "none: too few pairs, or pairs that do not vary",
        smallest_difference_that_would_be_seen=detectable,
        p_before_adjustment=f"{pair.p:.3g}",
        seed="0, of the bootstrap",
        rows=result.paired_on[:12],
    )
    p = pair.p if pair.p_adjusted is None else pair.p_adjusted
    better = "not told apart" if p >= LEVEL else f"{'first' if pair.difference > 0 else 'second'} is better"
    return [
        Cell(data),
        Cell(protocol_name),
        Cell(pair.a),
        Cell(pair.b),
        Cell(f"{100 * pair.difference:+.1f}{ends}", about, pair.difference),
        Cell("< 0.001" if p < 0.001 else f"{p:.3f}", about, p),
        Cell(better),
    ]
