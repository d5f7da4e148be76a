"""Weng et al. 2025, arXiv 2501.18452 (ReSA): the table of its public repository. The paper itself was not at hand."""

from evaluation.papers.claims import Claim
from evaluation.papers.dsa_rows import IMAGENET, measured, row
from evaluation.papers.experiment import Absent, Experiment
from evaluation.papers.training import PROBE, Column, Row, Training

COLUMNS = {"top-1": PROBE, "kNN": Column("knn", card="knn")}
OTHERS = {"SimCLR": "simclr", "BYOL": "byol", "MoCo v3": "moco_v3", "SwAV": "swav", "DINO": "dino"}
PUBLISHED = (  # of the repository: SGD, 256 images, the rate 0.5 for 256 of them, a warm-up of 2 epochs
    "method=resa",
    IMAGENET,
    "backbone=resnet50",
    "epochs=100",
    "data.image_size=224",
    "data.batch_size=256",
    "optimizer.name=sgd",
    "optimizer.lr=0.5",
    "optimizer.weight_decay=1e-5",
    "optimizer.warmup=0.02",
)

EXPERIMENTS: dict[str, Experiment | Absent] = {
    "imagenet": Training(
        caption="ResNet-50 on ImageNet, 100 epochs of batches of 256 images.",
        cost="50 minutes",
        needs=("imagenet",),
        readings=(
            "the table has ReSA alone; that it is above other objectives at the same cost is the paper's abstract",
            "in small every objective has its tuned settings and 6 epochs",
        ),
        rows={"ReSA": Row(row("resa", {}).small, PUBLISHED, measured(tuple(COLUMNS), 71.9, 64.6))}
        | {name: Row(row(method, {}).small) for name, method in OTHERS.items()},
        columns=COLUMNS,
        judged_on={"small": "fashion_mnist", "paper": "imagenet"},
        claims=tuple(
            Claim(f"ReSA is above the other objectives in {column}", column, tuple(("ReSA", name) for name in OTHERS))
            for column in COLUMNS
        ),
    ),
}
