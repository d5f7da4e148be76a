"""Every objective, plain and with a plug-in, on the embedded Fashion-MNIST: equal budget and tuning, three seeds.

    python recipes/benchmarks/objectives/run.py --tune --jobs 2   (on held-out training images)
    python recipes/benchmarks/objectives/run.py --jobs 2          (the table's runs; skips finished runs)
    python recipes/benchmarks/objectives/run.py --only dino --epochs 24   (effect of longer training)
    python recipes/benchmarks/objectives/run.py --experiments     (write the settings into recipes/conf/experiment)
    python recipes/benchmarks/objectives/run.py --table           (print the committed results)

Every run is `sslkit.pretrain`: 6 epochs of 62 steps x 128 images of 28 pixels (with masks and a decoder: 250 x 32),
AdamW, narrow_resnet, or narrow_vit for those whose first family is ViTs; evaluated by the linear probe, 10 nearest
neighbours and crowding on the 2,000 test images.

Tuning trains every combination in TRIED of an objective, without DSA, on 6,400 of the 8,000 training images for 3
epochs, seed 100, and evaluates it by the probe on the other 1,600; test images are not used. The table's runs use the
best combination, both plain and with DSA; DSA has the paper's weights (balance null).
"""

import argparse
import itertools
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import cli
import numpy as np
from objectives.experiments import write_experiments
from objectives.settings import (
    BATCH,
    EPOCHS,
    FIXED,
    LR,
    RESULTS,
    TRIED,
    as_in_training,
    best,
    config,
    judged,
    opened,
    settings,
    views,
)
from objectives.tables import passes_table, table
from results import keep, keep_constant, load

import sslkit
from sslkit.training.build import NARROW
from sslkit.training.data import held_out_rows

TUNING_EPOCHS, TUNING_SEED = 3, 100
PASSED, PASSED_EPOCHS = ("corinfomax", "mec", "ssl_hsic"), 2  # whose authors give batch norms one view at a time
PASSES = "one view a pass"


def main() -> None:
    args = arguments()
    if args.experiments:
        write_experiments()
    elif args.passes:
        as_in_training(args.threads)
        for job in passes(args.only or PASSED, args.seeds):
            print(in_passes(*job), flush=True)
        return print(passes_table(load(RESULTS)[PASSES]))
    elif not args.table:
        names = args.only or sorted(FIXED)
        missing = set(sslkit.methods()) - set(FIXED)
        assert not missing, f"no settings for {missing}"
        jobs = tuning(names) if args.tune else runs(names, args.seeds, args.epochs, args.plugins)
        with ProcessPoolExecutor(args.jobs, initializer=as_in_training, initargs=(args.threads,)) as pool:
            for done in [pool.submit(tune if args.tune else one, *job) for job in jobs]:
                print(done.result(), flush=True)
        if args.tune:
            keep_constant("sslkit.training.build:NARROW_RATE", usual_rate(), RESULTS)
    print(table(load(RESULTS), list(FIXED)))


def arguments() -> argparse.Namespace:
    parser = cli.parser(__doc__, "seeds", "jobs", "threads", "table")
    parser.add_argument("--only", nargs="*", choices=sorted(FIXED), help="objectives; default all")
    plugins = ["none", "dsa", "guide"]
    parser.add_argument("--plugins", nargs="*", choices=plugins, default=plugins[:2], help="regularisers of the runs")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="if not the table's: stored separately, plain only")
    parser.add_argument("--tune", action="store_true", help="learning rates, temperatures")
    parser.add_argument("--passes", action="store_true", help="one pass a view against one for all; 2 epochs, plain")
    parser.add_argument("--experiments", action="store_true", help="write recipes/conf/experiment")
    return parser.parse_args()


def tuning(names: list[str]) -> list[tuple]:
    """Every combination without a result."""
    done = load(RESULTS).get("tuning", {})
    jobs = []
    for name in names:
        (option, values) = next(iter(TRIED.get(name, {"": [None]}).items()))
        for lr, value in itertools.product(LR, values):
            options = {option: value} if option else {}
            if tuning_key(name, lr, options) not in done:
                jobs.append((name, lr, options))
    return jobs


def tuning_key(name: str, lr: float, options: dict) -> str:
    return " | ".join([name, f"lr {lr:g}", *(f"{k} {v:g}" for k, v in options.items())])


def tune(name: str, lr: float, options: dict[str, Any]) -> str:
    """Train one combination and evaluate it on held-out training images."""
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) / "held-out.npz"
        held_out(data)
        card = train(name, lr, {**FIXED[name], **options}, TUNING_SEED, Path(scratch), str(data), TUNING_EPOCHS)
    key, numbers = tuning_key(name, lr, options), judged(card, "probe", "knn")
    keep(RESULTS, key, numbers | {"lr": lr, "options": options}, part="tuning")
    return f"{key:<50} probe {100 * numbers['probe']:.1f}"


def held_out(path: Path) -> None:
    """Write the training images to a file, with a fifth of every class held out."""
    pixels, labels = opened("fashion_mnist", "train")
    parts = dict(zip(("train", "test"), held_out_rows(labels), strict=True))
    arrays = {f"x_{k}": pixels[rows] for k, rows in parts.items()}
    np.savez(path, **arrays, **{f"y_{k}": labels[rows] for k, rows in parts.items()})


def usual_rate() -> float:
    """The learning rate that is the best one for most objectives on the narrow ResNet."""
    done = load(RESULTS)["runs"]
    on_it = {key.split(" | ")[0].partition("+")[0] for key, row in done.items() if row.get("backbone") == NARROW}
    rates = [best(name)["lr"] for name in sorted(on_it)]
    return max(sorted(set(rates)), key=rates.count)


def runs(names: list[str], seeds: list[int], epochs: int, plugins: list[str]) -> list[tuple]:
    """Every run without a result, seed by seed."""
    done = load(RESULTS).get(part_of(epochs), {})
    added = ["" if name == "none" else f"+{name}" for name in plugins]
    wanted = itertools.product(seeds, names, added if epochs == EPOCHS else ("",))
    return [(name, plugin, seed, epochs) for seed, name, plugin in wanted if f"{name}{plugin} | {seed}" not in done]


def passes(names: Sequence[str], seeds: list[int]) -> list[tuple]:
    """Every run with and without `view_by_view` that has no result, seed by seed."""
    done = load(RESULTS).get(PASSES, {})
    wanted = itertools.product(seeds, names, (True, False))
    return [(name, apart, seed) for seed, name, apart in wanted if passes_key(name, apart, seed) not in done]


def passes_key(name: str, apart: bool, seed: int) -> str:
    return f"{name} | {'each view' if apart else 'all views'} | {seed}"


def in_passes(name: str, apart: bool, seed: int) -> str:
    """Train and evaluate an objective whose batch norms see each view alone, or all."""
    options = settings(name)["objective"] | {"view_by_view": apart}
    with tempfile.TemporaryDirectory() as scratch:
        card = train(name, best(name)["lr"], options, seed, Path(scratch), "fashion_mnist", PASSED_EPOCHS)
    numbers = judged(card, "probe", "knn") | {"rankme": round(card["diagnostics"]["rankme"], 2)}
    keep(RESULTS, passes_key(name, apart, seed), numbers, part=PASSES)
    return f"{passes_key(name, apart, seed):<30} probe {100 * numbers['probe']:.1f}"


def part_of(epochs: int) -> str:
    """Key of the results file for runs of this length."""
    return "runs" if epochs == EPOCHS else f"runs of {epochs} epochs"


def one(name: str, plugin: str, seed: int, epochs: int) -> str:
    """Train and evaluate one method."""
    with tempfile.TemporaryDirectory() as scratch:
        options = settings(name)["objective"]
        card = train(name + plugin, best(name)["lr"], options, seed, Path(scratch), "fashion_mnist", epochs)
    numbers = judged(card, "probe", "knn", "inter", "intra")
    numbers |= {"rankme": round(card["diagnostics"]["rankme"], 2), "seconds": card["seconds"]}
    numbers |= {"backbone": card["backbone"]["name"]}
    numbers["random"] = {k: round(card["before"][k], 4) for k in ("probe", "knn", "inter", "intra")}
    keep(RESULTS, f"{name}{plugin} | {seed}", numbers, part=part_of(epochs))
    return f"{name + plugin:<20} seed {seed}  probe {100 * numbers['probe']:.1f}  kNN {100 * numbers['knn']:.1f}"


def train(method: str, lr: float, options: dict, seed: int, scratch: Path, data: str, epochs: int) -> dict[str, Any]:
    """Train one run and return its card."""
    name = method.partition("+")[0]
    how = {"lr": lr, "epochs": epochs, "seed": seed, "out": scratch / "zoo", "batch_size": BATCH.get(name, 128)}
    asked = {"name": method, "objective": options, "views": views(name)}
    if method.endswith("+dsa"):
        asked["dsa"] = {"balance": None}  # the paper's weights
    return sslkit.pretrain(config(asked, data, **how)).card


if __name__ == "__main__":
    main()
