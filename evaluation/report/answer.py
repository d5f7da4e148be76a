"""The answer that the page begins with: which model to take on which data, how sure that is, and against what."""

from collections.abc import Sequence
from dataclasses import dataclass

from evaluation.report import commands
from evaluation.report.cells import dig, of_estimate, of_share
from evaluation.report.entries import judged_on, neighbours
from evaluation.report.judged import Group
from evaluation.report.reading import Material, Member, Ranked
from evaluation.results.comparison import LEVEL, Comparison

BEST_FIRST = ("fine_tune", "linear", "knn")  # protocols whose verdict is told for a data set that has several
MOST_NAMED = 3  # models that are named among those that cannot be told apart
MOST = 6  # verdicts before the table; the sections have all


@dataclass(frozen=True)
class Verdict:
    """lead: in bold, what to take. text: how sure, and against what. data: that it is about."""

    lead: str
    text: str
    data: str = ""


@dataclass(frozen=True)
class Answer:
    """verdicts: the first ones. more: how many are left to the sections. command: "" where nothing is missing."""

    verdicts: list[Verdict]
    more: int
    command: str


def answer(material: Material, groups: Sequence[Group]) -> Answer:
    """Return the verdict of the best protocol for each data set, then those of the rankings.

    Without any, the numbers from the end of training are told, and the command that makes verdicts.
    """
    by_data: dict[str, Group] = {}
    for group in sorted(groups, key=_order):
        by_data.setdefault(group.data, group)
    verdicts = [of_group(group) for group in by_data.values()]
    verdicts += [of_ranking(ranked) for ranked in material.rankings]
    if verdicts:
        return Answer(verdicts[:MOST], max(0, len(verdicts) - MOST), "")
    command = commands.command("evaluate", {"zoo": material.zoo})
    if len(material.members) == 1:
        return Answer([_alone(material.members[0])], 0, command)
    nothing = "No two models were evaluated on the same images, and there is no ranking."
    return Answer([Verdict("Nothing here tells which model to take.", nothing)], 0, command)


def of_group(group: Group) -> Verdict:
    """Say which model is the best of a group by the paired tests, or that the first ones cannot be told apart."""
    first, *others = sorted(group.results, key=lambda result: -result.value)
    tied, apart = [], []
    for other in others:
        pair = _pair_of(group.pairs, first.model, other.model)
        (apart if _p(pair) < LEVEL else tied).append((other, pair))
    how = f"{group.title}, {first.n:,} {group.unit}"
    shown = of_estimate(first.estimate, "").text
    if tied:
        names = _listed([first.model, *(other.model for other, _ in tied)])
        rest = f"; {_counted(len(apart))} worse" if apart else ""
        text = f"{names} cannot be told apart by {how}; the first has {shown}{rest}."
        return Verdict(f"{group.data}: no best model.", text, group.data)
    nearest, pair = apart[0]
    ends = (
        "" if pair.interval is None else " ({:.1f} to {:.1f})".format(*sorted(100 * abs(end) for end in pair.interval))
    )
    than = f"{nearest.model}, the next," if len(apart) > 1 else nearest.model
    text = f"{shown} by {how}; better than {than} by {100 * abs(pair.difference):.1f} points{ends}, p {_p_text(pair)}."
    return Verdict(f"{group.data}: take {first.model}.", text, group.data)


def of_ranking(ranked: Ranked) -> Verdict:
    """Say which model a ranking puts first, or that its metrics cannot tell."""
    ranking, consensus = ranked.ranking, ranked.ranking.consensus
    data = ranking.data or ranked.path.stem
    by = f"by the ranking of {len(ranking.models)} models with {_listed(ranking.metrics)}"
    if not consensus.first():
        return Verdict(f"{data}: no best model.", f"No metric scores every model, {by}.", data)
    m, likely = consensus.first()[0], consensus.shortlist()
    chance = "" if not likely else f" ({100 * consensus.best[m]:.0f} % to be the best)"
    if len(consensus.first()) == 1 and len(likely) == 1:
        text = f"First {by}{chance}; a ranking predicts, it does not train."
        return Verdict(f"{data}: take {ranking.models[m]}.", text, data)
    names = _listed([ranking.models[one] for one in likely or consensus.first()])
    text = f"{names} cannot be told apart {by}; the first is {ranking.models[m]}{chance}."
    return Verdict(f"{data}: no best model.", text, data)


def _alone(member: Member) -> Verdict:
    n = dig(member.card, "after", "n")
    after, before = (of_share(dig(member.card, part, "knn"), n) for part in ("after", "before"))
    if after is None:
        return Verdict("There is one entry, so nothing to choose.", f"{member.name} has no accuracy.")
    was = "" if before is None else f", {of_estimate(before, '').text} before training"
    on = judged_on(member.card)
    text = f"{member.name}: {of_estimate(after, '').text} by quick {neighbours(member.card) or 'k'}-NN{was}, {on}."
    return Verdict("There is one entry, so nothing to choose.", text)


def _order(group: Group) -> tuple[int, str]:
    known = group.protocol in BEST_FIRST
    return BEST_FIRST.index(group.protocol) if known else len(BEST_FIRST), group.protocol


def _pair_of(pairs: Sequence[Comparison], a: str, b: str) -> Comparison:
    return next(pair for pair in pairs if {pair.a, pair.b} == {a, b})


def _p(pair: Comparison) -> float:
    return pair.p if pair.p_adjusted is None else pair.p_adjusted


def _p_text(pair: Comparison) -> str:
    return "< 0.001" if _p(pair) < 0.001 else f"{_p(pair):.3f}"


def _listed(names: Sequence[str]) -> str:
    """Return names in words; of many, the first and the number of the others."""
    if len(names) > MOST_NAMED + 1:
        return f"{', '.join(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} others"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _counted(count: int) -> str:
    return "1 other is" if count == 1 else f"{count} others are"
