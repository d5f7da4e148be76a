"""The plan of the study.

Plan, written before the first run (2026-11-27).

Data. fashion: the embedded Fashion-MNIST, 8,000 training and 2,000 test images. letters: 500 of the 1,219 letters of
the embedded glyphs, drawn once from all scripts, 16 renders of each in training and 4 in test; the class is the letter.
clipart: the embedded clip art, in colour at its full size of 48 pixels, 1,895 training and 473 test images. 6 epochs
(clipart: 12); 50 epochs of fashion.
Objectives: OBJECTIVES, with the settings tuned without a plug-in, and BESIDE, which arrange by themselves. Plug-ins:
FORMS, each with its defaults, `dsa, paper` with the paper's weights, and one prior in place of another. wheel: an
ImageNet network (efficientnet-lite0), of the clean images alone, for the time. Controls: "random network", a prior of
random weights; "shuffled", each image has the features of one other image; "alone", the objective's terms times 0.
Parts, in this order: PARTS. Seeds 200 to 202 were used for no choice; test images are read at the end of a run.

Measured of each network: the quick probe and 10-NN of the run, inter- and intra-class distances, few-shot (5-way,
5-shot) on the letters that no run was trained with, and the mean probe on fashion, clip art and digits but for the set
that it was trained on.

What decides. A plug-in helps on a set if the mean over OBJECTIVES of its gain in the probe has a 95 % t-interval above
0, over plain and over its random-network control; the sample are the objectives, each the mean over its seeds. It helps
one objective if the same holds over the seeds, where there are three. Claims: "DSA +2.04" agrees if the mean gain of
`dsa, paper` on fashion over the objectives that compare views has an interval above 0; "ADC gains 1.5 to 2, whatever
the prior" agrees if adc's is, and if adc with identity, hog, wheel and self differs from adc with pca by intervals
within 2 points. No gain is a result like any other, and stands first where it is the answer.

Amendment, after 50 runs (fashion, 6 epochs, seed 200), for the time: a run of MAE takes 300 seconds, three times as
long as the others', so on fashion at 6 epochs MAE has one seed, and it takes no part in `priors`.

Amendment, after 187 runs and before any of `long`, for the time: at 50 epochs, where a run of MAE takes half an hour,
its four runs give way to guide's random-network control, without which the rule cannot judge guide there.

Amendment, after the runs of letters: beside objectives that do not compare views, ADC, SIGReg and VISReg have another
default since, chosen on held-out images (LOG.md). MAE's runs with them are made again; those with their weights
are in the history, at commit da51ad64.

Amendment, after these 365 runs, since on fashion no plug-in was above its prior alone: the same on letters and clip art
(`alone`), where a plug-in is above its prior alone if the mean over the objectives of their difference has an interval
above 0. And another seed there (`again`) of plain and the three plug-ins that have a prior.

Amendment, after these 421 runs: after 50 epochs guide raises 10-NN, few-shot and transfer, so its prior alone is run
there too (`long_alone`).

Amendment, after these 425 runs: the third seed in `again`, and at 50 epochs the other two of plain, guide and guide
alone (`long_again`), since guide was above its prior alone there.

Amendment, after 441 runs and before any of `long_again`, for completeness: at 50 epochs dsa and adc get the same seeds
(`long_others`), and MAE the one seed that it had given up (in `long`).
"""

from dataclasses import dataclass
from typing import Any

OBJECTIVES = ("byol", "simclr", "barlow_twins", "swav", "mae")  # a kind each; a step of DINO is six of SwAV
SLOW = ("mae",)
BESIDE = ("resa", "nnclr")
EPOCHS = {"fashion": 6, "letters": 6, "clipart": 12}
LONG = 50
SEEDS = (200, 201, 202)
PRIORED = ("dsa", "adc", "guide")
PRIORS: dict[str, dict[str, Any]] = {
    "random network": {"prior": "plugins.controls:random_network", "mode": "view"},
    "shuffled": {"prior": "features:{shuffled}", "mode": "cached"},
    "identity": {"prior": "identity"},
    "hog": {"prior": "hog", "prior_size": 32},
    "self": {"prior": "self"},
    "wheel": {"prior": "zoo:efficientnet_lite0", "prior_size": 64, "mode": "cached"},
}
FORMS: dict[str, tuple[str, dict[str, Any]]] = {  # plug-in, its options
    "plain": ("", {}),
    "dsa": ("dsa", {}),
    "dsa, paper": ("dsa", {"balance": None}),
    "adc": ("adc", {}),
    "guide": ("guide", {}),
    **{f"{plugin}, {prior}": (plugin, options) for plugin in PRIORED for prior, options in PRIORS.items()},
    **{f"{plugin}, alone": (plugin, {}) for plugin in PRIORED},
    "sigreg": ("sigreg", {}),
    "visreg": ("visreg", {}),
    "koleo": ("koleo", {}),
}
CONTROLS = tuple(f"{plugin}, random network" for plugin in PRIORED)
CORE = ("plain", "dsa", "dsa, paper", "adc", "guide", *CONTROLS, "sigreg", "visreg", "koleo")
OTHER_PRIORS = tuple(form for form in FORMS if form not in CORE)
ALONE = tuple(f"{plugin}, alone" for plugin in PRIORED)
BESIDE_KIND = {
    True: "byol",
    False: "mae",
}  # the one beside which a plug-in's code is tried, if an objective compares views
PRIORS_OF_CODE = tuple(prior for prior in PRIORS if prior not in ("shuffled", "wheel"))  # which are files


def parts_of(run: str) -> list[str]:
    """The parts of the code (`fingerprints.py`) that a run rests on, by its name "DATA | OBJECTIVE | FORM | ..."."""
    _, name, form, *_ = run.split(" | ")
    return [name, *parts_of_form(form, BESIDE_KIND[name not in SLOW]), "judging"]


def parts_of_form(form: str, kind: str) -> list[str]:
    """The parts that a form adds: its plug-in, beside an objective of this kind, and its prior."""
    plugin = FORMS[form][0]
    if not plugin:
        return []
    prior = form.removeprefix(f"{plugin}, ")
    whole = form if form in CORE and form not in CONTROLS else plugin
    return [f"{kind} + {whole}", *([f"{BESIDE_KIND[True]} + guide, {prior}"] if prior in PRIORS_OF_CODE else [])]


@dataclass(frozen=True)
class Part:
    """Runs of the plan: every form with every objective, `beside` with BESIDE, on every set and seed.

    slow_seeds: those of SLOW.
    """

    data: tuple[str, ...]
    forms: tuple[str, ...]
    seeds: tuple[int, ...]
    beside: tuple[str, ...] = ()
    epochs: int | None = None
    slow_seeds: tuple[int, ...] = SEEDS[:1]

    def runs(self) -> list[tuple[str, str, str, int, int]]:
        """(data, objective, form, epochs, seed) of each run, seed by seed."""
        pairs = [(name, form) for name in OBJECTIVES for form in self.forms]
        pairs += [(name, form) for name in BESIDE for form in self.beside]
        return [
            (data, *pair, self.epochs or EPOCHS[data], seed)
            for seed in self.seeds
            for data in self.data
            for pair in pairs
            if pair[0] not in SLOW or seed in self.slow_seeds
        ]


PARTS = {
    "short": Part(("fashion",), CORE, SEEDS, beside=("plain", "dsa")),
    "sets": Part(("letters", "clipart"), CORE, SEEDS[:1], beside=("plain", "dsa")),
    "priors": Part(("fashion",), OTHER_PRIORS, SEEDS[:1], slow_seeds=()),
    "long": Part(("fashion",), ("plain", "dsa", "adc", "guide", "guide, random network"), SEEDS[:1], epochs=LONG),
    "alone": Part(("letters", "clipart"), ALONE, SEEDS[:1], slow_seeds=()),
    "again": Part(("letters", "clipart"), ("plain", *PRIORED), SEEDS[1:], slow_seeds=()),
    "long_alone": Part(("fashion",), ALONE[-1:], SEEDS[:1], epochs=LONG, slow_seeds=()),
    "long_again": Part(("fashion",), ("plain", "guide", ALONE[-1]), SEEDS[1:], epochs=LONG, slow_seeds=()),
    "long_others": Part(("fashion",), ("dsa", "adc"), SEEDS[1:], epochs=LONG, slow_seeds=()),
}
