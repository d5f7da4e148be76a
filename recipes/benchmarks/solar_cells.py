"""ELPV's 2,624 photographs of solar cells (Deitsch et al. 2019, arXiv 1807.02894), from the wheel elpv-dataset."""

import importlib.util
from functools import cache
from pathlib import Path

from sslkit.errors import UserError

PUBLISHED = {"support vector machine": 82.44, "convolutional network": 88.42}  # accuracies of table 3


@cache
def read_cells() -> list[tuple[str, float]]:
    """The path of each cell and the probability of its defect, from the installed wheel."""
    wheel = importlib.util.find_spec("elpv_dataset")
    if wheel is None:
        raise UserError("there is no wheel elpv-dataset: pip install elpv-dataset")
    folder = Path(wheel.origin).parent / "data"
    lines = (folder / "labels.csv").read_text().split("\n")
    return [(str(folder / line.split()[0]), float(line.split()[1])) for line in lines if line.strip()]
