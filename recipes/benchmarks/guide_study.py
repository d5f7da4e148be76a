"""Does a prior help every objective? `+guide`, `+dsa` and their controls, by a plan that was fixed before the runs.

    python recipes/benchmarks/guide_study.py --choose --jobs 2     (on held-out training images)
    python recipes/benchmarks/guide_study.py --jobs 2              (on test images; skips finished runs)
    python recipes/benchmarks/guide_study.py --table               (print the committed results)

Data. fashion: embedded Fashion-MNIST, 8,000 training images. glyphs: five renders of each letter of the embedded
glyphs, 8,245 training images; the class is the script, and no letter of the test images is in training.
Objectives: all, each with the settings that objectives.py tuned without a regulariser; guide has its defaults.

Choosing (--choose). A fifth of the training images, of glyphs every fifth letter, is held out. CHOICES are trained on
the rest, seed 100, for 6 and 25 epochs, and judged on the held-out images by quick probe and 10-NN. Test images are not
read. What is kept is the choice with the highest mean gain of the probe over plain, over SimCLR, BYOL and MAE and both
lengths; a rule with a schedule must beat the best constant balance by 0.5 points. It becomes guide's default.

Test. All training images, seeds 0, 1 and 2, which choosing did not use; test images are read once, at the end of a run.
6 epochs of every objective, VARIANTS; 50 epochs of LONG's objectives, its variants. Every gain stands next to
- plain, 7: a seventh epoch without a regulariser, more than the regulariser's time;
- prior alone: method=distill, with the backbone and batch of SimCLR (for all ResNets) and of MAE (for all ViTs);
- guide, random network: the prior is a network of random weights;
- guide, shuffled: targets are those of another image of the batch;
- dsa, and dsa, balance 1: as in the paper, and with a gradient as large as the objective's.
The first three seeds are for plain and guide; controls have seed 0, and more where time allows: the table says so.

What decides. guide helps an objective if the mean gain in the quick probe over plain is at least 2 points and the 95 %
t-interval over seeds is above 0, and if it is 2 points above its random-network control. At 50 epochs it must be above
both plain and the prior alone. Transfer: probes of the networks trained on fashion on glyphs, clip art and digits.
"""

import argparse
import csv
import os
import statistics
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from guide_tables import ALONE, choosing_table, table
from guide_tried import rule, write_data
from objectives import BATCH, FIXED, VIEWS, best, settings
from results import keep, load

import evaluation
import sslkit
from sslkit import objectives as family

RESULTS = "guide_study"
CHOOSING_SEED = 100

Variant = tuple[str, dict[str, Any], str | None]  # plug-in, its options, the rule of the shares
CHOICES: dict[str, Variant] = {
    "plain": ("", {}, None),
    "r=0.3": ("guide", {"balance": 0.3, "balance_until": 1.0}, None),
    "r=1": ("guide", {"balance": 1.0, "balance_until": 1.0}, None),
    "r=3": ("guide", {"balance": 3.0, "balance_until": 1.0}, None),
    "r=3 falling": ("guide", {"balance": 3.0, "balance_until": 1.0}, "falling"),
    "r=3 fading": ("guide", {"balance": 3.0, "balance_until": 1.0}, "fading"),
    "r=1 settled": ("guide", {"balance": 1.0, "balance_until": 0.1}, None),
    "r=3 settled": ("guide", {"balance": 3.0, "balance_until": 0.1}, None),
    "earlier layer": ("guide_forms:Earlier", {"balance": None}, None),
    "r=3 settled, own features": ("guide_forms:Own", {"balance": 3.0, "balance_until": 0.1}, None),
    "r=3 settled, neighbours": ("guide_forms:Neighbours", {"balance": 3.0, "balance_until": 0.1}, None),
    "r=3 settled, hog": (
        "guide",
        {"balance": 3.0, "balance_until": 0.1, "prior": "hog", "prior_size": 32},
        None,
    ),
    "r=10 settled": ("guide", {"balance": 10.0, "balance_until": 0.1}, None),
}
VARIANTS: dict[str, Variant] = {
    "plain": ("", {}, None),
    "plain, 7": ("", {}, None),
    "guide": ("guide", {}, None),
    "guide, random network": ("guide", {"prior": "guide_tried:random_network"}, None),
    "guide, shuffled": ("guide", {"prior": "guide_tried:shuffled_pixels", "components": 50}, None),
    "dsa": ("dsa", {}, None),
    "dsa, balance 1": ("dsa", {"balance": 1.0}, None),
    "prior alone": ("", {}, None),
}
THREE_SEEDS = ("plain", "guide")
LONG = {"objectives": ("simclr", "byol", "mae", "barlow_twins"), "variants": ("plain", "guide", "prior alone")}
EPOCHS, LONG_EPOCHS = 6, 50
TRANSFER = ("glyph_scripts", "clipart", "digits")


def main() -> None:
    args = arguments()
    if not args.table:
        jobs = [job for job in wanted(args) if key(*job) not in load(RESULTS).get(part_of(args), {})]
        with ProcessPoolExecutor(args.jobs, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for done in [pool.submit(one, part_of(args), *job) for job in jobs]:
                print(done.result(), flush=True)
    print((choosing_table if args.choose else table)(load(RESULTS)))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--choose", action="store_true", help="train on a part, judge on the held-out part")
    parser.add_argument("--data", nargs="*", choices=["fashion", "glyphs"], default=["fashion"])
    parser.add_argument("--only", nargs="*", choices=[n for n in FIXED if n != "distill"], help="objectives")
    parser.add_argument("--variants", nargs="*", choices=[*CHOICES, *VARIANTS])
    parser.add_argument("--epochs", nargs="*", type=int, default=[EPOCHS])
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=1, help="number of parallel runs, of one thread each")
    parser.add_argument("--table", action="store_true", help="print the results and exit")
    return parser.parse_args()


def part_of(args: argparse.Namespace) -> str:
    return "choosing" if args.choose else "runs"


def wanted(args: argparse.Namespace) -> list[tuple[str, str, str, int, int]]:
    """(data, objective, variant, epochs, seed) of each run."""
    jobs = []
    for data in args.data:
        for epochs in args.epochs:
            for seed in [CHOOSING_SEED] if args.choose else args.seeds:
                for name in args.only or objectives(args.choose, epochs):
                    for variant in args.variants or variants(args.choose, epochs, seed):
                        if variant != "prior alone" or name in ALONE.values():
                            jobs.append((data, name, variant, epochs, seed))
    return jobs


def objectives(choose: bool, epochs: int) -> tuple[str, ...]:
    if choose:
        return ("simclr", "byol", "mae")
    return LONG["objectives"] if epochs > EPOCHS else tuple(name for name in FIXED if name != "distill")


def variants(choose: bool, epochs: int, seed: int) -> tuple[str, ...]:
    if choose:
        return tuple(CHOICES)
    if epochs > EPOCHS:
        return LONG["variants"]
    return tuple(VARIANTS) if seed == 0 else THREE_SEEDS


def key(data: str, name: str, variant: str, epochs: int, seed: int) -> str:
    return f"{data} | {name} | {variant} | {epochs} | {seed}"


def one(part: str, data: str, name: str, variant: str, epochs: int, seed: int) -> str:
    """Train and judge one variant of an objective."""
    plugin, options, shares = (CHOICES if part == "choosing" else VARIANTS)[variant]
    with tempfile.TemporaryDirectory() as scratch, rule(shares):
        path = Path(scratch) / "images.npz"
        write_data(data, path, choosing=part == "choosing")
        method = method_of(name, plugin, options, alone=variant == "prior alone")
        config = {
            "method": method,
            "data": {"source": str(path), "batch_size": BATCH.get(name, 128)},
            "backbone": f"narrow_{family.find(name).families[0]}",
            "optimizer": {"lr": best(method["name"].partition("+")[0])["lr"]},
            "epochs": 7 if variant == "plain, 7" else epochs,
            "seed": seed,
            "out": str(Path(scratch) / "zoo"),
            "eval": {"every": 1000, "tsne": 0},
            "trainer": {"progress": False},
        }
        entry = sslkit.pretrain(config)
        found = numbers(entry.card) | measured(entry.folder / "metrics.csv")
        if part == "runs" and data == "fashion" and variant in THREE_SEEDS:
            found["transfer"] = {task: probe(entry, task) for task in TRANSFER}
    run = key(data, name, variant, epochs, seed)
    keep(RESULTS, run, found, part=part)
    return f"{run:<60} probe {100 * found['probe']:.1f}  10-NN {100 * found['knn']:.1f}"


def method_of(name: str, plugin: str, options: dict[str, Any], *, alone: bool) -> dict[str, Any]:
    """The `method` of a config. alone: distill, whatever the objective is."""
    own = settings(name)
    if alone:
        return {"name": "distill", "views": VIEWS}
    part = plugin.rpartition(":")[2]
    return {"name": f"{name}+{plugin}" if plugin else name, **own, **({part: options} if plugin else {})}


def numbers(card: dict[str, Any]) -> dict[str, Any]:
    found = {k: round(card["after"][k], 4) for k in ("probe", "knn", "inter", "intra")}
    found["before"] = round(card["before"]["probe"], 4)
    return found | {"rankme": round(card["diagnostics"]["rankme"], 2), "seconds": card["seconds"]}


def measured(metrics: Path) -> dict[str, float]:
    """The median share of each regulariser, without the first tenth of the run: {"dsa/share": ...}."""
    rows = list(csv.DictReader(metrics.read_text().splitlines()))
    late = [row for row in rows if int(row["step"]) > 0.1 * int(rows[-1]["step"])]
    found: dict[str, list[float]] = {}
    for row in late:
        for column, value in row.items():
            if column.endswith("/share") and value:
                found.setdefault(column, []).append(float(value))
    return {column: float(f"{statistics.median(values):.3g}") for column, values in found.items()}


def probe(entry: sslkit.ZooEntry, task: str) -> float:
    """Linear probe of a network on another embedded task."""
    train, test = (evaluation.extract(entry, task, split, cache=None, progress=False) for split in ("train", "test"))
    return round(evaluation.linear_probe(train, test, progress=False).value, 4)


if __name__ == "__main__":
    main()
