"""Write the page of a zoo."""

from pathlib import Path

from evaluation.report import page, reading
from evaluation.report.options import Options
from sslkit.errors import UserError
from sslkit.files.writing import write_text
from sslkit.runtime.callers import public


@public()
def write_report(
    zoo: str | Path, options: Options, *, command: str = "evaluation.report.write_report"
) -> tuple[Path, list[str]]:
    """Write the page atomically; return its path and a line for each input that could not be read.

    zoo: folder of entries. command: shown on the page as its origin.
    The page lists missing parts with the command that makes them, and damaged files.
    Raises UserError for a zoo that is not a folder of entries or has none to show, for missing or damaged rankings
    (except in `runs/ranking`), for a study that cannot be read, and if the page cannot be written.
    """
    out, rankings = options.out, options.rankings
    if Path(out).is_dir() or not Path(out).name:
        raise UserError(f"out={out} is a folder: name the page, such as {Path(out) / 'report.html'}")
    places = [rankings] if isinstance(rankings, (str, Path)) else list(rankings)
    study_path = None if options.study is None else Path(options.study)
    material = reading.read_all(Path(zoo), map(Path, places), Path(options.evaluation), study_path)
    text = page.page(material, command=command, ranking_places=", ".join(map(str, places)))
    write_text(Path(out), text)
    return Path(out), material.problems
