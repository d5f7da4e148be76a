"""Measure the ground truth of rankings: the accuracy of every model of a zoo on every task after fine-tuning.

python recipes/ground_truth.py zoo=runs/zoo data=[clipart,digits]
python recipes/ground_truth.py zoo=[runs/zoo,efficientnet_lite0,random:narrow_resnet] data=clipart image_size=64
python recipes/rank.py zoo=[runs/zoo,efficientnet_lite0] data=[clipart,digits] truth=runs/truth/truth.json

The same command resumes a stopped run. If a model fails, the others are still measured; the exit code is then 1.
"""

import sys
from typing import Any

from evaluation.judging.command_line import settings_of
from sslkit.cli.command import run_plain

from evaluation.ranking.command_line import Models
from evaluation.ranking.inputs.runs import SHARED
from evaluation.ranking.truth.ground_truth import Options

SETTINGS = settings_of(Models, Options, shared=SHARED)


def main(config: dict[str, Any]) -> None:
    from evaluation.ranking.truth.ground_truth import TRUTH, ground_truth
    from sslkit.errors import UserError
    from sslkit.terminal import say
    from sslkit.terminal.say import printable

    if not config["zoo"]:
        raise UserError("give the models to fine-tune: zoo=runs/zoo, or zoo=[runs/zoo,efficientnet_lite0]")
    measured = ground_truth(**config, say=say.line)
    for task, accuracies in measured.truth.items():
        best = max(accuracies, key=accuracies.get)
        say.line(f"highest   {task}: {best} ({100 * accuracies[best]:.1f} %), of {len(accuracies)} models")
    say.line(f"written   {config['out']}/{TRUTH}")
    if measured.failures:
        print(
            f"{len(measured.failures)} failed, all others are measured; the same command retries them:", file=sys.stderr
        )
        for failure in measured.failures:
            print(f"  {printable(str(failure), keep='')}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    run_plain(main, SETTINGS, __doc__, {})
