"""Rows and columns of the image tables of Song et al. 2024 (DSA), with the paper's numbers; see `dsa.py`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from evaluation.papers.training import PROBE, Column, Row

INTER = Column("crowding", "inter/unit", card="inter", unit="")
INTRA = Column("crowding", "intra/unit", card="intra", unit="")
CROWDING = {"inter-class": INTER, "intra-class": INTRA, "top-1": PROBE}
ON = {"small": "fashion_mnist", "paper": "imagenet"}
DISTANCES = (
    "distances of unit-length features; in small between class means, at the paper's scale between unit-length means"
)
IMAGENET = "data=ROOT/imagenet"  # ROOT: the folder of the published sets
CLIP = "method.dsa.prior=clip"
VITS = ("mae", "u_mae", "moco_v3")


def row(method: str, published: Mapping[str, float]) -> Row:
    """A method with its tuned settings in small, and the paper's at its scale."""
    objective = method.partition("+")[0]
    network = "vit_b" if objective in VITS else "resnet50"
    small = (f"method={method}", f"experiment={objective}")
    return Row(small, (f"method={method}", f"experiment=paper/imagenet_{network}", IMAGENET), published)


def pairs(plain: Mapping[str, Row], published: Mapping[str, Mapping[str, float]]) -> dict[str, Row]:
    """The plain rows, and each again with DSA."""
    added = {f"{name} + DSA": _with_dsa(name, plain[name], numbers) for name, numbers in published.items()}
    return {**plain, **added}


def _with_dsa(name: str, plain: Row, published: Mapping[str, float]) -> Row:
    small, paper = ((f"{words[0]}+dsa", *words[1:]) for words in (plain.small, plain.paper))
    return Row(small, (*paper, CLIP), published)


def measured(names: Sequence[str], *numbers: float) -> dict[str, float]:
    return dict(zip(names, numbers, strict=False))


def crowded(*numbers: float) -> dict[str, float]:
    return measured(tuple(CROWDING), *numbers)


def accuracies(*numbers: float) -> dict[str, float]:
    return measured(("top-1",), *numbers)


TABLE1 = {
    "SimCLR": row("simclr", crowded(1.17, 1.15, 70.15)),
    "BYOL": row("byol", crowded(0.90, 0.65, 71.48)),
    "SwAV": row("swav", crowded(1.12, 1.01, 75.78)),
    "Barlow Twins": row("barlow_twins", crowded(1.06, 1.11, 73.97)),
    "MAE": row("mae", crowded(0.14, 0.85, 66.85)),
}
CROWDED = tuple((name, "Supervised") for name in TABLE1)
SUPERVISED = {"Supervised": row("supervised", crowded(1.32, 0.62, 79.24))}
TABLE2 = {
    "SimCLR": row("simclr", accuracies(70.15)),
    "MoCo": row("moco", accuracies(72.80)),
    "BYOL": row("byol", accuracies(71.48)),
    "SimSiam": row("simsiam", accuracies(73.01)),
    "Barlow Twins": row("barlow_twins", accuracies(73.97)),
    "SwAV": row("swav", accuracies(75.78)),
    "DINO": row("dino", accuracies(75.43)),
    "W-MSE": row("w_mse", accuracies(76.01)),
    "ReSSL": row("ressl", accuracies(75.77)),
    "VICRegL": row("vicregl", accuracies(75.96)),
    "MAE": row("mae", accuracies(66.85)),
    "U-MAE": row("u_mae", accuracies(70.46)),
    "MoCo v3": row("moco_v3", accuracies(76.47)),
}
TABLE2_DSA = {
    "SimCLR": accuracies(72.09),
    "MoCo": accuracies(74.79),
    "SimSiam": accuracies(74.09),
    "Barlow Twins": accuracies(76.03),
    "SwAV": accuracies(77.84),
    "DINO": accuracies(76.50),
    "BYOL": accuracies(74.95),
    "ReSSL": accuracies(77.45),
    "VICRegL": accuracies(78.15),
    "MAE": accuracies(72.76),
    "MoCo v3": accuracies(78.24),
}
TABLE8_DSA = {
    "SimCLR": crowded(1.37, 0.92),
    "BYOL": crowded(1.21, 0.55),
    "SwAV": crowded(1.31, 0.57),
    "Barlow Twins": crowded(1.15, 0.97),
    "MAE": crowded(0.64, 0.65),
}
ABLATED = "optimizer.lr=0.004"  # not tuned: a rate for all parts
HEADS = {
    "simclr": ("method.objective.hidden=256", "method.objective.dim=64"),
    "byol": ("method.objective.momentum=0.98", "method.objective.hidden=256", "method.objective.dim=64"),
}
PARTS = {
    "DSA": (),
    "DSA without SM": ("method.dsa.upsilon=0", "method.dsa.neighbours=none"),
    "DSA without sc": ("method.dsa.neighbours=none",),
}
COSINE = "cosine in place of the MLP"
SMALL_PRIORS = {"prior pca": (), "prior hog": ("method.dsa.prior=hog",), COSINE: ("method.dsa.arranger=cosine",)}
PAPER_PRIORS = {
    "prior CLIP": (),
    "prior BEiT": ("method.dsa.prior=timm:beit_base_patch16_224",),
    "prior SIFT": ("method.dsa.prior=sift",),
    "prior ResNet-18": ("method.dsa.prior=timm:resnet18",),
    COSINE: ("method.dsa.arranger=cosine",),
}


def ablated(objective: str, published: Mapping[str, float], plugin: str = "", *words: str) -> Row:
    """A row of the ablations, whose networks have one set of settings for all parts; in small those of `HEADS`."""
    method = f"method={objective}{plugin}"
    small = (method, *HEADS[objective], "method.views.scale=[0.2,1.0]", ABLATED, *words) if objective in HEADS else ()
    prior = (CLIP,) if plugin and not any("prior" in word for word in words) else ()
    return Row(small, (method, "experiment=paper/imagenet_resnet50", IMAGENET, *prior, *words), published)


def components(title: str, objective: str, plain: Sequence[float], added: Sequence[Sequence[float]]) -> dict[str, Row]:
    rows = {title: ablated(objective, crowded(*plain))}
    for (part, words), numbers in zip(PARTS.items(), added, strict=True):
        rows[f"{title} + {part}"] = ablated(objective, crowded(*numbers), "+dsa", *words)
    return rows


def selected(title: str, objective: str, plain: float, *numbers: float) -> dict[str, Row]:
    """The rows of an objective: priors of the paper at its scale, those in the package in small. numbers: published."""
    rows = {title: ablated(objective, accuracies(plain))}
    for (part, words), number in zip(PAPER_PRIORS.items(), numbers, strict=True):
        rows[f"{title} + DSA, {part}"] = replace(ablated(objective, accuracies(number), "+dsa", *words), small=())
    for part, words in SMALL_PRIORS.items():
        known = rows.get(f"{title} + DSA, {part}", Row())
        rows[f"{title} + DSA, {part}"] = replace(known, small=ablated(objective, {}, "+dsa", *words).small)
    return rows


def with_dsa(names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    return tuple((f"{name} + DSA", name) for name in names)


def both(row: str, base: str) -> tuple[tuple[str, str], ...]:
    """A pair for each objective of the ablations."""
    return tuple((f"{name} + {row}", f"{name} + {base}" if base else name) for name in ("SimCLR", "BYOL"))


def beside_clip(*parts: str) -> tuple[tuple[str, str], ...]:
    """A pair with CLIP as the prior for each part and each objective of table X."""
    names = ("SimCLR", "BYOL", "Barlow Twins")
    return tuple((f"{name} + DSA, {part}", f"{name} + DSA, prior CLIP") for part in parts for name in names)


def only(names: Sequence[str], rows: Mapping[str, Row]) -> dict[str, Row]:
    """The rows, of which these alone, and these with DSA, are measured in small."""
    kept = {*names, *(f"{name} + DSA" for name in names)}
    return {name: row if name in kept else replace(row, small=()) for name, row in rows.items()}


def swept(option: str, usual: float, *others: float) -> dict[str, Row]:
    """BYOL with DSA, with each value of one of its options, in a third of the epochs of the other tables."""
    rows = {}
    for value in sorted((usual, *others)):
        one = ablated("byol", {}, "+dsa", *(() if value == usual else (f"method.dsa.{option}={value:g}",)))
        rows[f"{option}={value:g}"] = replace(one, small=(*one.small, "epochs=2"))
    return rows
