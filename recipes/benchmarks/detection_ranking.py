"""Do metrics on the objects of a detection set rank models by the AP that they reach there?

    python recipes/benchmarks/ranking_zoo.py runs/study
    python recipes/benchmarks/detection_ranking.py --zoo runs/study      (4 minutes a model on one core; resumes)
    python recipes/benchmarks/detection_ranking.py --table               (print the committed results)

Truth: COCO AP on the 150 test images of clipart_boxes after 400 steps on its training images (C4, schedule smoke, all
weights), as in detection_study.py. Scores: of 500 crops of the training images' objects, near misses and background
(`data=boxes:clipart_boxes` of recipes/rank.py); beside them, of whole images of clip art (`data=clipart`), which say
nothing of places. Intervals are over models.
"""

import argparse
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import torch
from results import keep, load
from tqdm import tqdm

import evaluation
from evaluation.datasets import open_split
from evaluation.protocols.detection import detection
from evaluation.ranking.agreement import agreement
from evaluation.ranking.candidates import sampled
from evaluation.ranking.objects import open_objects
from sslkit.errors import UserError
from sslkit.terminal.tables import markdown

RESULTS = "detection_ranking"
STEPS, IMAGES = 400, 500
METRICS = ("knn", "logme", "tlogme", "det_logme", "h_score", "parc", "gbc", "linear_probe", "ped+logme", "itm")
# Narrow ResNets, because C4 takes no other; from all objectives, lengths and sources of the zoo.
MODELS = (
    "simclr-clipart-narrow_resnet-e10-s0",
    "byol-clipart-narrow_resnet-e10-s0",
    "simclr-fashion_mnist-narrow_resnet-e2-s0",
    "simclr+dsa-fashion_mnist-narrow_resnet-e6-s0",
    "swav-fashion_mnist-narrow_resnet-e2-s0",
    "nnclr-fashion_mnist-narrow_resnet-e6-s0",
    "supervised-fashion_mnist-narrow_resnet-e4-s0",
    "densecl-fashion_mnist-narrow_resnet-e4-s1",
    "simclr-glyphs-narrow_resnet-e1-s0",
    "random:simclr-fashion_mnist-narrow_resnet-e2-s0",
)
SHOWN = ("weighted tau (Vigna)", "regret@1", "recall@3")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--zoo", type=Path, default=Path("runs/study"), help="folder of the entries")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0], help="of the detectors")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--table", action="store_true", help="print the results and exit")
    args = parser.parse_args()
    if not args.table:
        torch.set_num_threads(args.threads)
        measure(args.zoo, args.seeds)
    print(table(load(RESULTS)["runs"]))


def measure(zoo: Path, seeds: list[int]) -> None:
    """Train the detectors, then score the models; finished parts are not done again."""
    runs = [(name, seed) for seed in seeds for name in MODELS]
    for name, seed in tqdm(runs, unit="detector", leave=False, disable=None):
        key = f"ap | {name} | {seed}"
        if key not in load(RESULTS)["runs"]:
            how = {"arch": "c4", "schedule": "smoke", "steps": STEPS, "seed": seed, "progress": False}
            coco, *_ = detection(word(name, zoo), "clipart_boxes", **how)
            keep(RESULTS, key, {"coco_ap": coco.value, "seconds": round(coco.seconds)})
    models = {name: word(name, zoo) for name in MODELS}
    tasks = {"objects": open_objects("clipart_boxes"), "whole images": open_split("clipart", "train")}
    for told, task in tasks.items():
        ranking = evaluation.rank(models, sampled(task, IMAGES, 0), METRICS, bootstrap=0, progress=False)
        for k, metric in enumerate(ranking.metrics):
            if np.isnan(ranking.scores[:, k]).all():  # metrics of boxes on whole images, which have none
                continue
            keep(RESULTS, f"scores | {told} | {metric}", dict(zip(ranking.models, ranking.scores[:, k], strict=True)))


def word(name: str, zoo: Path) -> str:
    """Return the model as `evaluation.load_model` takes it."""
    untrained = name.startswith("random:")
    return f"{'random:' if untrained else ''}{zoo / name.removeprefix('random:')}"


def table(runs: dict[str, Any]) -> str:
    """Markdown tables: AP of each model, and each metric's agreement with it."""
    by_model: dict[str, list[float]] = {}
    for key, found in runs.items():
        kind, *rest = key.split(" | ")
        if kind == "ap":
            by_model.setdefault(rest[0], []).append(100 * found["coco_ap"])
    truth = {name: float(np.mean(values)) for name, values in by_model.items()}
    rows = [["model", "COCO AP, %"]]
    for name in sorted(truth, key=truth.get, reverse=True):
        rows.append([name, ", ".join(f"{value:.1f}" for value in by_model[name])])
    columns = [["crops of", "metric", *SHOWN]]
    for key, scores in runs.items():
        kind, *rest = key.split(" | ")
        if kind == "scores":
            columns.append([*rest, *agreement_cells(truth, scores)])
    return f"{markdown(rows, [1])}\n\n{markdown(columns, range(2, len(columns[0])))}"


def agreement_cells(truth: dict[str, float], scores: dict[str, float]) -> list[str]:
    """Cells of SHOWN with their intervals over models; "-" where there is no value."""
    names = list(truth)
    try:
        found = agreement(np.array([truth[name] for name in names]), np.array([scores[name] for name in names]))
    except UserError:
        return ["-"] * len(SHOWN)
    cells = []
    for name in SHOWN:
        one = next((one for one in found if one.name == name), None)
        bounds = "" if one is None or one.interval is None else " ({:.2f} to {:.2f})".format(*one.interval)
        cells.append("-" if one is None else f"{one.value:.2f}{bounds}")
    return cells


if __name__ == "__main__":
    main()
