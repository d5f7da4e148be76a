"""Effect of pretraining on detection: COCO AP with pretrained and with random weights, on generated clip-art images.

    python recipes/benchmarks/transfer/run.py detection            (C4: 70 minutes on one core; skips finished runs)
    python recipes/benchmarks/transfer/run.py detection --only "FPN, boxes"   (half an hour per run, also for a ViT)
    python recipes/benchmarks/transfer/run.py detection --table         (print the committed results)

For each seed a backbone is pretrained on the 1,895 drawings of clipart without labels (narrow_resnet by byol+dsa,
narrow_vit by mae), and a detector is trained on it: schedule smoke with 400 steps on the 500 training images of
clipart_boxes, all weights trained, evaluated on the 150 test images. "random" is the untrained network with the same
random seed, new layers, images and order. Results are kept in results/.
"""

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import cli
import torch
from objectives.settings import config as made
from results import load, measure
from seeds import by_seed, differences, of, percent

import sslkit
from evaluation.tasks.detection.measure import open_splits
from evaluation.tasks.detection.protocols.detection import detection
from evaluation.tasks.detection.protocols.segmentation import segmentation
from sslkit.terminal.tables import markdown

RESULTS = "transfer/detection"
STEPS = 400
WEIGHTS = ("pretrained", "random")
BYOL = {"momentum": 0.98, "hidden": 256, "dim": 64}
RESNET = {
    "method": {"name": "byol+dsa", "objective": BYOL, "dsa": {"balance": None}, "views": {"scale": [0.2, 1.0]}},
    "backbone": "narrow_resnet",
    "batch_size": 128,
    "lr": 9e-3,
}
VIT = {
    "method": {"name": "mae", "objective": {"mask_ratio": 0.5}, "views": {"scale": [0.2, 1.0]}},
    "backbone": "narrow_vit",
    "batch_size": 32,
    "lr": 3e-3,
}
EPOCHS = 20
DETECTORS: dict[str, tuple[dict[str, Any], str, str]] = {  # pretraining, arch, task
    "C4, boxes": (RESNET, "c4", "boxes"),
    "C4, masks": (RESNET, "c4", "masks"),
    "FPN, boxes": (RESNET, "fpn", "boxes"),
    "ViT pyramid, boxes": (VIT, "vit_pyramid", "boxes"),
}
SHOWN = ("coco_mask_ap", "coco_ap", "coco_ap50", "coco_ap75", "voc_ap50")


def main() -> None:
    parser = cli.parser(__doc__, "seeds", "threads", "table")
    parser.add_argument("--only", nargs="*", default=["C4, boxes", "C4, masks"], choices=list(DETECTORS))
    parser.add_argument("--zoo", type=Path, default=Path("runs/detection"), help="folder of entries and detectors")
    args = parser.parse_args()
    if not args.table:
        torch.set_num_threads(args.threads)
        wanted = itertools.product(args.seeds, args.only, WEIGHTS)
        cells = {
            f"{name} | {weights} | {seed}": partial(one, name, seed, weights, args.zoo)
            for seed, name, weights in wanted
        }
        measure(RESULTS, cells)
    print(table(load(RESULTS)["runs"]))


def one(detector: str, seed: int, weights: str, zoo: Path) -> dict[str, float]:
    """Pretrain if there is no entry yet, train and evaluate."""
    config, arch, task = DETECTORS[detector]
    entry = pretrained(config, seed, zoo)
    train, test = open_splits("clipart_boxes", masks=task == "masks")
    judge = segmentation if task == "masks" else detection
    found = judge(
        str(entry) if weights == "pretrained" else f"random:{entry}:{seed}",
        {"train": train, "test": test},
        arch=arch,
        schedule="smoke",
        steps=STEPS,
        seed=seed,
        out=entry if weights == "pretrained" else zoo / f"random-{entry.name}",
    )
    numbers = {result.metric: round(result.value, 4) for result in found}
    numbers |= {name: round(other.value, 4) for result in found for name, other in result.others.items()}
    numbers = {name: value for name, value in numbers.items() if not name.startswith("seed ")}
    return numbers | {"seconds": round(found[0].seconds)}


def pretrained(config: dict[str, Any], seed: int, zoo: Path) -> Path:
    """Return the folder of the entry; pretrain if it does not exist."""
    name = f"{config['backbone']}-{seed}"
    if not (zoo / name / "card.json").is_file():
        own = {"seed": seed, "epochs": EPOCHS, "out": zoo, "name": name, "data": {"workers": 0}}
        sslkit.pretrain(made(source="clipart", **config, **own))
    return zoo / name


def table(runs: dict[str, Any]) -> str:
    """Markdown table: mean ± sd over the seeds, and the gain in COCO AP by pretraining, by seed."""
    lines = [["detector", "weights", "mask AP", "COCO AP", "AP50", "AP75", "VOC AP50", "gain in COCO AP, by seed"]]
    for detector in DETECTORS:
        both = {weights: of(runs, detector, weights) for weights in WEIGHTS}
        gains = by_seed(differences(both["pretrained"], both["random"], "coco_ap"))
        for weights, found in both.items():
            if found:
                cells = [percent(found, name) for name in SHOWN]
                lines.append([detector, weights, *cells, gains if weights == "pretrained" else ""])
    return markdown(lines, range(2, 8))
