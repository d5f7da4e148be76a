"""Nguyen et al. 2020, ICML (LEEP): the figures of its supplement as experiments."""

from evaluation.papers.experiment import Absent, Experiment
from evaluation.papers.subsets import Subsets

SOURCE = {
    "small": ("method=supervised", "experiment=supervised"),
    "paper": ("method=supervised", "data=cifar10", "backbone=resnet18", "epochs=200"),
}
TARGET = {"small": "glyph_scripts", "paper": "cifar100"}
LATER = "not built yet"
READINGS = (
    "in small: source supervised on Fashion-MNIST, tasks are subsets of the 137 scripts of glyph_scripts",
    "only the head is trained; the same penalty for every task",
    "the control is minus the number of classes, of which accuracy and LEEP both depend",
)

EXPERIMENTS: dict[str, Experiment | Absent] = {
    "fig1": Subsets(
        caption="Figure 1: average test accuracy on small, balanced target sets in five levels of LEEP.",
        cost="6 minutes",
        needs=("cifar10", "cifar100"),
        source=SOURCE,
        target=TARGET,
        classes=(2, 100),
        images=(5, 5),
        readings=READINGS,
    ),
    "fig2": Subsets(
        caption="Figure 2: average test F1 score on small, imbalanced target sets in five levels of LEEP.",
        cost="6 minutes",
        needs=("cifar10", "cifar100"),
        source=SOURCE,
        target=TARGET,
        classes=(2, 100),
        images=(2, 30),
        measure="macro F1",
        readings=READINGS,
    ),
    "fig3": Absent(caption="Figure 3: convergence of fine-tuned models, by level of LEEP.", reason=LATER),
    "fig4": Absent(caption="Figure 4: test accuracy against LEEP, NCE, H score and ImageNet accuracy.", reason=LATER),
}
