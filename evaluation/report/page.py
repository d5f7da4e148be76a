"""The page: material to tables and charts, and these through the template to one HTML text."""

import base64
import datetime
import hashlib
import re
import shlex
from pathlib import Path
from typing import Any

import sslkit
from evaluation.report import judged
from evaluation.report.costs import costs_table
from evaluation.report.entries import sections, zoo_table
from evaluation.report.ranked import rankings
from evaluation.report.reading import Material
from evaluation.report.study import study_tables
from sslkit.invocation import as_started

TEMPLATE = Path(__file__).parent / "template"
SHORT = 24  # letters that stay on one line


def page(material: Material, *, command: str, ranking_places: str) -> str:
    """Return one self-contained HTML text: style, script and pictures are embedded, its policy forbids the rest.

    command: that made the page. ranking_places: description of the places of rankings.
    """
    style, script = ((TEMPLATE / name).read_text() for name in ("page.css", "page.js"))
    compared = judged.comparisons(material)  # before the problems are shown: it may add some
    unjudged = judged.unjudged(material)
    return as_started(
        _environment(style, script)
        .get_template("page.html")
        .render(
            title=f"Zoo report: {material.zoo.resolve().name}",
            summary=_summary(material),
            date=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            command=command,
            version=sslkit.__version__,
            contents=_contents(material),
            problems=material.problems,
            zoo=zoo_table(material),
            zoo_folder=material.zoo,
            entries=sections(material),
            results=judged.results_table(material),
            further=judged.further_table(material),
            compared=compared,
            unjudged=[member.name for member in unjudged],
            judge_words=_judge_words([str(member.folder) for member in unjudged]),
            without_labels=judged.without_labels(material),
            rankings=rankings(material),
            ranking_places=ranking_places,
            study=[] if material.study is None else study_tables(material.study, material.study_path),
            costs=costs_table(material),
        )
    )


def _environment(style: str, script: str) -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(TEMPLATE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["capitalize_first"] = lambda text: text[:1].upper() + text[1:]
    environment.filters["breakable"] = _breakable
    environment.globals |= {
        "short": SHORT,
        "style": Markup(style),  # our own files, hashed for the policy
        "script": Markup(script),
        "style_hash": _hash(style),
        "script_hash": _hash(script),
    }
    return environment


def _breakable(text: str) -> Any:
    """Allow line breaks after the punctuation of long names, for narrow screens."""
    from markupsafe import Markup

    if len(text) <= SHORT:
        return text
    return Markup("<wbr>").join(re.split(r"(?<=[-_+/])(?=\w)", text))


def _hash(text: str) -> str:
    """Return the hash as in a content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _summary(material: Material) -> str:
    counts = [
        (len(material.members), "entry", "entries"),
        (sum(len(member.results) for member in material.judged), "result", "results"),
        (len(material.rankings), "ranking", "rankings"),
    ]
    counted = ", ".join(f"{count:,} {one if count == 1 else many}" for count, one, many in counts)
    return f"{material.zoo}: {counted}."


def _contents(material: Material) -> list[tuple[str, str]]:
    parts = [("problems", "Unreadable files")] if material.problems else []
    parts += [("zoo", "Zoo")]
    parts += [("entries", "Entries")] if material.members else []
    return [*parts, ("evaluation", "Evaluation"), ("rankings", "Rankings"), ("study", "Study"), ("costs", "Costs")]


def _judge_words(folders: list[str]) -> str:
    word = folders[0] if len(folders) == 1 else f"[{','.join(folders)}]"
    return shlex.quote(f"checkpoint={word}")
