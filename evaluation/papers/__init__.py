"""The tables, figures and claims of the papers that sslkit implements, each an experiment that one command runs.

    from evaluation.papers.reproduction import reproduce
    reproduce("dsa", "table1")

A file for each paper holds its experiments; `experiment.py` is their contract, `training.py` a kind of them.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evaluation.papers.experiment import Experiment

PAPERS = {
    "dsa": "Song et al. 2024, arXiv 2407.13541: Dynamic Semantic Adjuster",
    "adc": "Si et al. 2025, arXiv 2508.13596: Adaptive Distribution Calibration (ADC), from a summary",
    "resa": "Weng et al. 2025, arXiv 2501.18452: ReSA, from its repository",
    "ped": "Li et al. 2023, ICCV: Exploring Model Transferability through the Lens of Potential Energy",
    "itm": "Improved transferability modelling, an implicit latent space (ITM)",
    "leep": "Nguyen et al. 2020, ICML: LEEP, with its supplement",
}


def experiments(paper: str) -> "dict[str, Experiment]":
    """The experiments of a paper by `what`, in the paper's order."""
    return importlib.import_module(f"{__name__}.{paper}").EXPERIMENTS
