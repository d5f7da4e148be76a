"""Run a study, resumable job by job, and write its numbers, table and picture."""

import datetime
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import sslkit
from evaluation.results.tables import with_interval
from evaluation.studies.cells import measure_cells, missing_cells
from evaluation.studies.claims import AGREES, DISAGREES, Summary
from evaluation.studies.declaration import load_paper, paper_names
from evaluation.studies.options import Options
from evaluation.studies.study import Absent, Lab, Study
from sslkit.errors import UserError, nearest
from sslkit.files import reading
from sslkit.files.leases import own_file
from sslkit.files.writing import write_text
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime
from sslkit.runtime.jobs import processor
from sslkit.terminal import say
from sslkit.terminal.say import counted, entry, fold
from sslkit.terminal.tables import below_names, markdown

VERSION = 1  # of the files of results
TEXTS = 12  # column of a list in which the texts begin


def overview(folder: Path) -> str:
    """Every table and figure of every paper of a folder of declarations: its cost and needs, or why it is not run."""
    lines = []
    for name in paper_names(folder):
        paper = load_paper(folder / f"{name}.yaml")
        lines += ["" if lines else None, f"{name}: {paper.title}"]
        lines += [entry(what, _describe(study), TEXTS) for what, study in paper.studies.items()]
    return "\n".join(line for line in lines if line is not None)


def count_findings(out: str | Path, folder: Path) -> str:
    """How many findings the results below `out` decide, and how many chance alone would; "" without results.

    Counted are the findings that say a difference and have a 95 % interval: it leaves 0 out in one of twenty by chance.
    """
    findings = [finding for path in sorted(Path(out).rglob("*.json")) for finding in _findings(path, folder)]
    if not findings:
        return ""
    agree, disagree = findings.count(AGREES), findings.count(DISAGREES)
    return fold(
        f"of {counted(len(findings), 'interval')} below {out}, {agree + disagree} leave 0 out "
        f"({agree} as in the paper, {disagree} against it); "
        f"without any effect about {len(findings) / 20:.0f} would, half of them as in the paper"
    )


def _findings(path: Path, folder: Path) -> tuple[str, ...]:
    """The outcomes of the findings of a file of results; none of another file."""
    record = reading.read_json(path, "move it away")
    if not isinstance(record, dict) or not {"version", "paper", "what", "scale", "jobs"} <= set(record):
        return ()
    study = find_study(folder, record["paper"], record["what"])
    return study.summarize(record["jobs"]).findings


def _describe(study: "Study | Absent") -> str:
    if isinstance(study, Absent):
        return f"{study.caption} Not run: {study.reason}"
    needs = f"; scale=paper needs {', '.join(study.needs)}" if study.needs else ""
    return f"{study.caption} (scale=small: {study.cost}{needs})"


def find_study(folder: Path, paper: str, what: str) -> Study:
    """The study of these names. Raises UserError for unknown names and for one that is not run."""
    if paper not in paper_names(folder):
        raise UserError(f"paper={paper} is unknown: {nearest(paper, paper_names(folder))}")
    studies = load_paper(folder / f"{paper}.yaml").studies
    if what not in studies:
        raise UserError(f"what={what} is not in {paper}: {nearest(what, studies)}")
    study = studies[what]
    if isinstance(study, Absent):
        raise UserError(f"paper={paper} what={what} is not run: {study.reason}")
    return study


@public("device", "progress")
def reproduce(
    paper: str,
    what: str,
    *,
    options: Options,
    folder: Path,
    train: Callable[[Sequence[str]], sslkit.ZooEntry | None],
    runtime: Runtime,
) -> Summary:
    """Run the missing jobs of one table or figure, write `OUT/PAPER/WHAT.json`, `.md` and `.png`, and return the table.

    train: see `Lab`. folder: of the declarations, a file a paper.
    Raises UserError for unknown names, missing data and results of another version, before any job.
    """
    scale, out = options.scale, Path(options.out)
    study = find_study(folder, paper, what)
    paper_folder, name = out / paper, what if scale == "small" else f"{what}-{scale}"
    runtime = replace(runtime, cache=out / "cache", out=paper_folder, workers=options.workers)
    lab = Lab(scale=scale, root=Path(options.root), zoo=out / "zoo", train=train, runtime=runtime)
    jobs = study.jobs(lab)
    path = paper_folder / f"{name}.json"
    with own_file(path, "reproduces"):
        record = _open_record(path, paper, what, scale)
        missing = missing_cells(jobs, record["jobs"])
        say.line(f"{paper} {what}: {counted(len(jobs), 'job')}, {len(missing)} to run")
        measure_cells(missing, partial(_keep, path, record))
        by_job = {key: record["jobs"][key] for key in jobs}
        summary = study.summarize(by_job)
        write_text(path.with_suffix(".md"), as_markdown(study, summary, record["made"]))
        at = "on small data" if scale == "small" else "on the published data"
        study.draw(by_job, path.with_suffix(".png"), f"{paper.upper()}, {study.caption.rstrip('.')}, {at}")
    say.lines(fold(as_text(study, summary)))
    say.line(f"  in {paper_folder}: {name}.json, {name}.md, {name}.png")
    return summary


def _open_record(path: Path, paper: str, what: str, scale: str) -> dict[str, Any]:
    """The record of earlier jobs, or an empty one. Raises UserError for one of another version or experiment."""
    head = {"version": VERSION, "paper": paper, "what": what, "scale": scale}
    if not path.exists():
        return {**head, "made": [], "jobs": {}}
    remedy = "move it away, or choose another folder with out="
    record = reading.read_json(path, remedy)
    if not isinstance(record, dict) or {key: record.get(key) for key in head} != head:
        raise UserError(f"{path} has results of another version or experiment: {remedy}")
    return record


def _keep(path: Path, record: dict[str, Any], key: str, numbers: Mapping[str, float]) -> None:
    record["jobs"][key] = {name: float(value) for name, value in numbers.items()}
    record["made"] = [*(made for made in record["made"] if made != _describe_machine()), _describe_machine()]
    write_text(path, json.dumps(record, indent=1) + "\n")


def _describe_machine() -> dict[str, Any]:
    """Return date, processor and cores of this run."""
    return {"date": datetime.date.today().isoformat(), "processor": processor(), "cores": os.cpu_count()}


def as_text(study: Study, summary: Summary) -> str:
    """The table for the terminal, below it the verdict."""
    return "\n".join(["", study.caption, below_names(_lines(summary)), "", *_verdict_lines(study, summary)])


def as_markdown(study: Study, summary: Summary, made: Sequence[Mapping[str, Any]]) -> str:
    lines = _lines(summary)
    right = range(1, len(lines[0]))
    about = "; ".join(", ".join(map(str, origin.values())) for origin in made)
    return (
        "\n\n".join([f"**{study.caption}**", markdown(lines, right), *_verdict_lines(study, summary), f"({about})"])
        + "\n"
    )


def _verdict_lines(study: Study, summary: Summary) -> list[str]:
    return [f"{summary.outcome}: {summary.sentence}", *(f"reading: {text}" for text in study.readings)]


def _lines(summary: Summary) -> list[list[str]]:
    """Header and rows; the paper's number is in brackets."""
    columns = list(dict.fromkeys(column for cells in summary.rows.values() for column in cells))
    rows = [[row, *(_cell(cells.get(column)) for column in columns)] for row, cells in summary.rows.items()]
    return [["", *columns], *rows]


def _cell(cell: Any) -> str:
    if cell is None or (cell.measured is None and cell.published is None):
        return ""
    measured = with_interval(cell.measured) if cell.measured else "-"
    return measured if cell.published is None else f"{measured} [{cell.published:g}]"
