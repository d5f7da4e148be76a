"""How time and memory grow with the number of images and classes, towards the 1.28 million of ImageNet.

    python recipes/benchmarks/growth/run.py                          (an hour; skips nothing)
    python recipes/benchmarks/growth/run.py --only lead itm
    python recipes/benchmarks/growth/run.py --table                  (print the committed results)

Each row is measured in a process of its own, of two threads: CPU seconds, seconds, and the peak of the resident memory
beyond that before the computation. Features: 512 numbers, float32, of 100 classes in 64 latent dimensions, with noise,
a random layer with ReLU. The last column extrapolates the CPU seconds of the two largest sizes by the power of N
between them.

connectivity: DSA's scores, eta = 20, exact, and by the approximate search that is used above 100,000 images. Features:
    HOG of SimCLR's views (28 pixels) of the embedded Fashion-MNIST, glyphs and clip art, in 512 random directions,
    memory-mapped from disk.
lead, itm: the metrics with their defaults; itm on 10,000 images of 10 to 1,000 classes.
linear_probe: 45 strengths coarse to fine, and the fit to all rows, judged on 2,000. (The rows of scikit-learn, on the
    same strengths, are from a script that is in LOG.md.)
knn: 2,000 queries (50,000 for 1.28 million), k = 20.
"""

import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import cli
import numpy as np
from results import keep, load

from sslkit.cli.process import keep_freed_memory

from evaluation.ranking.memory import return_freed_memory

RESULTS, THREADS, WIDTH, CLASSES, IMAGENET = "growth/growth", 2, 512, 100, 1_281_167
ROWS = (10_000, 20_000, 40_000, 80_000)
SIZES: dict[str, tuple[int, ...]] = {
    "connectivity, exact": ROWS[:3],
    "connectivity, approximate": (*ROWS, 160_000),
    "lead": ROWS,
    "itm": (10, 100, 300, 1000),  # classes
    "linear_probe": (*ROWS[:2], 100_000),
    "knn": ROWS,
}
NOTES = {"recall": "recall {:.2f}", "tried": "{} strengths", "worse": "objective +{:.0e}"}


def main() -> None:
    parser = cli.parser(__doc__, "table")
    parser.add_argument("--only", nargs="*", choices=SIZES)
    parser.add_argument("--sizes", nargs="*", type=int, help="rows (classes for itm)")
    parser.add_argument("--run", nargs=2, metavar=("NAME", "SIZE"), help="one row, in this process")
    args = parser.parse_args()
    if args.run:
        print(json.dumps(measure(args.run[0], int(args.run[1]))))
        return
    if not args.table:
        for name in args.only or SIZES:
            for size in args.sizes or SIZES[name]:
                command = [sys.executable, __file__, "--run", name, str(size)]
                out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
                found = json.loads(out.splitlines()[-1])
                keep(RESULTS, f"{name} | {size}", found)
                print(f"{name} | {size}", found, flush=True)
    print(table(load(RESULTS)["runs"]))


def measure(name: str, size: int) -> dict[str, Any]:
    """One row. The same with at most 500 images comes first, so that libraries are loaded."""
    import faiss
    import torch

    keep_freed_memory()
    torch.set_num_threads(THREADS)
    faiss.omp_set_num_threads(THREADS)
    with tempfile.TemporaryDirectory() as folder:
        work = RUN[name.partition(",")[0]]
        work(name, min(size, 500), Path(folder))()
        once = work(name, size, Path(folder))
        return_freed_memory()
        before = resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        cpu, wall = time.process_time(), time.perf_counter()
        found = once()
        spent = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
        numbers = {**spent, "MB": resident("VmHWM") - before, **found}
        return {key: float(f"{value:.4g}") if isinstance(value, float) else value for key, value in numbers.items()}


def cloud(n: int, classes: int = CLASSES, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features (n, 512) float32 and labels; the classes and the random layer are the same for every seed."""
    fixed, rng = np.random.default_rng(0), np.random.default_rng([1, seed])
    centres, layer = 0.5 * fixed.normal(size=(classes, 64)), fixed.normal(size=(64, WIDTH)) / 8
    x, y = np.empty((n, WIDTH), np.float32), np.arange(n) % classes
    for start in range(0, n, 10_000):
        rows = slice(start, min(start + 10_000, n))
        latent = centres[y[rows]] + rng.normal(size=(len(y[rows]), 64))
        x[rows] = np.maximum(latent @ layer + 0.5 * rng.normal(size=(len(latent), WIDTH)), 0)
    return x, y


def hog_of_views(n: int) -> np.ndarray:
    """(n, WIDTH) float32. Each image comes once before any comes again, in another view."""
    import torch

    import sslkit
    from sslkit.data.views.augmentation import augment
    from sslkit.data.views.recipe import View, ViewRecipe
    from sslkit.priors.hog import HogPrior

    sets = [torch.from_numpy(sslkit.open_images(name).pixels) for name in ("fashion_mnist", "glyphs", "clipart")]
    rng, draws, hog = np.random.default_rng(0), torch.Generator().manual_seed(0), HogPrior("hog", size=32)
    found: list[np.ndarray] = []
    while sum(map(len, found)) < n:
        for batch in [batch for images in sets for batch in images.split(2000)]:
            (view,) = augment(batch, ViewRecipe(views=(View(),)), 28, draws)
            found.append(hog(view).numpy())
            if len(found) == 1:
                layer = rng.normal(size=(found[0].shape[1], WIDTH)).astype(np.float32)
            found[-1] = found[-1] @ layer
    x = np.concatenate(found)
    return x[rng.permutation(len(x))[:n]] - x.mean(0)


def connectivity(name: str, n: int, folder: Path) -> Callable[[], dict[str, Any]]:
    from sslkit.regularizers.dsa import approximate, scoring

    np.save(folder / "x.npy", hog_of_views(n))
    x = np.load(folder / "x.npy", mmap_mode="r")
    scoring.EXACT = n if name.endswith("exact") else n - 1
    found: dict[str, Any] = {}
    search = approximate.approximate_neighbours

    def remembered(rows: np.ndarray, k: int) -> tuple[np.ndarray, float]:
        ids, found["recall"] = search(rows, k)
        return ids, found["recall"]

    scoring.approximate_neighbours = remembered
    return lambda: {"mean": float(scoring.connectivity_score(x, eta=20).mean()), **found}


def metric(name: str, size: int, folder: Path) -> Callable[[], dict[str, Any]]:
    import evaluation

    x, y = cloud(10_000, size) if name == "itm" else cloud(size)
    return lambda: {"score": evaluation.score(name, x, y)}


def linear_probe(name: str, n: int, folder: Path) -> Callable[[], dict[str, Any]]:
    import evaluation

    train, test = cloud(n), cloud(2000, seed=1)

    def once() -> dict[str, Any]:
        found = evaluation.linear_probe(train, test, progress=False)
        return {"c": found.details["c"], "tried": len(found.details["tried"]), "top1": found.value}

    return once


def knn(name: str, n: int, folder: Path) -> Callable[[], dict[str, Any]]:
    import evaluation

    np.save(folder / "x.npy", cloud(n)[0])
    train = evaluation.features.as_features((np.load(folder / "x.npy", mmap_mode="r"), np.arange(n) % CLASSES))
    test = evaluation.features.as_features(cloud(2000 if n < 10**6 else 50_000, seed=1))
    return lambda: {"top1": evaluation.knn(train, test, 20, ks=(20,)).value}


RUN: dict[str, Callable[[str, int, Path], Callable[[], dict[str, Any]]]] = {
    "connectivity": connectivity,
    "lead": metric,
    "itm": metric,
    "linear_probe": linear_probe,
    "knn": knn,
}


def resident(field: str) -> int:
    """VmRSS or VmHWM of this process, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) // 1024


def table(runs: dict[str, Any]) -> str:
    lines = ["| | size | CPU s | s | MB | | power | at ImageNet's size |", "|---|--:|--:|--:|--:|---|--:|--:|"]
    for name in dict.fromkeys([*SIZES, *(key.rpartition(" | ")[0] for key in runs)]):
        rows = sorted((int(key.rpartition(" | ")[2]), row) for key, row in runs.items() if key.startswith(f"{name} | "))
        for (size, row), (less, before) in zip(rows, [(0, None), *rows], strict=False):
            power = math.log(row["cpu"] / before["cpu"]) / math.log(size / less) if before else None
            grown = row["cpu"] * (IMAGENET / size) ** power if power and size == rows[-1][0] and name != "itm" else None
            others = ", ".join(shown.format(row[key]) for key, shown in NOTES.items() if key in row)
            cells = [f"{size:,}", f"{row['cpu']:.3g}", f"{row['wall']:.3g}", f"{row['MB']:,}", others]
            cells += ["" if power is None else f"{power:.2f}", "" if grown is None else f"{grown / 60:,.0f} min"]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
