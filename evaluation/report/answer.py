"""The answer that the page begins with: which model to take on which data, how sure that is, and against what."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from evaluation.ranking.inputs.task_names import task_name
from evaluation.report import commands
from evaluation.report.cells import OUTSIDE, dig, of_estimate, of_share
from evaluation.report.entries import describe_images, neighbours
from evaluation.report.judged import Group
from evaluation.report.reading import Material, Member, Ranked
from evaluation.report.zoo_table import outside
from evaluation.results.decisions import deciding, order
from sslkit.decision import Decision, list_names
from sslkit.numerics.wilson import units_of
from sslkit.terminal.say import counted

MOST = 6  # verdicts before the table; the sections have all


@dataclass(frozen=True)
class Verdict:
    """lead: in bold, what to take. text: how sure, and against what. data: that it is about. first: the model."""

    lead: str
    text: str
    data: str = ""
    first: str = ""


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
    for group in sorted(groups, key=lambda group: order(group.protocol)):
        by_data.setdefault(group.data, group)
    verdicts = [of_group(group) for group in by_data.values()]
    verdicts += [of_ranking(ranked) for ranked in material.rankings]
    verdicts = [_say_where(verdict, material) for verdict in verdicts]
    if verdicts:
        return Answer(verdicts[:MOST], max(0, len(verdicts) - MOST), "")
    command = commands.command("evaluate", {"zoo": material.zoo})
    if len(material.members) == 1:
        return Answer([_alone(material.members[0])], 0, command)
    nothing = "No two models were evaluated on the same images, and there is no ranking."
    return Answer([Verdict("Nothing here tells which model to take.", nothing)], 0, command)


def _say_where(verdict: Verdict, material: Material) -> Verdict:
    """Say where a model to take is not among the entries."""
    if not verdict.first or verdict.first in material.names or not material.names:
        return verdict
    judged = f"{verdict.first}{OUTSIDE}" in {member.name for member in outside(material)}
    where = "marked † below" if judged else "not in the table below: it was not evaluated"
    return replace(verdict, text=f"{verdict.text} {verdict.first} is no entry of this zoo, {where}.")


def of_groups(groups: Sequence[Group]) -> list[Verdict]:
    """Return the verdict of each group; for each data set only one says which model to take."""
    decides = deciding((group.data, group.protocol) for group in groups)
    return [of_group(group, (group.data, group.protocol) in decides) for group in groups]


def of_group(group: Group, decides: bool = True) -> Verdict:
    """Say which model of a group is first, and to take it if the group decides, by its paired tests."""
    decision = replace(group.decision, decides=decides)
    tested = f"by {group.title}, {group.results[0].n:,} {group.unit}, Holm over {counted(len(group.pairs), 'pair')}"
    return _verdict(group.data, decision, tested)


def of_ranking(ranked: Ranked) -> Verdict:
    """Say which model a ranking puts first, or that its metrics cannot tell."""
    ranking = ranked.ranking
    data = task_name(ranking.data) or ranked.path.stem
    by = f"by the ranking of {len(ranking.models)} models with {list_names(ranking.metrics)}"
    if not ranking.decision:
        return Verdict(f"{data}: no best model.", f"No metric scores every model, {by}.", data)
    return _verdict(data, ranking.decision, f"{by}, which predicts and does not train")


def _verdict(data: str, decision: Decision, how: str) -> Verdict:
    told = "; ".join(filter(None, (decision.rest, how)))
    return Verdict(f"{data}: {decision.lead}:", f"{told}.", data, decision.first.name)


def _alone(member: Member) -> Verdict:
    units = units_of(dig(member.card, "after") or {})
    after, before = (of_share(dig(member.card, stage, "knn"), units) for stage in ("after", "before"))
    if after is None:
        return Verdict("There is one entry, so nothing to choose.", f"{member.name} has no accuracy.")
    was = "" if before is None else f", {of_estimate(before, '').text} before training"
    on = describe_images(member.card)
    text = f"{member.name}: {of_estimate(after, '').text} by quick {neighbours(member.card) or 'k'}-NN{was}, {on}."
    return Verdict("There is one entry, so nothing to choose.", text)
