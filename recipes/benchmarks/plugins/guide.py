"""Does a prior help every objective? `+guide`, `+dsa` and their controls, by a plan that was fixed before the runs.

    python recipes/benchmarks/plugins/run.py guide --jobs 2 --data fashion letters     (skips finished runs)
    python recipes/benchmarks/plugins/run.py guide --jobs 2 --epochs 50
    python recipes/benchmarks/plugins/run.py guide --table                             (print and draw)

Data. fashion: embedded Fashion-MNIST, 8,000 training and 2,000 test images. letters: 500 of the 1,219 letters of the
embedded glyphs, drawn once from all scripts, 16 renders of each in training and 4 in test; the class is the letter.
Objectives: all, each with the settings that were tuned without a regulariser; guide has its defaults, which were chosen
on held-out training images of Fashion-MNIST (LOG.md; the plan in full, with its amendments, is in commit cfe343f).

Test. All training images, seeds 0, 1 and 2, which choosing did not use; test images are read once, at the end of a run.
6 epochs of every objective, VARIANTS; 50 epochs of LONG's objectives, its variants. Seed 0 is for all variants, seeds 1
and 2 for plain and guide; the table says how many there are. README.md describes the controls.

What decides. guide helps an objective if the mean gain in the probe (logistic regression with C = 1 on standardised
features, the quick probe of a run) over plain is at least 2 points and the 95 % t-interval over seeds is above 0, and
if it is 2 points above its random-network control. At 50 epochs it must be above both plain and the prior alone.
Intervals are over seeds only, and for one objective at a time. Transfer: probes of the networks trained on fashion on
letters, clip art and digits.
"""

import argparse
import csv
import os
import statistics
import tempfile
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # runs are parallel: of more threads each waits for the others

import cli
import numpy as np
import torch
from objectives.settings import BATCH, FIXED, best, config, judged, settings
from plugins.controls import objective_switched_off, write_data, write_shuffled
from plugins.plot import draw
from plugins.tables import tables
from results import commit, keep, load, path_of

import evaluation
import sslkit
from sslkit import objectives as family
from sslkit.numerics.accuracy import knn_accuracy, probe_accuracy
from sslkit.priors._targets import PriorTargets

RESULTS = "plugins/guide"
HOG = {"prior": "hog", "prior_size": 32}
ALONE = ("prior alone", "hog alone")  # the objective is switched off
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {  # plug-in, its options
    "plain": ("", {}),
    "plain, longer": ("", {}),
    "guide": ("guide", {}),
    "guide, random network": ("guide", {"prior": "plugins.controls:random_network"}),
    "guide, shuffled": ("guide", {"prior": "features:{shuffled}", "components": 50}),
    "dsa": ("dsa", {"balance": None}),
    "dsa, balance 1": ("dsa", {"balance": 1.0}),
    "prior alone": ("guide", {}),
    "guide, hog": ("guide", HOG),
    "hog alone": ("guide", HOG),
}
THREE_SEEDS = ("plain", "guide")
LONG = {
    "objectives": ("simclr", "byol", "mae", "barlow_twins"),
    "variants": ("plain", "guide", "prior alone", "guide, hog", "hog alone"),
}
EPOCHS = 6  # of the short runs
SPLITS = ("train", "test")
PRIORS = {"pca": None, "hog": 32}  # and the side of their input
OBJECTIVES = tuple(name for name in FIXED if name != "distill")


def main() -> None:
    args = arguments()
    if not args.table:
        for data in args.data:
            judge_priors(data)
        jobs = [job for job in wanted(args) if " | ".join(map(str, job)) not in load(RESULTS)["runs"]]
        with ProcessPoolExecutor(args.jobs, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for done in [pool.submit(one, *job) for job in jobs]:
                print(done.result(), flush=True)
    print(tables(load(RESULTS)))
    draw(load(RESULTS), path_of(RESULTS).with_suffix(".png"))


def arguments() -> argparse.Namespace:
    parser = cli.parser(__doc__, "seeds", "jobs", "table")
    parser.add_argument("--data", nargs="*", choices=["fashion", "letters"], default=["fashion"])
    parser.add_argument("--only", nargs="*", choices=OBJECTIVES, help="objectives")
    parser.add_argument("--variants", nargs="*", choices=VARIANTS)
    parser.add_argument("--epochs", nargs="*", type=int, default=[EPOCHS])
    return parser.parse_args()


def wanted(args: argparse.Namespace) -> list[tuple[str, str, str, int, int]]:
    """(data, objective, variant, epochs, seed) of each run."""
    return [
        (data, name, variant, epochs, seed)
        for data in args.data
        for epochs in args.epochs
        for seed in args.seeds
        for name in args.only or (LONG["objectives"] if epochs > EPOCHS else OBJECTIVES)
        for variant in args.variants or variants(epochs, seed)
    ]


def variants(epochs: int, seed: int) -> tuple[str, ...]:
    if epochs > EPOCHS:
        return LONG["variants"]
    return tuple(VARIANTS) if seed == 0 else THREE_SEEDS


def one(data: str, name: str, variant: str, epochs: int, seed: int) -> str:
    """Train and judge one variant of an objective."""
    plugin, options = VARIANTS[variant]
    run = " | ".join(map(str, (data, name, variant, epochs, seed)))
    with tempfile.TemporaryDirectory() as scratch, objective_switched_off(variant in ALONE):
        path = Path(scratch) / "images.npz"
        write_data(data, path)
        if variant == "guide, shuffled":
            write_shuffled(path.with_name("shuffled.npy"), path)
            options = {**options, "prior": options["prior"].format(shuffled=path.with_name("shuffled.npy"))}
        method = {"name": f"{name}+{plugin}", plugin: options} if plugin else {"name": name}
        how = {"lr": best(name)["lr"], "epochs": epochs + (variant == "plain, longer"), "seed": seed}
        how |= {"batch_size": BATCH.get(name, 128), "backbone": f"narrow_{family.find(name).families[0]}"}
        try:
            entry = sslkit.pretrain(config(method | settings(name), str(path), out=Path(scratch) / "zoo", **how))
        except sslkit.UserError as error:  # a loss that is not finite; the other runs go on
            return f"{run:<60} failed: {error}"
        card = entry.card
        found = judged(card, "probe", "knn", "inter", "intra") | {"before": round(card["before"]["probe"], 4)}
        found |= {"rankme": round(card["diagnostics"]["rankme"], 2), "seconds": card["seconds"]}
        found |= measured(entry.folder / "metrics.csv")
        if data == "fashion" and variant in THREE_SEEDS:
            found["transfer"] = transfer(entry, Path(scratch))
    keep(RESULTS, run, found | {"commit": (commit() or "")[:7], "date": date.today().isoformat()})
    return f"{run:<60} probe {100 * found['probe']:.1f}  10-NN {100 * found['knn']:.1f}"


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


def judge_priors(data: str) -> None:
    """Probe and 10-NN of the priors' own features of the clean images, whitened as guide regresses them."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "images.npz"
        write_data(data, path)
        parts = {split: sslkit.open_images(str(path), split=split) for split in SPLITS}
        for name, size in PRIORS.items():
            given = {"components": 128, "mode": "view", "precision": "float32", "owner": "guide"}
            targets = PriorTargets(name, size=size, **given)
            targets.prepare(parts["train"], cache=None)
            rows = [part.__getitems__(list(range(len(part)))) for part in parts.values()]
            pairs = [x for batch in rows for x in (targets.whitened(targets.prior(batch["images"])), batch["label"])]
            found = {"probe": probe_accuracy(*pairs), "knn": knn_accuracy(*pairs)}
            keep(RESULTS, f"{data} | {name}", {k: round(v, 4) for k, v in found.items()}, part="priors")


def transfer(entry: sslkit.ZooEntry, scratch: Path) -> dict[str, float]:
    """The same probe of a network on other embedded tasks."""
    write_data("letters", scratch / "letters.npz")
    found = {}
    for task in (str(scratch / "letters.npz"), "clipart", "digits"):
        train, test = (evaluation.extract(entry, task, split, cache=None, progress=False) for split in SPLITS)
        rows = (torch.as_tensor(np.asarray(part)) for part in (train.x, train.y, test.x, test.y))
        found[Path(task).stem] = round(probe_accuracy(*rows), 4)
    return found
