"""Every objective, plain and with DSA, on the embedded Fashion-MNIST: equal budget and tuning, three seeds.

    python recipes/benchmarks/objectives.py --tune --jobs 2   (on held-out training images)
    python recipes/benchmarks/objectives.py --jobs 2          (the table's runs; skips finished runs)
    python recipes/benchmarks/objectives.py --only dino --epochs 24   (effect of longer training)
    python recipes/benchmarks/objectives.py --profile         (seconds per step, and the backbone's share)
    python recipes/benchmarks/objectives.py --table           (print the committed results)

Every run is `sslkit.pretrain`: 6 epochs of 62 steps x 128 images of 28 pixels (with masks and a decoder: 250 x 32),
AdamW, narrow_resnet, or narrow_vit for those whose first family is ViTs; evaluated by the linear probe, 10 nearest
neighbours and crowding on the 2,000 test images.

Tuning trains every combination in TRIED of an objective, without DSA, on 6,400 of the 8,000 training images for 3
epochs, seed 100, and evaluates it by the probe on the other 1,600; test images are not used. The table's runs use the
best combination, both plain and with DSA; DSA keeps its defaults.
"""

import argparse
import itertools
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from objectives_table import table
from results import keep, load
from step_profile import profile

import sslkit
from sslkit.runtime.allocator import keep_freed_memory

RESULTS = "objectives"
LR = [1e-3, 3e-3, 9e-3]
EPOCHS, TUNING_EPOCHS, TUNING_SEED = 6, 3, 100

# Sizes for a network of 128 or 96 features and 372 steps: heads, queues and prototypes are smaller and teachers faster
# than published. They were set once and not tuned.
FIXED: dict[str, dict[str, Any]] = {
    "barlow_twins": {"hidden": 256, "dim": 256},
    "byol": {"momentum": 0.98, "hidden": 256, "dim": 64},
    "data2vec": {"masks": 4, "momentum": 0.98, "final_momentum": 0.999},
    "densecl": {"queue_size": 2048, "momentum": 0.98, "dim": 64},
    "dino": {"hidden": 256, "prototypes": 1024, "momentum": 0.98, "batch_norm": True, "center_momentum": 0.5},
    "dinov2": {
        "hidden": 256,
        "prototypes": 1024,
        "momentum": 0.98,
        "warmup_epochs": 0,
        "teacher_temperature": 0.04,
    },
    "distill": {},
    "ibot": {
        "hidden": 256,
        "prototypes": 1024,
        "momentum": 0.98,
        "batch_norm": True,
        "warmup_epochs": 0,
        "teacher_temperature": 0.04,
        "center_momentum": 0.5,
    },
    "ijepa": {"momentum": 0.98},
    "lejepa": {"hidden": 256, "dim": 32, "slices": 256},
    "mae": {},
    "moco": {"queue_size": 2048, "momentum": 0.98, "dim": 64},
    "moco_v3": {"momentum": 0.98, "hidden": 256, "dim": 64},
    "msn": {"hidden": 256, "dim": 64, "prototypes": 128, "momentum": 0.98},
    "nnclr": {"queue_size": 2048, "hidden": 256, "dim": 64},
    "ressl": {"queue_size": 2048, "momentum": 0.98, "hidden": 256, "dim": 64},
    "simclr": {"hidden": 256, "dim": 64},
    "simsiam": {"hidden": 256, "dim": 256},
    "supervised": {},
    "swav": {"hidden": 256, "dim": 64, "prototypes": 128, "queue_size": 1024, "queue_start": 1},
    "u_mae": {},
    "vicreg": {"hidden": 256, "dim": 256},
    "vicregl": {"hidden": 256, "dim": 256},
    "w_mse": {"dim": 16, "whitening_size": 128},
}

# Grid of each objective's own option; every value is combined with every learning rate of LR.
TRIED: dict[str, dict[str, list[Any]]] = {
    "barlow_twins": {"redundancy": [0.005, 0.02]},
    "data2vec": {"mask_ratio": [0.6, 0.8]},
    "densecl": {"temperature": [0.1, 0.2]},
    "dino": {"teacher_temperature": [0.04, 0.07]},
    "lejepa": {"weight": [0.02, 0.1]},
    "mae": {"mask_ratio": [0.5, 0.75]},
    "moco": {"temperature": [0.1, 0.2]},
    "moco_v3": {"temperature": [0.2, 0.5]},
    "nnclr": {"temperature": [0.1, 0.2]},
    "ressl": {"temperature": [0.1, 0.2]},
    "simclr": {"temperature": [0.2, 0.5]},
    "swav": {"temperature": [0.1, 0.2]},
    "u_mae": {"uniformity": [0.01, 0.1]},
    "vicregl": {"alpha": [0.75, 0.9]},
}
# default 128; learning from masks needs more than 372 steps on the same images
BATCH = {"data2vec": 32, "ijepa": 32, "mae": 32, "u_mae": 32}
VIEWS = {"scale": [0.2, 1.0]}
MULTI_CROP = ("dino", "dinov2", "ibot", "lejepa", "msn", "swav")
LOCAL = {"n_local": 2, "local_scale": [0.1, 0.4], "scale": [0.2, 1.0]}


def main() -> None:
    args = arguments()
    if args.table:
        print(table(load(RESULTS), list(FIXED)))
        return
    names = args.only or sorted(FIXED)
    missing = set(sslkit.methods()) - set(FIXED)
    assert not missing, f"no settings for {missing}"
    if args.profile:
        as_in_training(1)
        for name, plugin in itertools.product(names, ("", "+dsa")):
            keep(
                RESULTS,
                name + plugin,
                profile(name + plugin, batch_size=BATCH.get(name, 128), **settings(name)),
                part="steps",
            )
        print(table(load(RESULTS), list(FIXED)))
        return
    jobs = tuning(names) if args.tune else runs(names, args.seeds, args.epochs, args.plugins)
    with ProcessPoolExecutor(args.jobs, initializer=as_in_training, initargs=(args.threads,)) as pool:
        for done in [pool.submit(tune if args.tune else one, *job) for job in jobs]:
            print(done.result(), flush=True)
    print(table(load(RESULTS), list(FIXED)))


def as_in_training(threads: int) -> None:
    """Set up a process of the pool like recipes/train.py."""
    torch.set_num_threads(threads)
    keep_freed_memory()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=sorted(FIXED), help="objectives; default all")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    plugins = ["none", "dsa", "guide"]
    parser.add_argument("--plugins", nargs="*", choices=plugins, default=plugins[:2], help="regularisers of the runs")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="if not the table's: stored separately, plain only")
    parser.add_argument("--jobs", type=int, default=1, help="number of parallel runs")
    parser.add_argument("--threads", type=int, default=1, help="threads of each run")
    for flag, help_ in {"tune": "learning rates, temperatures", "profile": "steps", "table": "print and exit"}.items():
        parser.add_argument(f"--{flag}", action="store_true", help=help_)
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
    key = tuning_key(name, lr, options)
    numbers = {k: round(card["after"][k], 4) for k in ("probe", "knn")}
    keep(RESULTS, key, numbers | {"lr": lr, "options": options}, part="tuning")
    return f"{key:<50} probe {100 * numbers['probe']:.1f}"


def held_out(path: Path) -> None:
    """Write the training images to a file, with a fifth of every class held out."""
    import numpy as np

    from sslkit.training.data import held_out_rows

    images = sslkit.open_images("fashion_mnist", split="train")
    pixels = images.__getitems__(list(range(len(images))))["images"].numpy()
    train_rows, test_rows = held_out_rows(images.labels)
    parts = {"train": train_rows, "test": test_rows}
    arrays = {f"x_{k}": pixels[rows] for k, rows in parts.items()}
    np.savez(path, **arrays, **{f"y_{k}": images.labels[rows] for k, rows in parts.items()})


def best(name: str) -> dict[str, Any]:
    """The combination with the best linear probe."""
    tried = {k: v for k, v in load(RESULTS).get("tuning", {}).items() if k.split(" | ")[0] == name}
    if not tried:
        raise SystemExit(f"{name} was not tuned: run with --tune first")
    return max(tried.values(), key=lambda numbers: numbers["probe"])


def settings(name: str) -> dict[str, Any]:
    """The options of `sslkit.method` for the table's runs."""
    return {"objective": FIXED[name] | best(name)["options"], "views": LOCAL if name in MULTI_CROP else VIEWS}


def runs(names: list[str], seeds: list[int], epochs: int, plugins: list[str]) -> list[tuple]:
    """Every run without a result, seed by seed."""
    done = load(RESULTS).get(part_of(epochs), {})
    added = ["" if name == "none" else f"+{name}" for name in plugins]
    wanted = itertools.product(seeds, names, added if epochs == EPOCHS else ("",))
    return [(name, plugin, seed, epochs) for seed, name, plugin in wanted if f"{name}{plugin} | {seed}" not in done]


def part_of(epochs: int) -> str:
    """Key of the results file for runs of this length."""
    return "runs" if epochs == EPOCHS else f"runs of {epochs} epochs"


def one(name: str, plugin: str, seed: int, epochs: int) -> str:
    """Train and evaluate one method."""
    with tempfile.TemporaryDirectory() as scratch:
        options = FIXED[name] | best(name)["options"]
        card = train(name + plugin, best(name)["lr"], options, seed, Path(scratch), "fashion_mnist", epochs)
    numbers = {k: round(card["after"][k], 4) for k in ("probe", "knn", "inter", "intra")}
    numbers |= {"rankme": round(card["diagnostics"]["rankme"], 2), "seconds": card["seconds"]}
    numbers |= {"backbone": card["backbone"]["name"]}
    numbers["random"] = {k: round(card["before"][k], 4) for k in ("probe", "knn", "inter", "intra")}
    keep(RESULTS, f"{name}{plugin} | {seed}", numbers, part=part_of(epochs))
    return f"{name + plugin:<20} seed {seed}  probe {100 * numbers['probe']:.1f}  kNN {100 * numbers['knn']:.1f}"


def train(method: str, lr: float, options: dict, seed: int, scratch: Path, data: str, epochs: int) -> dict[str, Any]:
    """Train one run and return its card."""
    objective = method.partition("+")[0]
    config = {
        "method": {"name": method, "objective": options, "views": LOCAL if objective in MULTI_CROP else VIEWS},
        "data": {"source": data, "batch_size": BATCH.get(objective, 128)},
        "epochs": epochs,
        "optimizer": {"lr": lr},
        "seed": seed,
        "out": str(scratch / "zoo"),
        "eval": {"every": 1000, "tsne": 0},
        "trainer": {"progress": False},
    }
    return sslkit.pretrain(config).card


if __name__ == "__main__":
    main()
