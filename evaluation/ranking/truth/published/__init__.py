"""Fine-tuning accuracies of published models, from the papers' tables: ground truth for metrics.

    evaluation.published.truth("ped")["pets"]["BYOL"]  # 91.48

"ped": Table 4 of Li et al., Exploring Model Transferability through the Lens of Potential Energy, ICCV 2023: 12
self-supervised ResNet-50, 10 data sets, fine-tuned with a grid search, mean of 5 seeds.
"itm": Table 3 of Implicit Modeling for Transferability Estimation of Vision Foundation Models, 2025 (arXiv
2510.23145): 10 networks, 10 data sets, the highest test accuracy of a grid search.

Per cent as printed. Models have the papers' names, data sets those of `evaluation.datasets.names()`. Each cell has its
source. Five cells of PED's Table 4 differ from the table in the authors' code, each by one digit or two swapped ones:

    model     data set   paper   code
    Infomin   dtd        73.74   73.47
    MoCov1    cifar10    84.15   94.15
    PCLv1     cifar10    86.42   96.42
    PCLv1     voc07      91.91   81.91
    SimCLRv2  dtd        94.71   74.71

The last four differ by ten to twenty points from their neighbours in the paper, but not in the code, so they are
probably misprints. Therefore reading="code" is the default; reading="paper" is as printed.
"""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sslkit.errors import UserError

_TABLES = {  # benchmark -> reading -> files; later files override cells of earlier ones
    "ped": {"code": ("ped_table4.csv", "ped_table4_code.csv"), "paper": ("ped_table4.csv",)},
    "itm": {"paper": ("itm_table3.csv",)},
}


@dataclass(frozen=True)
class Cell:
    """One number of a published table. percent: as printed. source: paper and table, or the authors' code."""

    model: str
    dataset: str
    percent: float
    source: str


def names() -> tuple[str, ...]:
    """Return the names of the published benchmarks."""
    return tuple(_TABLES)


def truth(name: str, reading: str | None = None) -> dict[str, dict[str, float]]:
    """Return data set -> model -> per cent, of "ped" or "itm".

    reading: "code" or "paper", where the two differ; None for the default ("code" for ped).
    Raises UserError for an unknown benchmark or reading.
    """
    by_set: dict[str, dict[str, float]] = {}
    for cell in cells(name, reading):
        by_set.setdefault(cell.dataset, {})[cell.model] = cell.percent
    return by_set


def cells(name: str, reading: str | None = None) -> tuple[Cell, ...]:
    """Return every number of a benchmark with its source, in the order of the paper's table; see `truth`."""
    if name not in _TABLES:
        raise UserError(f"there is no published benchmark {name!r}: {', '.join(_TABLES)}")
    readings = _TABLES[name]
    if reading is not None and reading not in readings:
        raise UserError(f"benchmark {name} has no reading {reading!r}: {', '.join(readings)}")
    by_cell = {}
    for file in readings[reading or next(iter(readings))]:
        by_cell.update({(cell.model, cell.dataset): cell for cell in _read_cells(file)})
    return tuple(by_cell.values())


@cache
def _read_cells(file: str) -> tuple[Cell, ...]:
    with (Path(__file__).parent / file).open(newline="", encoding="utf-8") as lines:
        return tuple(
            Cell(row["model"], row["dataset"], float(row["percent"]), row["source"]) for row in csv.DictReader(lines)
        )
