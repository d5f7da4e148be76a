"""Song et al. 2024, arXiv 2407.13541 (DSA): its tables and figures as experiments."""

from collections.abc import Mapping

from evaluation.papers.experiment import Absent, Experiment
from evaluation.papers.training import Column, Row, Training

PROBE = Column("linear")
INTER = Column("crowding", "inter/unit", unit="distance")
INTRA = Column("crowding", "intra/unit", unit="variance")
CROWDING = {"inter-class": INTER, "intra-class": INTRA, "top-1": PROBE}
SMALL = {"small": "fashion_mnist", "paper": "imagenet"}


def row(method: str, published: Mapping[str, float], base: str | None = None, *words: str) -> Row:
    """A method with its tuned settings: those of `recipes/conf/experiment` in small, of the paper at its scale."""
    objective = method.partition("+")[0]
    small = (f"method={method}", f"experiment={objective}", *words)
    return Row(small, (), published, base)


def crowded(inter: float, intra: float, accuracy: float | None = None) -> dict[str, float]:
    numbers = {"inter-class": inter, "intra-class": intra}
    return numbers if accuracy is None else {**numbers, "top-1": accuracy}


PLAIN = {
    "SimCLR": row("simclr", crowded(1.17, 1.15, 70.15)),
}

EXPERIMENTS: dict[str, Experiment | Absent] = {
    "table1": Training(
        caption="Table I: the inter-class distance, the intra-class variance and the linear evaluation of SSL methods.",
        claim="Self-supervised classes are wider and closer together than supervised ones (crowding).",
        cost="20 minutes",
        needs=("imagenet",),
        rows=PLAIN,
        columns=CROWDING,
        judged_on=SMALL,
        gain="top-1",
    ),
}
