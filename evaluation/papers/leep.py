"""Nguyen et al. 2020, ICML (LEEP): the figures of its supplement as experiments."""

from evaluation.papers.convergence import Convergence
from evaluation.papers.experiment import Absent, Experiment
from evaluation.papers.sources import Sources
from evaluation.papers.subsets import Subsets
from evaluation.tuning.classifier import Setting
from sslkit.terminal.say import counted

SOURCE = {
    "small": ("method=supervised", "experiment=supervised"),
    "paper": ("method=supervised", "data=cifar10", "backbone=resnet18", "epochs=200"),
}
TARGET = {"small": "glyph_scripts", "paper": "cifar100"}
TUNED = {
    "small": Setting(
        lr=1e-2, weight_decay=0.01, optimizer="adamw", steps=60, batch_size=32, crop=(0.5, 1.0), mirror=False
    ),
    "paper": Setting(lr=1e-2, weight_decay=1e-4, steps=2000),
}
ARCHITECTURES = (
    "resnet18", "resnet34", "resnet50", "resnet101", "mobilenetv2_100", "densenet121", "densenet169", "vgg16_bn",
    "efficientnet_b0",
)  # fmt: skip
SOURCES = {
    "small": {
        f"{backbone}, {counted(epochs, 'epoch')}": (*SOURCE["small"], f"backbone={backbone}", f"epochs={epochs}")
        for backbone in ("narrow_resnet", "narrow_vit", "mobilenetv3_small_050")
        for epochs in (1, 2, 4)
    },
    "paper": {
        name: ("method=supervised", "data=ROOT/imagenet", f"backbone={name}", "epochs=90") for name in ARCHITECTURES
    },
}
READINGS = (
    "in small: source supervised on Fashion-MNIST, tasks are subsets of the 137 scripts of glyph_scripts",
    "only the head is trained; the same penalty for every task",
    "the control is minus the number of classes, of which accuracy and LEEP both depend",
    "the H-score of a task with fewer images than features is the number of classes minus 1, whatever the model",
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
    "fig3": Convergence(
        caption="Figure 3: convergence of fine-tuned models, by level of LEEP.",
        cost="10 minutes",
        needs=("cifar10", "cifar100"),
        source=SOURCE,
        target=TARGET,
        classes=(2, 60),
        images=(5, 5),
        tasks=16,
        levels=2,
        tuned=TUNED,
        shares=(0.05, 0.1, 0.2, 0.5, 1),
        readings=(
            *READINGS[:1],
            "all weights are tuned; the reference is the same network from random weights after as many steps",
            "two levels, as in the paper for its tasks from Fashion-MNIST",
            "tasks of a low LEEP have many classes here, of which the reference learns next to nothing: no start is "
            "far from that, so that the difference says little",
        ),
    ),
    "fig4": Sources(
        caption="Figure 4: test accuracy against LEEP, NCE, H score and ImageNet accuracy.",
        cost="10 minutes",
        needs=("imagenet", "cifar100"),
        sources=SOURCES,
        target={"small": "digits", "paper": "cifar100"},
        tuned=TUNED,
        readings=(
            "the paper: 9 architectures trained on ImageNet; in small three, supervised on Fashion-MNIST for 1, 2 and "
            "4 epochs; which nine the paper takes is not said in the supplement",
            "the accuracy on the source is that of the probe that every run trains at its end",
        ),
    ),
}
