"""Does a prior help every objective? `+guide` and its controls, chosen on held-out training images.

python recipes/benchmarks/guide_study.py --choose --jobs 2     (on held-out training images)
"""

import argparse
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import torch
from guide_tried import shares
from objectives import BATCH, best, held_out, settings
from results import keep, load

import sslkit

RESULTS = "guide_study"
CHOOSING_SEED = 100

# Variants: the plug-in part of the method, its options, the rule of the shares.
CHOICES: dict[str, tuple[str, dict[str, Any], str | None]] = {
    "plain": ("", {}, None),
    "r=0.3": ("+guide", {"balance": 0.3}, None),
    "r=1": ("+guide", {"balance": 1.0}, None),
    "r=3": ("+guide", {"balance": 3.0}, None),
    "r=3 falling": ("+guide", {"balance": 3.0}, "falling"),
    "r=1 settled": ("+guide", {"balance": 1.0}, "settled"),
    "r=3 settled": ("+guide", {"balance": 3.0}, "settled"),
}


def main() -> None:
    args = arguments()
    jobs = []
    for epochs in args.epochs:
        for name in args.objectives:
            for variant in args.variants:
                key = f"{args.data} | {name} | {variant} | {epochs} | {CHOOSING_SEED}"
                if key not in load(RESULTS).get("choosing", {}):
                    jobs.append((args.data, name, variant, epochs))
    with ProcessPoolExecutor(args.jobs, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        for done in [pool.submit(choose, *job) for job in jobs]:
            print(done.result(), flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--choose", action="store_true")
    parser.add_argument("--data", default="fashion")
    parser.add_argument("--objectives", nargs="*", default=["simclr", "byol", "mae"])
    parser.add_argument("--variants", nargs="*", default=list(CHOICES))
    parser.add_argument("--epochs", nargs="*", type=int, default=[6])
    parser.add_argument("--jobs", type=int, default=1)
    return parser.parse_args()


def choose(data: str, name: str, variant: str, epochs: int) -> str:
    """Train one variant on four fifths of the training images, and judge it on the others."""
    plugin, options, rule = CHOICES[variant]
    with tempfile.TemporaryDirectory() as scratch, shares(rule):
        path = Path(scratch) / "held-out.npz"
        {"fashion": held_out, "glyphs": partial(glyphs, split=None)}[data](path)
        card = train(name, plugin, options, CHOOSING_SEED, epochs, str(path), Path(scratch))
    key = f"{data} | {name} | {variant} | {epochs} | {CHOOSING_SEED}"
    keep(RESULTS, key, numbers(card), part="choosing")
    return f"{key:<50} probe {100 * card['after']['probe']:.1f}  kNN {100 * card['after']['knn']:.1f}"


def numbers(card: dict[str, Any]) -> dict[str, Any]:
    found = {k: round(card["after"][k], 4) for k in ("probe", "knn", "inter", "intra")}
    return found | {"rankme": round(card["diagnostics"]["rankme"], 2), "seconds": card["seconds"]}


def train(name: str, plugin: str, options: dict, seed: int, epochs: int, data: str, scratch: Path) -> dict[str, Any]:
    """One run of `sslkit.pretrain`, as the card of its entry."""
    parts = {"guide": options} if options else {}
    config = {
        "method": {"name": name + plugin, **settings(name), **parts},
        "data": {"source": data, "batch_size": BATCH.get(name, 128)},
        "optimizer": {"lr": best(name)["lr"]},
        "epochs": epochs,
        "seed": seed,
        "out": str(scratch / "zoo"),
        "eval": {"every": 1000, "tsne": 0},
        "trainer": {"progress": False},
    }
    return sslkit.pretrain(config).card


RENDERS = 5  # of the 20 of each letter


def glyphs(path: Path, split: str | None) -> None:
    """Write five renders of each letter, with the script as the class."""
    parts = {}
    for part in ("train", "test"):
        images = sslkit.open_images("glyph_scripts", split=part)
        rows = np.flatnonzero(np.arange(len(images)) % 20 < RENDERS)
        parts[part] = images.__getitems__(rows.tolist())["images"].numpy(), images.labels[rows]
    if split is None:  # every fifth letter of each script
        x, y = parts["train"]
        letter = np.arange(len(y)) // RENDERS
        first = np.array([np.flatnonzero(y == script)[0] // RENDERS for script in y])
        held = (letter - first) % 5 == 4
        parts = {"train": (x[~held], y[~held]), "test": (x[held], y[held])}
    np.savez(path, **{f"{k}_{part}": v for part, xy in parts.items() for k, v in zip("xy", xy, strict=True)})


if __name__ == "__main__":
    main()
