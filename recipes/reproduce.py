"""Reproduce a table or figure of the papers that sslkit implements, in small or with the published data.

python recipes/reproduce.py                                (the list of all, with cost and data; and what out= decides)
python recipes/reproduce.py paper=dsa what=table1
python recipes/reproduce.py paper=dsa what=table2 scale=paper root=path/to/datasets

scale=small, the default, takes the images in the package and minutes to hours on two cores; scale=paper takes the
published data sets from root and the paper's settings. The same command resumes a stopped run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sslkit.cli.command import run_plain

from evaluation.studies.options import Options
from sslkit.options.calls import merge
from sslkit.options.settings import setting
from sslkit.runtime.context import Runtime
from sslkit.terminal import say

if TYPE_CHECKING:
    import sslkit

CONF, STUDIES = (Path(__file__).with_name(name) for name in ("conf", "studies"))


@dataclass
class Own:
    paper: str | None = setting(None, "dsa, adc, resa, ped, itm or leep; null: list all tables and figures")
    what: str | None = setting(None, "table or figure, as in the list; null: list all")


SETTINGS = merge((Own, Options), (Runtime,), ("device", "progress"))


def main(config: dict[str, Any]) -> None:
    from evaluation.studies.run import count_findings, overview, reproduce

    if config["paper"] is None or config["what"] is None:
        say.lines("\n\n".join(filter(None, (overview(STUDIES), count_findings(config["out"], STUDIES)))))
        return
    reproduce(folder=STUDIES, train=train, **config)


def train(words: Sequence[str]) -> "sslkit.ZooEntry | None":
    """Train by words of recipes/train.py."""
    from sslkit.cli.command import compose

    import sslkit
    from sslkit.training.config import Config

    return sslkit.pretrain(compose(words, Config(), CONF))


if __name__ == "__main__":
    run_plain(main, SETTINGS, __doc__, {})
