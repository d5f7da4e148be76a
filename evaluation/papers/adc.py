"""Si et al. 2025, arXiv 2508.13596 (ADC, the successor of DSA): what a third party's summary tells of its experiments.

The paper itself could not be read: the numbers are the summary's, and tables that it does not show are not here. Rows
and settings in small are those of DSA's tables; see `dsa.py`.
"""

from collections.abc import Mapping

from evaluation.papers.claims import Claim
from evaluation.papers.dsa_rows import accuracies, row
from evaluation.papers.experiment import Absent, Experiment
from evaluation.papers.training import PROBE, Row, Training

CIFAR10 = {"W-MSE": (91.99, 93.81), "SimSiam": (91.71, 93.41), "SimCLR": (91.80, 93.46), "BYOL": (91.73, 93.70)}
NAMES = {"W-MSE": "w_mse", "SimSiam": "simsiam", "SimCLR": "simclr", "BYOL": "byol"}
PRIORS = {"prior identity": "identity", "prior hog": "hog", "prior self": "self"}
SUMMARY = "numbers from a third party's summary; DCM and LPM are partly reconstructed, see sslkit/regularizers/adc.py"
RESNET18 = ("experiment=paper/cifar_resnet18", "data=torchvision:CIFAR10:ROOT")
ON = {"small": "fashion_mnist", "paper": "cifar10"}


def on_cifar(method: str, published: Mapping[str, float], *words: str) -> Row:
    """In small the tuned settings; at the paper's scale CIFAR-10 with ResNet-18, in our settings for that size."""
    prior = ("method.adc.prior=clip",) if "+adc" in method and not words else ()
    return Row((*row(method, {}).small, *words), (f"method={method}", *RESNET18, *prior, *words), published)


def linear() -> dict[str, Row]:
    rows = {}
    for name, (plain, added) in CIFAR10.items():
        rows[name] = on_cifar(NAMES[name], accuracies(plain))
        rows[f"{name} + ADC"] = on_cifar(f"{NAMES[name]}+adc", accuracies(added))
    return rows


def priors() -> dict[str, Row]:
    rows = {}
    for name in ("SimCLR", "BYOL"):
        method = f"{NAMES[name]}+adc"
        rows[f"{name} + ADC"] = on_cifar(method, {})
        rows |= {f"{name} + ADC, {part}": on_cifar(method, {}, f"method.adc.prior={p}") for part, p in PRIORS.items()}
    return rows


EXPERIMENTS: dict[str, Experiment | Absent] = {
    "linear": Training(
        caption="Linear evaluation on CIFAR-10 with ResNet-18.",
        cost="45 minutes",
        needs=("cifar10",),
        readings=(SUMMARY, "the settings of the training are not known: in small the tuned ones, for CIFAR-10 ours"),
        rows=linear(),
        columns={"top-1": PROBE},
        judged_on=ON,
        claims=(Claim("ADC raises the accuracy", "top-1", tuple((f"{name} + ADC", name) for name in CIFAR10)),),
    ),
    "priors": Training(
        caption="Ablation of the pretrained encoder of LPM: identity, SimCLR, CLIP, EVA-02.",
        cost="45 minutes",
        needs=("cifar10",),
        readings=(SUMMARY, "the finding is known, its numbers are not", "in small pca, hog and self beside identity"),
        rows=priors(),
        columns={"top-1": PROBE},
        judged_on=ON,
        claims=(
            Claim(
                "another prior is as good",
                "top-1",
                tuple((f"{name} + ADC, {part}", f"{name} + ADC") for part in PRIORS for name in ("SimCLR", "BYOL")),
                0,
            ),
        ),
    ),
}
