"""Song et al. 2024, arXiv 2407.13541 (DSA): its tables and figures as experiments.

In small the rows have the tuned settings of `recipes/conf/experiment` on the Fashion-MNIST in the package (8,000 images
of 28 pixels, 6 epochs, a network of 0.3 million parameters); at the paper's scale those of `experiment=paper/...`.
"""

from collections.abc import Iterable, Mapping, Sequence

from evaluation.papers.claims import Claim
from evaluation.papers.experiment import Absent, Experiment
from evaluation.papers.training import Column, Row, Training

INTER = Column("crowding", "inter/unit", card="inter", unit="")
INTRA = Column("crowding", "intra/unit", card="intra", unit="")
PROBE = Column("linear", card="probe")
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


LATER = "not built yet"
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
ABLATED = "optimizer.lr=0.004"  # the settings of recipes/benchmarks/plugins/ablation.py
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
PRIORS = {
    "prior pca": (),
    "prior hog": ("method.dsa.prior=hog",),
    COSINE: ("method.dsa.arranger=cosine",),
}


def ablated(objective: str, published: Mapping[str, float], plugin: str = "", *words: str) -> Row:
    """A row of the ablations, whose networks have one set of settings for all parts."""
    method = f"method={objective}{plugin}"
    small = (method, *HEADS[objective], "method.views.scale=[0.2,1.0]", ABLATED, *words)
    prior = (CLIP,) if plugin and not any("prior" in word for word in words) else ()
    return Row(small, (method, "experiment=paper/imagenet_resnet50", IMAGENET, *prior, *words), published)


def components(title: str, objective: str, plain: Sequence[float], added: Sequence[Sequence[float]]) -> dict[str, Row]:
    rows = {title: ablated(objective, crowded(*plain))}
    for (part, words), numbers in zip(PARTS.items(), added, strict=True):
        rows[f"{title} + {part}"] = ablated(objective, crowded(*numbers), "+dsa", *words)
    return rows


def selected(title: str, objective: str, plain: float, numbers: Sequence[float | None]) -> dict[str, Row]:
    rows = {title: ablated(objective, accuracies(plain))}
    for (part, words), number in zip(PRIORS.items(), numbers, strict=True):
        published = {} if number is None else accuracies(number)
        rows[f"{title} + DSA, {part}"] = ablated(objective, published, "+dsa", *words)
    return rows


def with_dsa(names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    return tuple((f"{name} + DSA", name) for name in names)


def both(row: str, base: str) -> tuple[tuple[str, str], ...]:
    """A pair for each objective of the ablations."""
    return tuple((f"{name} + {row}", f"{name} + {base}" if base else name) for name in ("SimCLR", "BYOL"))


EXPERIMENTS: dict[str, Experiment | Absent] = {
    "table1": Training(
        caption="Table I: the inter-class distance, the intra-class variance, and the linear evaluation accuracy of "
        "SSL methods.",
        cost="25 minutes",
        needs=("imagenet",),
        readings=(DISTANCES,),
        rows=TABLE1 | SUPERVISED,
        columns=CROWDING,
        judged_on=ON,
        claims=(
            Claim("self-supervised classes are closer together than supervised ones", "inter-class", CROWDED, -1),
            Claim("and wider", "intra-class", CROWDED, 1),
        ),
    ),
    "table2": Training(
        caption="Table II: the top-1 and top-5 classification accuracies of a linear classifier on ImageNet.",
        cost="2 hours",
        needs=("imagenet",),
        rows=pairs(TABLE2, TABLE2_DSA),
        columns={"top-1": PROBE},
        judged_on=ON,
        claims=(Claim("DSA raises the accuracy", "top-1", with_dsa(TABLE2_DSA)),),
    ),
    "table8": Training(
        caption="Table VIII: the inter-class distance, the intra-class variance of SSL methods, with and without DSA.",
        cost="45 minutes",
        needs=("imagenet",),
        readings=(DISTANCES,),
        rows=pairs(TABLE1, TABLE8_DSA),
        columns={"inter-class": INTER, "intra-class": INTRA},
        judged_on=ON,
        claims=(
            Claim("with DSA classes are farther apart", "inter-class", with_dsa(TABLE8_DSA)),
            Claim("and narrower", "intra-class", with_dsa(TABLE8_DSA), -1),
        ),
    ),
    "table9": Training(
        caption="Table IX: inter-class distance, intra-class variance and accuracy of DSA without components.",
        cost="45 minutes",
        needs=("imagenet",),
        readings=("without SM: no L_con, and sc = 1", "without sc: sc = 1"),
        rows=components(
            "SimCLR", "simclr", (1.17, 1.15, 70.15), ((1.37, 0.92, 72.09), (1.24, 1.06, 71.06), (1.32, 0.97, 71.67))
        )
        | components(
            "BYOL", "byol", (0.90, 0.65, 71.48), ((1.21, 0.55, 74.95), (0.96, 0.63, 72.13), (1.16, 0.52, 73.74))
        ),
        columns=CROWDING,
        judged_on=ON,
        claims=(
            Claim("DSA raises the accuracy", "top-1", both("DSA", "")),
            Claim("without SM less", "top-1", both("DSA without SM", "DSA"), -1),
            Claim("without sc less", "top-1", both("DSA without sc", "DSA"), -1),
        ),
    ),
    "table10": Training(
        caption="Table X: top-1 accuracies for different selections of f_aux (the prior) and f_s.",
        cost="40 minutes",
        needs=("imagenet",),
        readings=(
            "cosine: M = cos(z_i, z_j), each row normalised to sum to 1, as L_con compares it with such a prior",
        ),
        rows=selected("SimCLR", "simclr", 70.15, (None, None, 70.96))
        | selected("BYOL", "byol", 71.48, (None, None, 73.39)),
        columns={"top-1": PROBE},
        judged_on=ON,
        claims=(
            Claim("another prior is as good", "top-1", both("DSA, prior hog", "DSA, prior pca"), 0),
            Claim("the cosine is worse than the MLP", "top-1", both(f"DSA, {COSINE}", "DSA, prior pca"), -1),
        ),
    ),
    "fig1": Absent(caption="Fig. 1: distribution of 8 classes in the feature space of SSL methods.", reason=LATER),
    "fig2": Absent(caption="Fig. 2: the pipeline of the proposed DSA.", reason="a drawing, without a measurement"),
    "fig3": Absent(caption="Fig. 3: distribution of 8 classes in the feature space of methods with DSA.", reason=LATER),
    "fig4": Absent(caption="Fig. 4: distances and variances for values of nu, upsilon, alpha and eta.", reason=LATER),
    "table3": Absent(caption="Table III: linear evaluation on Kinetics-400.", reason=LATER),
    "table4": Absent(caption="Table IV: semi-supervised accuracies with 1 % and 10 % of ImageNet.", reason=LATER),
    "table5": Absent(caption="Table V: fine-tuning on UCF101 and HMDB51.", reason=LATER),
    "table6": Absent(caption="Table VI: few-shot accuracies on FC100, CUB200 and Plant Disease.", reason=LATER),
    "table7": Absent(caption="Table VII: object detection and instance segmentation.", reason=LATER),
    "theorem4.1": Absent(caption="Theorem IV.1: aggregation and separation bound the error.", reason=LATER),
}
