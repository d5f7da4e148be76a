"""Whether the answers of `solve` hold: its interval on held-back images, and "above a null" on labels drawn by coin.

    python recipes/benchmarks/solving/run.py           (measure; what is measured already is kept)
    python recipes/benchmarks/solving/run.py --table   (print the committed results)

Each draw gives 40, 100, 300 or 1,000 of Fashion-MNIST's 10,000 embedded images. A fifth of them is held back. Of five
networks the one with the best probe in five folds of the others is fitted to these, and answers the held-back images,
as in `solve`; 7,000 of the images that were not given are the truth. With coins the labels are two, at random.
"""

import sys
from functools import cache, partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import cli
import numpy as np
import torch
from results import load, measure

import evaluation
import sslkit
from evaluation.features.table import Features, join_splits
from evaluation.learners.cross_fit import cross_fit
from evaluation.results import measures
from evaluation.results.decisions import decide
from evaluation.results.result import Result, rows_digest
from evaluation.solving.probes import linear_layer
from sslkit.data.held_out import held_out
from sslkit.runtime.context import Runtime
from sslkit.terminal.tables import markdown

RESULTS = "solving/solving"
GIVEN = (40, 100, 300, 1000)  # images with a label
TRUTH = 7000  # images that are the truth
DRAWS = 50  # of each number of images
PIXELS = "pixels"
OWN = {"byol+guide": 2, "simclr": 2, "mae": 2}  # trained here: method and epochs
NETWORKS = (PIXELS, "efficientnet_lite0", *OWN)
CPU = Runtime(device="cpu", progress=False)


def main() -> None:
    parser = cli.parser(__doc__, "table")
    parser.add_argument("--zoo", type=Path, default=Path("runs/solving"), help="of own networks and features")
    args = parser.parse_args()
    if not args.table:
        draws = [(kind, n, draw) for n in GIVEN for kind in ("labels", "coins") for draw in range(DRAWS)]
        measure(RESULTS, {f"{kind} | {n} | {draw}": partial(one, args.zoo, kind, n, draw) for kind, n, draw in draws})
    print(table(load(RESULTS)["runs"]))


def one(zoo: Path, kind: str, n: int, draw: int) -> dict[str, Any]:
    """The answer on one draw, with the truth."""
    rng = np.random.default_rng([n, draw, kind == "coins"])
    features = {name: read(name, zoo) for name in NETWORKS}
    some = features[PIXELS]
    y = rng.integers(2, size=len(some)) if kind == "coins" else some.y
    rows = rng.permutation(len(some))
    drawn, truth = np.sort(rows[:n]), rows[n : n + TRUTH]
    out = held_out(y[drawn], some.ids[drawn].tolist(), seed=draw)
    learned, held_back = drawn[~out], drawn[out]
    y = number_as_learned(y, y[learned])
    fitted = {
        name: cross_fit(np.array(of.x[learned]), y[learned], of.ids[learned], None, "top1", CPU)
        for name, of in features.items()
    }
    inner = {name: float((fit.scores.argmax(1) == y[learned][fit.rows]).mean()) for name, fit in fitted.items()}
    chosen = max((name for name in NETWORKS if name != PIXELS), key=inner.get)
    results, values = {}, {}
    for name in (chosen, PIXELS):
        x = features[name].x
        layer = linear_layer(np.array(x[learned]), y[learned], np.arange(len(learned)), fitted[name].c, CPU)
        with torch.inference_mode():
            scores = {
                images: layer(torch.from_numpy(np.array(x[rows]))).numpy()
                for images, rows in (("held back", held_back), ("truth", truth))
            }
        results[name] = result(name, scores["held back"], y[held_back], some.ids[held_back])
        values[name] = float((scores["truth"].argmax(1) == y[truth]).mean())
    decision = decide(list(results.values()))[0]
    return {
        "chosen": chosen,
        "inner": inner[chosen],
        "value": results[chosen].value,
        "interval": list(results[chosen].interval),
        "truth": values[chosen],
        "pixels": values[PIXELS],
        "taken": decision.taken,
    }


def number_as_learned(y: np.ndarray, learned: np.ndarray) -> np.ndarray:
    """Labels (N,) by their place among those that were learned; -1 for others, which no classifier can answer."""
    present = np.unique(learned)
    number = np.minimum(np.searchsorted(present, y), len(present) - 1)
    return np.where(present[number] == y, number, -1)


def result(name: str, scores: np.ndarray, y: np.ndarray, ids: np.ndarray) -> Result:
    estimate, others, right = measures.measure(scores, y, "top1")
    about = {"outcomes": right, "largest": measures.right_by_largest(y), "paired_on": rows_digest(ids, y)}
    return Result.from_estimate(
        estimate, protocol="solve", recipe="", metric="top1", model=name, data="fashion_mnist", others=others, **about
    )


@cache
def read(name: str, zoo: Path) -> Features:
    """The features of all embedded images by one network."""
    how = {"cache": zoo / "cache", "device": "cpu"}
    if name in OWN and not (zoo / name).exists():
        sslkit.pretrain(method=name, data="fashion_mnist", epochs=OWN[name], out=zoo, name=name)
    word = str(zoo / name) if name in OWN else name
    return join_splits(*(evaluation.extract(word, "fashion_mnist", split, **how) for split in ("train", "test")))


def table(runs: dict[str, Any]) -> str:
    """Markdown: by labels and number of images, how often the interval holds the truth and a model is taken."""
    lines = [
        ["labels", "images given", "draws", "interval holds", "half width", "inner less truth", "taken", "right to"]
    ]
    for kind in ("labels", "coins"):
        for n in GIVEN:
            rows = [row for key, row in runs.items() if key.startswith(f"{kind} | {n} | ")]
            if not rows:
                continue
            holds = np.mean([row["interval"][0] <= row["truth"] <= row["interval"][1] for row in rows])
            half = np.mean([row["interval"][1] - row["interval"][0] for row in rows]) / 2
            over = np.mean([row["inner"] - row["truth"] for row in rows])
            taken = np.mean([bool(row["taken"]) for row in rows])
            better = np.mean([row["truth"] > row["pixels"] for row in rows])
            shares = [f"{100 * share:.0f} %" for share in (holds,)] + [f"{100 * half:.1f}", f"{100 * over:+.1f}"]
            lines.append([kind, f"{n:,}", str(len(rows)), *shares, f"{100 * taken:.0f} %", f"{100 * better:.0f} %"])
    return markdown(lines, range(1, 8))


if __name__ == "__main__":
    main()
