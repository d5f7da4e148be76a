"""Zheng et al. 2025, arXiv 2510.23145 (ITM, Implicit Transferability Modeling): its tables and figures."""

from dataclasses import replace

from evaluation.papers.accuracies import Accuracies
from evaluation.papers.claims import Claim
from evaluation.papers.experiment import Absent, Experiment
from evaluation.papers.following import percent
from evaluation.papers.maps import SAME, TunedMaps
from evaluation.papers.moments import Moments
from evaluation.papers.rankings import MEAN, SMALL, UNTRAINED, Ranked
from evaluation.papers.shifts import Shifts
from evaluation.papers.stages import Curves

TASKS = ("caltech101", "cars", "cifar100", "cifar10", "dtd", "aircraft", "flowers102", "food101", "pets", "sun397")
GRID = {
    "lr": (1e-5, 2e-5, 5e-5),
    "weight_decay": (1e-2, 1e-4),
    "optimizer": "adamw",
    "steps": 5000,
    "batch_size": 64,
    "seeds": (0,),
    "extend": False,
    "max_images": None,
    "max_test_images": None,
    "crop": (0.08, 1.0),
    "mirror": True,
}
DRAWING = "a drawing of the method, without a measurement"
PAPER = "itm(variant=paper,evaluate=transductive)"  # the published check, which knows the held-out labels


def row(*taus: float) -> dict[str, float]:
    return dict(zip(TASKS, taus, strict=True))


TABLE1 = {
    "ped+logme": row(0.32, -0.01, 0.51, 0.77, 0.06, -0.20, 0.16, 0.60, -0.20, 0.07),
    "logme": row(0.71, 0.36, 0.56, 0.61, 0.61, 0.22, 0.77, 0.15, 0.14, 0.38),
    "nleep": row(0.47, 0.04, 0.32, 0.48, 0.57, 0.13, 0.62, 0.24, 0.30, 0.01),
    "parc": row(0.08, 0.00, -0.07, 0.25, 0.42, 0.12, 0.62, 0.19, 0.10, 0.01),
    "sfda": row(0.59, 0.07, 0.48, 0.79, 0.13, 0.18, -0.39, 0.33, 0.28, 0.09),
    "etran": row(0.13, -0.06, -0.14, 0.21, 0.36, 0.27, 0.08, 0.23, 0.38, -0.06),
    "itm": row(0.56, 0.61, 0.59, 0.69, 0.77, 0.43, 0.65, 0.44, 0.73, 0.62),
}
SPEARMAN = {
    "ped+logme": row(0.61, 0.05, 0.81, 0.92, 0.19, -0.37, -0.07, 0.84, -0.18, 0.25),
    "logme": row(0.81, 0.61, 0.62, 0.61, 0.77, 0.45, 0.90, 0.20, 0.37, 0.52),
    "nleep": row(0.37, 0.24, 0.25, 0.42, 0.53, 0.44, 0.79, 0.09, 0.41, 0.01),
    "parc": row(-0.01, 0.10, -0.19, 0.05, 0.49, 0.43, 0.79, 0.03, 0.26, -0.05),
    "sfda": row(0.71, 0.16, 0.68, 0.70, 0.09, 0.38, -0.58, 0.43, 0.52, 0.13),
    "etran": row(-0.01, -0.08, -0.28, 0.01, 0.09, 0.54, 0.13, 0.05, 0.39, -0.13),
    "itm": row(0.75, 0.84, 0.71, 0.70, 0.87, 0.54, 0.78, 0.45, 0.84, 0.75),
}
READINGS = (
    "PED stands before LogME: the paper does not say before which metric",
    "itm is the authors' code (eta 0.5, no L_pc), but its check moves held-out images without their labels; "
    f"{PAPER} is the paper's form with the check as published, which knows these labels",
)
COLUMNS = {"itm as the paper": "itm(variant=paper)", "itm as the paper, its check": PAPER}
ABOVE = tuple((("itm", other),) for other in TABLE1 if other != "itm")
TABLE = Ranked(
    caption="Table 1: weighted Kendall's tau of different methods on various data sets.",
    cost="2 minutes after paper=ped what=table1, with whose zoo and fine-tuning it works",
    needs=TASKS,
    metrics={name: name for name in TABLE1} | COLUMNS,
    benchmark="itm",
    published=TABLE1,
    claims=(
        *(Claim(f"ITM is above {pair[0][1]}", MEAN, pair) for pair in ABOVE),
        Claim("the paper's form is above the code's, the default", MEAN, (("itm as the paper", "itm"),)),
    ),
    readings=READINGS,
)
# Models of the small zoo, and those of the paper.
GROUPS = {
    "supervised": ("supervised", "DenseNet-121", "EfficientNet-B0", "MobileNetv2", "ResNet-18"),
    "masked images": ("mae", "MAE-B16", "MAE-L16", "SimMIM-B16"),
    "two views": (
        *(name for name in SMALL if name not in ("mae", "supervised")), "DINO-B16", "DINO-S8", "MoCov3-B16",
    ),
    "not trained": UNTRAINED,
}  # fmt: skip
SIZES = (64, 128, 256, 512, 1024)
PROTOTYPES = ("one_hot", "random", "pca", "laplacian")

EXPERIMENTS: dict[str, Experiment | Absent] = {
    "fig3": Absent(caption="Figure 3: full fine-tuning and the ITM framework.", reason=DRAWING),
    "table1": TABLE,
    "table2": Ranked(
        caption="Table 2: ablation of the feature standardisation and the adaptive learning rate, by iterations.",
        cost="3 minutes after paper=ped what=table1",
        needs=TASKS,
        metrics={
            f"standardise={standardise}, eta {eta}, {steps} iterations": (
                f"itm(standardise={standardise},eta={eta},iterations={steps})"
            )
            for standardise in ("false", "true")
            for eta in ("0.5", "adaptive")
            for steps in (100, 200, 500, 1000)
        },
        benchmark="itm",
        claims=(
            Claim(
                "standardisation raises tau",
                MEAN,
                tuple(
                    (f"standardise=true, eta {eta}, 500 iterations", f"standardise=false, eta {eta}, 500 iterations")
                    for eta in ("0.5", "adaptive")
                ),
            ),
            Claim(
                "the adaptive rate raises tau",
                MEAN,
                (("standardise=true, eta adaptive, 500 iterations", "standardise=true, eta 0.5, 500 iterations"),),
            ),
        ),
        readings=("the paper's means over ten data sets: 0.519, 0.508, 0.576, 0.605 at 500 iterations, in this order",),
    ),
    "table4": replace(
        TABLE,
        caption="Table 4: Spearman's rho of different methods on various data sets.",
        published=SPEARMAN,
        measure="Spearman",
        readings=(*READINGS, "the second half of the table has Kendall's tau"),
    ),
    "fig4": Ranked(
        caption="Figure 4: ablation of the batch size in DCA.",
        cost="2 minutes after paper=ped what=table1",
        needs=TASKS,
        metrics={f"batches of {size}": f"itm(batch_size={size})" for size in SIZES},
        benchmark="itm",
        claims=(Claim("256 rows are better than 64", MEAN, (("batches of 256", "batches of 64"),)),),
        readings=("in small a task has at most 400 training rows, so larger batches are all of them",),
    ),
    "fig5": Ranked(
        caption="Figure 5: different methods for orthogonal pseudo-cluster centres, under repeated experiments.",
        cost="2 minutes after paper=ped what=table1",
        needs=TASKS,
        metrics={kind: f"itm(centres={kind},repeats=3)" for kind in PROTOTYPES},
        benchmark="itm",
        claims=tuple(
            Claim(f"{kind} makes no difference", MEAN, ((kind, "one_hot"),), 0, within=0.05)
            for kind in PROTOTYPES
            if kind != "one_hot"
        ),
        readings=("3 repeats for the paper's 10; random vectors are not orthogonal, pca and laplacian are",),
    ),
    "table3": Accuracies(
        caption="Table 3: the highest accuracy of models on various data sets.",
        cost="no time after paper=ped what=table1, whose accuracies they are",
        needs=TASKS,
        benchmark="itm",
        grid=GRID,
        readings=(
            "in small: other models and data sets than the paper's, so its numbers stand in no row",
            "the setting is chosen on held-out images, tested at the last step; the paper takes the highest accuracy",
        ),
    ),
    "fig1": Shifts(
        caption="Figure 1: relative results of recent methods across ten benchmarks.",
        cost="2 minutes after paper=ped what=table1",
        needs=TASKS,
        metrics={name: name for name in TABLE1},
        benchmark="itm",
        claims=tuple(
            Claim(f"the ranks of ITM are nearer to those by fine-tuning than {other}'s", MEAN, (("itm", other),), -1)
            for other in TABLE1
            if other != "itm"
        ),
        groups=GROUPS,
        readings=(
            "the columns of data sets and mean: the mean distance of a rank from the model's rank by fine-tuning; the "
            "columns of groups: its sign, above 0 where a method ranks the group too high",
            READINGS[0],
        ),
    ),
    "fig2": Curves(
        caption="Figure 2: the full fine-tuning of differently pretrained models on Pets.",
        cost="4 minutes after paper=ped what=table1",
        needs=("pets",),
        benchmark="itm",
        data={"small": "clipart", "paper": "pets"},
        shares=(0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1),
        readings=(
            "the paper: supervised networks learn alike, self-supervised ones differ; in small there is one supervised "
            "network, so no spread can be compared",
        ),
    ),
    "fig6": Moments(
        caption="Figure 6: mean and variance of features of models on Caltech-101.",
        cost="a minute after paper=ped what=table1",
        needs=("caltech101",),
        benchmark="itm",
        data={"small": "clipart", "paper": "caltech101"},
        readings=("agrees: the intervals of the least and the greatest number are apart",),
    ),
    "fig7": TunedMaps(
        caption="Figure 7: embeddings before and after fine-tuning on CIFAR-10.",
        cost="2 minutes after paper=ped what=table1",
        needs=("cifar10",),
        name="fig7",
        models={"small": ("supervised", "simclr", "mae"), "paper": ("ResNet-18", "DINO-B16", "MAE-B16")},
        data={"small": "digits", "paper": "cifar10"},
        benchmark="itm",
        mapped=("supervised", "simclr", "mae", "ResNet-18", "DINO-B16", "MAE-B16"),
        claims=(Claim("fine-tuning separates the classes", SAME, ((percent(1), percent(0)),)),),
        shares=(0, 1),
        readings=("the paper also draws the embeddings during ITM, for which it has no finding",),
    ),
}
