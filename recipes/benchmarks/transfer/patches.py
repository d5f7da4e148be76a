"""Do objectives on tokens know places better than BYOL? mIoU of frozen patches after equal training of one ViT.

    python recipes/benchmarks/transfer/run.py patches --choose --jobs 2     (learning rates, held-out training images)
    python recipes/benchmarks/transfer/run.py patches --jobs 2              (seeds 0, 1, 2; skips finished runs)
    python recipes/benchmarks/transfer/run.py patches --table               (print the committed results)

Plan, before the runs. narrow_vit at 64 pixels with 8 x 8 patches is pretrained on 2,000 generated images of
clipart_boxes (its training drawings, four generator seeds) without labels, 20 epochs of 2,000 images for every
objective; a batch has 128 images, 32 where a decoder or predictor learns from masks. Options are those of the study of
objectives. The learning rate, of LR, is chosen for each objective by the mIoU of linear_seg on 100 held-out of the 500
labelled training images, seed 100. The table's runs have seeds 0, 1, 2; their patches learn from all 500 training
images and are judged once on the 150 test images. Controls: BYOL on the same network, and random weights. Decision: a
token objective is better than BYOL if the 95 % t-interval of the differences by seed, of linear_seg's mIoU, is above 0.
knn_seg is told beside it.
"""

import itertools
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import cli
import numpy as np
from objectives.settings import BATCH, as_in_training, config, settings
from results import load, measure
from seeds import differences, interval, of, percent

import sslkit
from evaluation.studies.cells import Cell
from evaluation.tasks.detection.datasets.clipart_boxes import open_clipart_boxes
from evaluation.tasks.segmentation.protocols.knn_seg import knn_seg
from evaluation.tasks.segmentation.protocols.linear_seg import linear_seg
from evaluation.tasks.segmentation.sources import open_label_maps
from sslkit.terminal.tables import markdown

RESULTS = "transfer/patches"
BYOL, RANDOM = "byol", "random weights"
TOKENS = ("ibot", "dinov2", "ijepa", "data2vec", "mae")
OTHERS = ("dino", "msn", "lejepa")
LR = [3e-4, 1e-3, 3e-3]
EPOCHS, SIZE, CHOOSING_SEED, HELD_OUT = 20, 64, 100, 100
CROPS = {"scale": [0.2, 1.0], "n_local": 2, "local_scale": [0.1, 0.4]}


def main() -> None:
    parser = cli.parser(__doc__, "seeds", "jobs", "table")
    names = [BYOL, *TOKENS, *OTHERS, RANDOM]
    parser.add_argument("--only", nargs="*", default=names, choices=names)
    parser.add_argument("--choose", action="store_true", help="learning rates, on held-out training images")
    args = parser.parse_args()
    if not args.table:
        cells = choices(args.only) if args.choose else runs(args.only, args.seeds)
        measure(RESULTS, cells, args.jobs, "choosing" if args.choose else "runs", begin=partial(as_in_training, 1))
    print(table(load(RESULTS)["runs"]))


def choices(names: list[str]) -> dict[str, Cell]:
    """Every learning rate."""
    wanted = itertools.product([name for name in names if name != RANDOM], LR)
    return {f"{name} | lr {lr:g}": partial(choose, name, lr) for name, lr in wanted}


def choose(name: str, lr: float) -> dict[str, float]:
    """Train with one learning rate and judge it on held-out training images."""
    train = open_label_maps("clipart_boxes", "train")
    rows = {"train": np.arange(HELD_OUT, len(train)), "test": np.arange(HELD_OUT)}
    split = {part: replace(train.take(own), split=part) for part, own in rows.items()}
    return {**judged(name, lr, CHOOSING_SEED, split), "lr": lr}


def chosen(name: str) -> float:
    """The learning rate with the best held-out mIoU."""
    tried = [one for key, one in load(RESULTS).get("choosing", {}).items() if key.split(" | ")[0] == name]
    if not tried:
        raise SystemExit(f"{name}: run with --choose first")
    return max(tried, key=lambda one: one["linear_seg"])["lr"]


def runs(names: list[str], seeds: list[int]) -> dict[str, Cell]:
    """Every run, seed by seed."""
    return {f"{name} | {seed}": partial(one, name, seed) for seed, name in itertools.product(seeds, names)}


def one(name: str, seed: int) -> dict[str, float]:
    """Train one objective and judge it on the test images."""
    lr = 0.0 if name == RANDOM else chosen(name)
    return {**judged(name, lr, seed, "clipart_boxes"), "lr": lr}


def judged(name: str, lr: float, seed: int, data: Any) -> dict[str, float]:
    """mIoU by both protocols, of the pretrained network or, for RANDOM, of an untrained one."""
    with tempfile.TemporaryDirectory() as scratch:
        model = f"random:narrow_vit:{seed}" if name == RANDOM else trained(name, lr, seed, Path(scratch))
        size = SIZE if name == RANDOM else None
        found = [protocol(model, data, image_size=size, progress=False) for protocol in (linear_seg, knn_seg)]
    return {result.protocol: round(result.value, 4) for result in found}


def trained(name: str, lr: float, seed: int, scratch: Path) -> sslkit.ZooEntry:
    """Pretrain on the generated images."""
    images = np.concatenate([generated(k) for k in range(4)])
    np.savez(scratch / "scenes.npz", x_train=images)
    method = {"name": name, "objective": settings(name)["objective"], "views": views(name)}
    how = {"lr": lr, "epochs": EPOCHS, "seed": seed, "out": scratch / "zoo", "batch_size": BATCH.get(name, 128)}
    how |= {"backbone": "narrow_vit", "data": {"image_size": SIZE}}
    return sslkit.pretrain(config(method, str(scratch / "scenes.npz"), **how))


def generated(seed: int) -> np.ndarray:
    """(500, 128, 128, 3) uint8 training images of clipart_boxes."""
    boxes = open_clipart_boxes("train", seed)
    return np.stack([boxes.pixels[row].permute(1, 2, 0).numpy() for row in range(len(boxes))])


def views(name: str) -> dict[str, Any]:
    """The crops: local ones for the objectives that have them."""
    local = sslkit.options.members.signature(name)["views"]
    return CROPS if "n_local" in local else {"scale": CROPS["scale"]}


def table(runs: dict[str, Any]) -> str:
    """Markdown: mean ± sd over seeds, and what each is above BYOL, with the t-interval of the differences."""
    lines = [["objective", "linear_seg, mIoU %", "kNN, mIoU %", "linear_seg minus BYOL", "lr"]]
    base = of(runs, BYOL)
    for name in (RANDOM, BYOL, *OTHERS, *TOKENS):
        found = of(runs, name)
        if found:
            above = "" if name == BYOL else interval(differences(found, base, "linear_seg"))
            rate = "" if name == RANDOM else f"{next(iter(found.values()))['lr']:g}"
            lines.append([name, percent(found, "linear_seg"), percent(found, "knn_seg"), above, rate])
    return markdown(lines, range(1, 5))
