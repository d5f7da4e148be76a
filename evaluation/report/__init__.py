"""One offline HTML page of a zoo: entries, evaluation, rankings, costs, with the origin of every number.

evaluation.report.write_report("runs/zoo", "report.html", rankings="runs/ranking")
"""

from collections.abc import Sequence
from pathlib import Path

from evaluation.report import page, reading
from evaluation.report.reading import RANKINGS
from sslkit.errors import UserError
from sslkit.files.writing import write_text
from sslkit.runtime.callers import process_kept

__all__ = ["write_report"]


@process_kept()
def write_report(
    zoo: str | Path,
    out: str | Path = "report.html",
    *,
    rankings: str | Path | Sequence[str | Path] = RANKINGS,
    outside: str | Path = "runs/evaluation",
    study: str | Path | None = None,
    command: str = "evaluation.report.write_report",
) -> tuple[Path, list[str]]:
    """Write the page atomically; return its path and a line for each input that could not be read.

    zoo: folder of entries. out: the page, replaced if there is one.
    rankings: JSON files of recipes/rank.py, folders of them, or a list. outside: folder of the
    results of recipes/evaluate.py for models outside a zoo. study: a JSON file. command: shown on the page as its
    origin.
    The page lists missing parts with the command that makes them, and damaged files.
    Raises UserError for a zoo that is not a folder of entries or has none to show, for missing or damaged rankings
    (except in `runs/ranking`), for a study that cannot be read, and if the page cannot be written.
    """
    if Path(out).is_dir() or not Path(out).name:
        raise UserError(f"out={out} is a folder: name the page, such as {Path(out) / 'report.html'}")
    places = [rankings] if isinstance(rankings, (str, Path)) else list(rankings)
    given = None if study is None else Path(study)
    material = reading.read_all(Path(zoo), map(Path, places), Path(outside), given)
    text = page.page(material, command=command, ranking_places=", ".join(map(str, places)))
    write_text(Path(out), text)
    return Path(out), material.problems
