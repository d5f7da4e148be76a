"""What a report shows: the options of `write_report`, in a file that a help reads at no cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evaluation.ranking.output import Output
from evaluation.results import OUT
from sslkit.options.settings import setting

RANKINGS = Output.out  # it may be missing


@dataclass(frozen=True)
class Options:
    """What a page shows."""

    out: str | Path = setting("report.html", "the page, replaced if there is one")
    rankings: str | Path | Sequence[str | Path] = setting(
        RANKINGS, "folder of recipes/rank.py's JSON files, or a file, or a list"
    )
    evaluation: str | Path = setting(OUT, "folder of recipes/evaluate.py's results of models outside the zoo")
    study: str | Path | None = setting(None, "JSON file of a study: a comparison of metrics over many rankings")
