"""Li et al. 2023, ICCV (PED, Potential Energy Decline): its tables and figures as experiments."""

from evaluation.papers.accuracies import Accuracies
from evaluation.papers.claims import Claim
from evaluation.papers.experiment import Absent, Experiment
from evaluation.papers.following import percent
from evaluation.papers.maps import SAME, MovedMaps, TunedMaps
from evaluation.papers.rankings import MEAN, SMALL, UNTRAINED, Ranked
from evaluation.papers.shifts import Shifts
from evaluation.papers.stages import ACCURACY, LOGME, Stages
from evaluation.papers.stages import row as stage

TASKS = ("aircraft", "caltech101", "cars", "cifar10", "cifar100", "flowers102", "voc07", "pets", "food101", "dtd")
INNER = ("logme", "sfda", "gbc")
KS = (0.6, 0.8, 1.0, 1.2, 1.5, 2.0)
SHARES = (0, 0.05, 0.2, 0.5, 1)  # of the steps
START, EARLY, END = percent(0), percent(0.05), percent(1)
TIMES = "the benchmarks of speed and of rankings in the source repository have the costs of all metrics"
GRID = {
    "lr": (1e-1, 1e-2, 1e-3, 1e-4),
    "weight_decay": (1e-6, 1e-5, 1e-4, 1e-3),
    "optimizer": "sgd",
    "steps": 5000,
    "batch_size": 64,
    "seeds": (0, 1, 2, 3, 4),
    "extend": False,
    "max_images": None,
    "max_test_images": None,
    "crop": (0.08, 1.0),
    "mirror": True,
}
DRAWING = "a drawing of the method, without a measurement"


def row(*taus: float) -> dict[str, float]:
    return dict(zip(TASKS, taus, strict=True))


PLAIN = {
    "nleep": row(-0.029, 0.525, 0.486, -0.044, 0.276, 0.534, -0.101, 0.792, 0.574, 0.641),
    "parc": row(-0.03, 0.196, 0.424, 0.147, -0.136, 0.622, 0.618, 0.496, 0.359, 0.447),
    "logme": row(0.223, 0.051, 0.375, 0.295, -0.008, 0.604, 0.158, 0.684, 0.570, 0.627),
    "sfda": row(0.254, 0.523, 0.515, 0.619, 0.548, 0.773, 0.568, 0.586, 0.685, 0.749),
    "gbc": row(0.048, -0.18, 0.424, 0.008, -0.249, 0.532, -0.041, 0.655, 0.268, 0.05),
}
TABLE1 = PLAIN | {
    "ped+logme": row(0.509, 0.505, 0.516, 0.511, 0.667, 0.715, 0.620, 0.795, 0.650, 0.780),
    "ped+sfda": row(0.464, 0.614, 0.647, 0.673, 0.568, 0.777, 0.583, 0.462, 0.581, 0.907),
    "ped+gbc": row(0.462, 0.285, 0.547, 0.017, 0.359, 0.768, -0.035, 0.684, 0.402, 0.576),
}
BEST_OF_K = {
    "ped+logme": row(0.509, 0.611, 0.624, 0.633, 0.668, 0.728, 0.781, 0.795, 0.737, 0.837),
    "ped+sfda": row(0.505, 0.661, 0.666, 0.741, 0.744, 0.798, 0.613, 0.592, 0.689, 0.907),
    "ped+gbc": row(0.549, 0.340, 0.629, 0.149, 0.431, 0.779, 0.552, 0.758, 0.672, 0.611),
}
RAISES = tuple(Claim(f"PED raises {name}", MEAN, ((f"ped+{name}", name),)) for name in INNER)


def swept(option: str, *values: float) -> dict[str, str]:
    """PED before LogME with each value of an option, beside LogME alone."""
    return {"logme": "logme"} | {f"{option}={value:g}": f"ped({option}={value:g})+logme" for value in values}


def above_plain(option: str, *values: float) -> tuple[Claim, ...]:
    return (Claim("PED raises LogME", MEAN, tuple((f"{option}={value:g}", "logme") for value in values)),)


EXPERIMENTS: dict[str, Experiment | Absent] = {
    "fig1": Absent(caption="Figure 1: transfer learning as a decline of potential energy.", reason=DRAWING),
    "fig2": Absent(caption="Figure 2: pipeline of the Potential Energy Decline approach.", reason=DRAWING),
    "fig3": Absent(caption="Figure 3: clusters as balls that overlap.", reason=DRAWING),
    "table1": Ranked(
        caption="Table 1: weighted tau of transferability metrics on self-supervised models.",
        cost="45 minutes, of them 40 for a zoo and its fine-tuning, which all of PED and ITM share",
        needs=TASKS,
        metrics={name: name for name in TABLE1},
        benchmark="ped",
        published=TABLE1,
        claims=RAISES,
        readings=("VOC 2007: each image has the first of its classes, as in the authors' code",),
    ),
    "fig4": Ranked(
        caption="Figure 4: the gain in tau with different lambda and time steps.",
        cost="a minute after table1",
        needs=TASKS,
        metrics=swept("lam", 0.1, 0.3, 0.6, 0.9) | swept("dt", 0.02, 0.05, 0.1, 0.2),
        benchmark="ped",
        claims=above_plain("lam", 0.3, 0.6),
        readings=("the paper draws the gain and prints no numbers",),
    ),
    "fig5": Ranked(
        caption="Figure 5: the force by steps, and the influence of the end condition.",
        cost="a minute after table1",
        needs=TASKS,
        metrics=swept("exit_ratio", 0.1, 0.3, 0.5, 0.7, 0.9),
        benchmark="ped",
        claims=above_plain("exit_ratio", 0.5),
        readings=("only the end condition is measured; `evaluation.ped_plots.plot_energy` draws the energy by steps",),
    ),
    "table3": Ranked(
        caption="Table 3: weighted tau under a grid search of the hyper-parameter k.",
        cost="a minute after table1",
        needs=TASKS,
        metrics={name: name for name in INNER}
        | {f"ped(k={k})+{name}": f"ped(k={k})+{name}" for name in INNER for k in KS},
        benchmark="ped",
        claims=tuple(
            Claim(
                f"PED raises {name}", MEAN, tuple((f"ped(k={k})+{name}", name) for k in (0.6, 0.8, 1.0, 1.2, 1.5, 2.0))
            )
            for name in INNER
        ),
        readings=("the paper's numbers are the best of k on the accuracies themselves; here every k is shown",),
    ),
    "table2": Absent(caption="Table 2: the comparison of running times on Flowers.", reason=TIMES),
    "table4": Accuracies(
        caption="Table 4: accuracies of the 12 models on 10 tasks after fine-tuning.",
        cost="no time after table1, whose accuracies they are",
        needs=TASKS,
        benchmark="ped",
        grid=GRID,
        readings=("in small: other models and data sets than the paper's, so its numbers stand in no row",),
    ),
    "fig6": MovedMaps(
        caption="Figure 6: the clusters before and after the moves.",
        cost="a minute after table1",
        needs=("cifar100",),
        name="fig6",
        models={"small": (*SMALL, *UNTRAINED), "paper": ("BYOL",)},
        data={"small": "digits", "paper": "cifar100"},
        benchmark="ped",
        mapped=("byol", "BYOL"),
        claims=(Claim("PED separates the classes", SAME, (("after PED", "before"),)),),
        readings=("the paper draws one network and no number; PED knows the labels of the images that it moves",),
    ),
    "fig7": Shifts(
        caption="Figure 7: the change of the models' ranks.",
        cost="a minute after table1",
        needs=TASKS,
        metrics={"LogME": "logme", "LogME after PED": "ped+logme"},
        benchmark="ped",
        claims=(
            Claim(
                "PED moves the ranks towards those by fine-tuning",
                MEAN,
                (("LogME after PED", "LogME"),),
                -1,
                within=0.1,
            ),
        ),
        readings=("the numbers are the mean distance of a rank from the model's rank by fine-tuning",),
    ),
    "fig8": TunedMaps(
        caption="Figure 8: the clusters during fine-tuning.",
        cost="2 minutes after table1",
        needs=("cifar100",),
        name="fig8",
        models={"small": ("byol",), "paper": ("BYOL",)},
        data={"small": "digits", "paper": "cifar100"},
        benchmark="ped",
        mapped=("byol", "BYOL"),
        claims=(
            Claim("at the beginning the classes are less separate than at the end", SAME, ((END, EARLY),)),
            Claim("the first steps do not separate them", SAME, ((EARLY, START),), 0, within=0.05),
        ),
        seeds=(0, 1, 2),
        shares=SHARES,
        readings=("test images; the paper names neither the network nor the numbers of steps",),
    ),
    "fig9": Ranked(
        caption="Figure 9: the influence of feature pre-processing.",
        cost="a minute after table1",
        needs=TASKS,
        metrics={name: name for name in INNER}
        | {f"ped+{name}, normalised": f"ped+{name}" for name in INNER}
        | {f"ped+{name}, not normalised": f"ped(normalise=false)+{name}" for name in INNER},
        benchmark="ped",
        claims=tuple(
            Claim(
                f"the normalisation raises the tau of PED before {name}",
                MEAN,
                ((f"ped+{name}, normalised", f"ped+{name}, not normalised"),),
            )
            for name in INNER
        ),
        readings=("normalised by the mean and std of the model's own training images; the paper: of ImageNet's",),
    ),
    "fig10": Stages(
        caption="Figure 10: the ranking after different numbers of fine-tuning steps.",
        cost="5 minutes after table1",
        needs=TASKS,
        metrics={stage(LOGME, share): "logme" for share in SHARES}
        | {stage(ACCURACY, share): "accuracy" for share in SHARES[1:]},
        benchmark="ped",
        claims=(
            Claim("at first fine-tuning spoils the ranking", MEAN, ((stage(LOGME, 0.05), stage(LOGME, 0)),), -1),
            Claim("then it improves", MEAN, ((stage(LOGME, 1), stage(LOGME, 0.05)),)),
        ),
        shares=SHARES,
        readings=(
            "the paper does not say what ranks the networks during fine-tuning: LogME of the training features here, "
            "on which the claims are, and the accuracy on the test images, which at the end is a part of the truth",
            "one run of each network with the setting that its ground truth chose; the rate falls along a cosine",
        ),
    ),
}
