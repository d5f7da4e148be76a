"""Results of evaluate.py: every number with its interval, and differences between models on the same images."""

from dataclasses import asdict, dataclass, replace

from evaluation.judging.summary import list_rows
from evaluation.report import commands
from evaluation.report.cells import NOTHING, Cell, Column, Table, decimals, of_result, of_text, provenance
from evaluation.report.reading import Material, Member
from evaluation.results.comparison import Comparison
from evaluation.results.decisions import decide
from evaluation.results.result import Result
from evaluation.results.tables import DOWN, UP, direction, flags, notes_of
from sslkit.decision import LEVEL, Decision
from sslkit.errors import UserError
from sslkit.terminal.say import counted

COLUMNS = [
    Column("model"),
    Column("data"),
    Column("protocol"),
    Column("metric", f"{UP} higher, {DOWN} lower is better"),
    Column("value", "with its 95 % interval; the column `interval` has its kind", number=True),
    Column("n", "images, episodes, classes or rows that the value is over", number=True),
    Column("interval", "kind of the 95 % interval"),
    Column("recipe"),
    Column("flags", "warnings about the number; those of a data set stand below the table"),
]
PAIRS = [
    Column("against"),
    Column("difference", "value of the best less the value of this one, in points of per cent", number=True),
    Column("p (Holm)", "two-sided, after Holm's adjustment for all pairs of the same data and protocol", number=True),
    Column("verdict", "worse: an adjusted p below 0.05"),
]
MAIN = ("fine_tune", "linear", "knn", "few_shot")  # protocols whose rows come first


def results_table(material: Material) -> Table | None:
    """Return the main numbers of all models; None without results."""
    rows = [(member, row) for member in material.with_results for row in _rename(list_rows(member.results), member)]
    return _table("Results of recipes/evaluate.py; fractions in per cent", rows)


def further_table(material: Material) -> Table | None:
    """Return all further numbers of the same results; None if there are none."""
    rows = [
        (member, replace(result, metric=name, others={}, **asdict(other)))
        for member in material.with_results
        for result in member.results
        for name, other in result.others.items()
    ]
    return _table("Further numbers of the same runs", rows)


@dataclass(frozen=True)
class Group:
    """Results of one protocol on the same images or episodes, at least two, and their decision with its pairs."""

    data: str
    protocol: str
    metric: str
    results: list[Result]
    decision: Decision
    pairs: list[Comparison]

    @property
    def title(self) -> str:
        """Protocol and metric, and the recipe if all have the same."""
        recipes = {result.recipe for result in self.results}
        return f"{self.protocol}, {self.metric}" + (f" ({recipes.pop()})" if len(recipes) == 1 else "")

    @property
    def unit(self) -> str:
        """The unit of the pairs."""
        return "images" if self.results[0].outcomes.dtype == bool else "episodes"


def groups(material: Material) -> list[Group]:
    """Compare every pair of results on the same images or episodes, by data, the main protocols first.

    Errors of the comparison go to the material's problems.
    """
    compared = []
    for (data, protocol, metric, _), results in sorted(_same_rows(material).items(), key=lambda item: _order(*item[0])):
        if len(results) < 2 or metric == "mean_per_class":
            continue
        try:
            compared.append(Group(data, protocol, metric, results, *decide(results)))
        except UserError as error:
            material.problems.append(f"{protocol} on {data} is not compared: {error}")
    return compared


def comparison_table(group: Group) -> Table:
    """Return the pairs of a group's best model with each other one; p is adjusted for all pairs of the group."""
    best = group.decision.first.name
    pairs = [pair for pair in group.pairs if best in (pair.a, pair.b)]
    rows = [_pair(group, pair, best) for pair in pairs]
    rows.sort(key=lambda row: float(row[1].key))
    over = f"p after Holm over {counted(len(group.pairs), 'pair')}"
    return Table(f"{group.data}: {group.title}, {best} against each other model; {over}", PAIRS, rows)


def notes(material: Material) -> list[str]:
    """Return a line for each data set with what holds for all its results."""
    return notes_of([result for member in material.with_results for result in _rename(member.results, member)])


def _order(data: str, protocol: str, *rest: str) -> tuple[str, int, str]:
    """Return a sort key: by data, the main protocols first, the geometry of the features last."""
    position = MAIN.index(protocol) if protocol in MAIN else len(MAIN) + (protocol == "crowding")
    return data, position, "".join((protocol, *rest))


def _same_rows(material: Material) -> dict[tuple[str, ...], list[Result]]:
    """Group results with outcomes by data, protocol, metric, and the digest of the rows; of each model the last."""
    by_rows: dict[tuple[str, ...], dict[str, Result]] = {}
    for member in material.with_results:
        for result in _rename(member.results, member):
            if result.outcomes is not None and result.paired_on:
                key = (result.data, result.protocol, result.metric, result.paired_on)
                by_rows.setdefault(key, {})[result.model] = result
    return {key: list(by_model.values()) for key, by_model in by_rows.items()}


def without_labels(material: Material) -> list[str]:
    """Return the data sets whose results cannot be compared without the labels, which results do not contain."""
    results = [result for member in material.with_results for result in member.results]
    return sorted({result.data for result in results if result.metric == "mean_per_class"})


def _rename(results: list[Result], member: Member) -> list[Result]:
    """Rename the results of a moved or copied entry to its folder's name."""
    return [replace(result, model=member.name) for result in results]


def _table(caption: str, rows: list[tuple[Member, Result]]) -> Table | None:
    ordered = sorted(rows, key=lambda row: (*_order(row[1].data, row[1].protocol, row[1].metric), -row[1].value))
    alike: dict[tuple[str, str], list[float]] = {}
    for _, result in ordered:
        alike.setdefault((result.metric, result.unit), []).append(result.value)
    digits = {key: decimals(values, key[1]) for key, values in alike.items()}
    cells = [_row(member, result, digits[result.metric, result.unit]) for member, result in ordered]
    return Table(caption, COLUMNS, cells) if rows else None


def _row(member: Member, result: Result, digits: int) -> list[Cell]:
    flagged = "; ".join(flags(result))
    return [
        Cell(result.model),
        of_text(result.data),
        Cell(result.protocol),
        Cell(f"{result.metric} {direction(result)}".rstrip()),
        of_result(result, how(member, result), digits),
        Cell(f"{result.n:,}", key=result.n) if result.n else Cell(NOTHING, key=""),
        of_text(result.kind),
        of_text(result.recipe),
        Cell(flagged) if flagged else Cell("none", key=""),
    ]


def how(member: Member, result: Result) -> str:
    """Return the lines on the origin of a result."""
    splits = result.details.get("splits")
    return provenance(
        protocol=f"{result.protocol}, {result.recipe}",
        metric=result.metric,
        data=result.data + (f", splits {', '.join(splits)}" if splits else ""),
        n=f"{result.n:,}" if result.n else "",
        interval=f"95 %, {result.kind}" if result.interval else "none",
        seeds=", ".join(map(str, result.seeds)) or "no random draws",
        converged={True: "yes", False: "no", None: ""}[result.converged],
        seconds=f"{result.seconds:.2f}, without the extraction",
        command=commands.evaluating(result, member.folder if member.card else None),
        date=result.date,
        versions=", ".join(f"{name} {version}" for name, version in result.versions.items()),
        digests=", ".join(f"{name} {digest[:12]}" for name, digest in result.digests.items()),
    )


def _pair(group: Group, pair: Comparison, best: str) -> list[Cell]:
    """Return the row of a comparison, turned so that the best model comes first."""
    sign = 1 if pair.a == best else -1
    ends = sorted(sign * 100 * end for end in pair.interval or ())
    shown = "" if not ends else " ({:+.1f} to {:+.1f})".format(*ends)
    detectable = "" if pair.detectable is None else f"{100 * pair.detectable:.1f} points, in 80 % of such samples"
    about = provenance(
        verdict=pair.verdict,
        test=f"{pair.test}, paired on the same {group.unit}",
        data=group.data,
        n=f"{pair.n:,} pairs",
        interval="95 %, by pairs" if pair.interval else "none: too few pairs, or pairs that do not vary",
        smallest_difference_that_would_be_seen=detectable,
        p_before_adjustment=f"{pair.p:.3g}",
        seed="0, of the bootstrap",
        rows=group.results[0].paired_on[:12],
    )
    p = pair.decisive_p
    return [
        Cell(pair.b if pair.a == best else pair.a),
        Cell(f"{sign * 100 * pair.difference:+.1f}{shown}", about, sign * pair.difference),
        Cell("< 0.001" if p < 0.001 else f"{p:.3f}", about, p),
        Cell("not told apart" if p >= LEVEL else "worse"),
    ]
