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
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import cli
import fingerprints
import numpy as np
from keys import key_now
from objectives.experiments import write_experiments
from objectives.settings import (
    BATCH,
    EPOCHS,
    FIXED,
    LR,
    RESULTS,
    TRIED,
    UNTUNED,
    as_in_training,
    best,
    config,
    open_arrays,
    round_numbers,
    settings,
    views,
)
from objectives.tables import parts_of, table
from results import commit, keep_constant, load, measure

import sslkit
from evaluation.studies.cells import Cell
from sslkit.training.build import NARROW
from sslkit.training.data import held_out_rows

TUNING_EPOCHS, TUNING_SEED = 3, 100


def main() -> None:
    args = arguments()
    if args.experiments:
        write_experiments()
    elif not args.table:
        names = args.only or sorted(FIXED)
        missing = set(sslkit.methods()) - {*FIXED, *UNTUNED}
        assert not missing, f"no settings for {missing}"
        if args.tune:
            cells, section = tuning(names), "tuning"
        else:
            cells, section = runs(names, args.seeds, args.epochs, args.plugins), part_of(args.epochs)
        if not args.tune:
            fingerprints.update(sorted({name for run in cells for name in parts_of(run)}), (commit() or "")[:8])
        measure(RESULTS, cells, args.jobs, section, begin=partial(as_in_training, args.threads))
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
    parser.add_argument("--experiments", action="store_true", help="write recipes/conf/experiment")
    return parser.parse_args()


def tuning(names: list[str]) -> dict[str, Cell]:
    """Every combination of a learning rate and the objective's own option."""
    cells = {}
    for name in names:
        (option, values) = next(iter(TRIED.get(name, {"": [None]}).items()))
        for lr, value in itertools.product(LR, values):
            options = {option: value} if option else {}
            key = " | ".join([name, f"lr {lr:g}", *(f"{k} {v:g}" for k, v in options.items())])
            cells[key] = partial(tune, name, lr, options)
    return cells


def tune(name: str, lr: float, options: dict[str, Any]) -> dict[str, Any]:
    """Train one combination and evaluate it on held-out training images."""
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) / "held-out.npz"
        held_out(data)
        card = train(name, lr, {**FIXED[name], **options}, TUNING_SEED, Path(scratch), str(data), TUNING_EPOCHS)
    return round_numbers(card, "probe", "knn") | {"lr": lr, "options": options}


def held_out(path: Path) -> None:
    """Write the training images to a file, with a fifth of every class held out."""
    pixels, labels = open_arrays("fashion_mnist", "train")
    parts = dict(zip(("train", "test"), held_out_rows(labels), strict=True))
    arrays = {f"x_{k}": pixels[rows] for k, rows in parts.items()}
    np.savez(path, **arrays, **{f"y_{k}": labels[rows] for k, rows in parts.items()})


def usual_rate() -> float:
    """The learning rate that is the best one for most objectives on the narrow ResNet."""
    done = load(RESULTS)["runs"]
    on_it = {key.split(" | ")[0].partition("+")[0] for key, row in done.items() if row.get("backbone") == NARROW}
    rates = [best(name)["lr"] for name in sorted(on_it)]
    return max(sorted(set(rates)), key=rates.count)


def runs(names: list[str], seeds: list[int], epochs: int, plugins: list[str]) -> dict[str, Cell]:
    """Every run, seed by seed."""
    added = ["" if name == "none" else f"+{name}" for name in plugins]
    wanted = itertools.product(seeds, names, added if epochs == EPOCHS else ("",))
    return {f"{name}{plugin} | {seed}": partial(one, name, plugin, seed, epochs) for seed, name, plugin in wanted}


def part_of(epochs: int) -> str:
    """Key of the results file for runs of this length."""
    return "runs" if epochs == EPOCHS else f"runs of {epochs} epochs"


def one(name: str, plugin: str, seed: int, epochs: int) -> dict[str, Any]:
    """Train and evaluate one method."""
    with tempfile.TemporaryDirectory() as scratch:
        options, lr = settings(name)["objective"], best(name)["lr"]
        card = train(name + plugin, lr, options, seed, Path(scratch), "fashion_mnist", epochs)
    numbers = round_numbers(card, "probe", "knn", "inter", "intra")
    numbers |= {"rankme": round(card["diagnostics"]["rankme"], 2), "seconds": card["seconds"]}
    numbers |= {"backbone": card["backbone"]["name"]}
    numbers |= {"key": key_now(parts_of(f"{name}{plugin} | {seed}"))}
    return numbers | {"random": {k: round(card["before"][k], 4) for k in ("probe", "knn", "inter", "intra")}}


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
