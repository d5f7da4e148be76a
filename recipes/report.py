"""Write one offline HTML page of a zoo: entries, curves, evaluation, rankings, costs, with the origin of every number.

python recipes/report.py zoo=runs/zoo
python recipes/report.py zoo=runs/zoo rankings=runs/ranking out=report.html
python recipes/report.py zoo=runs/zoo study=path/to/study.json
"""

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sslkit.cli.command import run_plain

from evaluation.report.options import Options
from sslkit.options.calls import merge
from sslkit.options.settings import setting
from sslkit.terminal import say

WORDS = sys.argv[1:]  # as typed, before Hydra parses them


@dataclass
class Own:
    zoo: str = setting("runs/zoo", "folder of zoo entries")


SETTINGS = merge((Own, Options))


def main(config: dict[str, Any]) -> None:
    from evaluation.report import write_report

    command = shlex.join(["python", "recipes/report.py", *WORDS])
    path, problems = write_report(**config, command=command)
    for line in problems:
        say.line(f"problem   {line}")
    say.line(f"written   {path}, {path.stat().st_size / 1e6:.1f} MB; it loads nothing else, so it can be sent as it is")
    say.line(f"next      open {Path(path).resolve().as_uri()} in a browser")


if __name__ == "__main__":
    run_plain(main, SETTINGS, __doc__, {})
