"""One offline HTML page of a zoo: entries, evaluation, rankings, costs; every number says how it was made.

evaluation.report.write_report("runs/zoo", "report.html", rankings="runs/ranking")
"""

from collections.abc import Sequence
from pathlib import Path

from evaluation.report import page, reading
from sslkit.errors import UserError
from sslkit.files import write_whole

__all__ = ["write_report"]
RANKINGS = "runs/ranking"  # where recipes/rank.py writes; it need not be there


def write_report(
    zoo: str | Path,
    out: str | Path = "report.html",
    *,
    rankings: str | Path | Sequence[str | Path] = RANKINGS,
    outside: str | Path = "runs/evaluation",
    study: str | Path | None = None,
    command: str = "evaluation.report.write_report",
) -> tuple[Path, list[str]]:
    """Write the page, whole or not at all; gives its path and a line for each thing that could not be read.

    zoo: folder of entries. rankings: JSON files of recipes/rank.py, folders of them, or a list. outside: folder where
    recipes/evaluate.py keeps the results of models that are no entries. study: a JSON file. command: as the page says
    how it was made.
    What is missing is said on the page, with the command that makes it; what is damaged is named.
    Raises UserError for a zoo that is no folder of entries, for rankings that are not there (but those of
    `runs/ranking`), for a study that cannot be read, and where the page cannot be written.
    """
    if Path(out).is_dir() or not Path(out).name:
        raise UserError(f"out={out} is a folder: name the page, such as {Path(out) / 'report.html'}")
    places = [rankings] if isinstance(rankings, (str, Path)) else list(rankings)
    given = None if study is None else Path(study)
    material = reading.read_all(Path(zoo), map(Path, places), Path(outside), given, Path(RANKINGS))
    text = page.page(material, command=command, ranking_places=", ".join(map(str, places)))
    with write_whole(Path(out)) as partial:
        partial.write_text(text, encoding="utf-8")
    return Path(out), material.problems
