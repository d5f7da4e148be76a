"""The page: material to tables and charts, and these through the template to one HTML text."""

import datetime
import re
from pathlib import Path
from typing import Any

import sslkit
from evaluation.report import commands, glossary, judged, zoo_table
from evaluation.report.answer import answer, of_groups
from evaluation.report.cells import dig
from evaluation.report.costs import costs_table
from evaluation.report.entries import sections, unit
from evaluation.report.overview import Overview, overview
from evaluation.report.ranked import task_of
from evaluation.report.reading import Material, Member
from evaluation.report.study import study_tables
from evaluation.results.decisions import by_chance
from sslkit.data.items import IMAGE
from sslkit.files.pages import open_templates
from sslkit.terminal.say import as_started, counted

TEMPLATE = Path(__file__).parent / "template"
SHORT = 24  # letters that stay on one line


def page(material: Material, *, command: str, ranking_places: str) -> str:
    """Return one self-contained HTML text: style, script and pictures are embedded, its policy forbids the rest.

    command: that made the page. ranking_places: description of the places of rankings.
    """
    style, script = ((TEMPLATE / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    figure = overview(material)
    template = _environment(f"{style}{figure.rules}\n", script).get_template("page.html")
    return as_started(
        template.render(_context(material, figure) | {"command": command, "ranking_places": ranking_places})
    )


def _context(material: Material, figure: Overview) -> dict[str, Any]:
    """Return what the template names."""
    groups = judged.groups(material)  # before the problems are shown: it may add some
    unjudged = [member for member in material.members if not member.results]
    return {
        "title": f"Zoo report: {material.zoo.resolve().name}",
        "summary": _summary(material),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "version": sslkit.__version__,
        "contents": _contents(material),
        "problems": material.problems,
        "answer": answer(material, groups),
        "zoo": zoo_table.zoo_table(material),
        "chart": zoo_table.chart(material),
        "marked": bool(zoo_table.outside(material)),
        "made": zoo_table.origin_table(material),
        "quick": zoo_table.quick_name(material, "knn"),
        "held_out": zoo_table.held_out(material),
        "figure": figure,
        "styles": {entry.number: entry.style for entry in figure.entries},
        "train_first": commands.first_training(material.zoo),
        "judge_zoo": commands.command("evaluate", {"zoo": material.zoo}),
        "rank_first": commands.command("rank", {"zoo": material.zoo, "data": ["clipart", "digits"]}),
        "entries": sections(material),
        "results": judged.results_table(material),
        "data_notes": judged.notes(material),
        "further": judged.further_table(material),
        "compared": list(zip(of_groups(groups), map(judged.comparison_table, groups), strict=True)),
        "by_chance": by_chance([group.pairs for group in groups]),
        "unjudged": [member.name for member in unjudged],
        "judge_all": _evaluate_all(unjudged),
        "without_labels": judged.without_labels(material),
        "rankings": [task_of(ranked, material) for ranked in material.rankings],
        "elsewhere": [str(ranked.path) for ranked in material.elsewhere],
        "study": [] if material.study is None else study_tables(material.study, material.study_path),
        "costs": costs_table(material),
        "words": glossary.WORDS,
    }


def _environment(style: str, script: str) -> Any:
    environment = open_templates(TEMPLATE, style=style, script=script, trim_blocks=True, lstrip_blocks=True)
    environment.filters["capitalize_first"] = lambda text: text[:1].upper() + text[1:]
    environment.filters["breakable"] = _breakable
    environment.filters["glossed"] = glossary.link_words
    environment.filters["explained"] = lambda one: "\n".join(filter(None, (one.how, glossary.meaning(one.name))))
    environment.filters["with_ends"] = _with_ends
    environment.globals["short"] = SHORT
    return environment


def _breakable(text: str) -> Any:
    """Allow line breaks after the punctuation of long names, for narrow screens."""
    from markupsafe import Markup

    if len(text) <= SHORT:
        return text
    return Markup("<wbr>").join(re.split(r"(?<=[-_+/])(?=\w)", text))


def _with_ends(text: str) -> Any:
    """Mark the interval of a number, which narrow tables have below it."""
    from markupsafe import Markup

    parts = re.fullmatch(r"(.*?\S)( (?:\([^()]* to [^()]*\)|± \S+))", text)
    return Markup('{}<span class="ends">{}</span>').format(*parts.groups()) if parts else text


def _summary(material: Material) -> str:
    entries, results = len(material.members), sum(len(member.results) for member in material.with_results)
    entries = f"{entries:,} {'entry' if entries == 1 else 'entries'}"
    return f"{material.zoo}: {entries}, {counted(results, 'result')}, {counted(len(material.rankings), 'ranking')}."


def _contents(material: Material) -> list[tuple[str, str]]:
    parts = [("problems", "Unreadable files")] if material.problems else []
    parts += [("zoo", "All entries")]
    parts += [("evaluation", "Evaluation"), ("rankings", "Rankings")]
    parts += [("all-title", "Side by side"), ("entries", "Each entry")] if material.members else []
    parts += [("study", "Study")] if material.study is not None else []
    return [*parts, ("costs", "Costs"), ("words", "Words")]


def _evaluate_all(members: list[Member]) -> list[str]:
    """Return the commands that evaluate these entries: one for networks of images, others for each set of others."""
    groups: dict[str, list[Path]] = {}
    for member in members:
        data = "" if unit(member.card) == IMAGE.rows else str(dig(member.card, "data", "source") or "")
        groups.setdefault(data, []).append(member.folder)
    return [commands.evaluating_all(folders, data) for data, folders in groups.items()]
