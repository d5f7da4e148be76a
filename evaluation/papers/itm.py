"""Zheng et al. 2025, arXiv 2510.23145 (ITM, Implicit Transferability Modeling): its tables and figures."""

from dataclasses import replace

from evaluation.papers.claims import Claim
from evaluation.papers.experiment import Absent, Experiment
from evaluation.papers.rankings import MEAN, Ranked

TASKS = ("caltech101", "cars", "cifar100", "cifar10", "dtd", "aircraft", "flowers102", "food101", "pets", "sun397")
LATER = "not built yet"
TRUTH = "the published accuracies are `evaluation.published.truth`; in small the experiments measure their own"
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
COLUMNS = {"itm as the code": "itm", "itm as the paper": "itm(variant=paper)", "itm as the paper, its check": PAPER}
ABOVE = tuple((("itm", other),) for other in TABLE1 if other != "itm")
TABLE = Ranked(
    caption="Table 1: weighted Kendall's tau of different methods on various data sets.",
    cost="2 minutes after paper=ped what=table1, with whose zoo and fine-tuning it works",
    needs=TASKS,
    metrics={name: name for name in TABLE1 if name != "itm"} | {"itm": "itm"} | COLUMNS,
    benchmark="itm",
    published=TABLE1,
    claims=tuple(Claim(f"ITM is above {pair[0][1]}", MEAN, pair) for pair in ABOVE),
    readings=READINGS,
)
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
    "table3": Absent(caption="Table 3: the highest accuracy of models on various data sets.", reason=TRUTH),
    "fig1": Absent(caption="Figure 1: relative results of recent methods across ten benchmarks.", reason=LATER),
    "fig2": Absent(caption="Figure 2: the full fine-tuning of differently pretrained models on Pets.", reason=LATER),
    "fig6": Absent(caption="Figure 6: mean and variance of features of models on Caltech-101.", reason=LATER),
    "fig7": Absent(caption="Figure 7: embeddings before and after fine-tuning on CIFAR-10.", reason=LATER),
}
