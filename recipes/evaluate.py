"""Evaluate backbones: every protocol on features that are extracted once, each number with its interval.

python recipes/evaluate.py checkpoint=runs/zoo/NAME                    (embedded clothes, clip art and letters)
python recipes/evaluate.py checkpoint=[runs/zoo/A,runs/zoo/B]          (both, and what differs between them)
python recipes/evaluate.py checkpoint=efficientnet_lite0 data=path/to/images protocols=[linear,knn]
python recipes/evaluate.py zoo=runs/zoo data=pets root=data
python recipes/evaluate.py checkpoint=runs/zoo/NAME against=start data=[path/to/images,clipart]     (before and after)
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from evaluation.judging.command_line import Output, Subjects, settings_of
from sslkit.cli.command import run_plain

from evaluation import protocols
from sslkit.decision import NULLS
from sslkit.options.settings import setting


@dataclass
class Wanted:
    protocols: str | list[str] | None = setting(
        None,
        f"of {', '.join(protocols.names())}, or package.module:Options of your own; null, to begin with: linear, knn, "
        "crowding; recipes/list.py protocols says what each is",
    )
    nulls: Sequence[str] = setting(
        NULLS,
        f"controls that a model must be above to be taken, a list of {', '.join(NULLS)}; beside them always the "
        "largest class",
    )
    against: str | None = setting(
        None,
        "start: beside the weights of its run's init=, each number with its paired difference, kept on the card; first "
        "by knn, linear, fine_tune; of data=[yours,others] the second says what is retained",
        choices=("start",),
    )
    pictures: bool = setting(True, "bars with intervals, a map and the confusions of each data set")


SETTINGS = settings_of(Subjects, Wanted, Output)


def main(config: dict[str, Any]) -> None:
    from evaluation.judging.against import evaluate_against
    from evaluation.judging.summary import evaluate_models

    plain = {field.name: config.pop(field.name) for field in fields(SETTINGS)}
    against = plain.pop("against")
    evaluate_models(**plain, options=config) if against is None else evaluate_against(against, **plain, options=config)


if __name__ == "__main__":
    options = partial(protocols.options_by_key, sys.argv[1:])
    run_plain(main, SETTINGS, __doc__, options, partial(options, every=True))
