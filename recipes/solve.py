"""From labelled images to one model that predicts, in a budget of time, and how good it is on images that nothing saw.

python recipes/solve.py data=path/to/images budget=30min
python recipes/solve.py data=table.csv columns.label=defect zoo=[efficientnet_lite0,runs/zoo] budget=2h

The same command goes on where it was stopped; Ctrl-C ends with the best so far.
"""

from dataclasses import dataclass
from typing import Any

from evaluation.judging.command_line import settings_of
from sslkit.cli.command import run_plain

from evaluation.ranking.command_line import Models
from evaluation.solving.options import OUT, SHARED, Options
from sslkit.errors import UserError
from sslkit.options.settings import setting


@dataclass
class Task(Models):
    out: str = setting(OUT, "folder of the solution, with a folder for each data set")


SETTINGS = settings_of(Task, Options, shared=SHARED)


def main(config: dict[str, Any]) -> None:
    from evaluation.solving.output import run

    if config["data"] is None:
        raise UserError("give data=, as in: python recipes/solve.py data=path/to/images")
    run(**config)


if __name__ == "__main__":
    run_plain(main, SETTINGS, __doc__, {})
