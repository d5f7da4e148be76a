"""Do metrics on windows of a segmentation set rank models by the mIoU that their frozen patches reach there?

    python recipes/benchmarks/ranking_zoo.py runs/study
    python recipes/benchmarks/segmentation_ranking.py --zoo runs/study      (seconds a model; resumes)
    python recipes/benchmarks/segmentation_ranking.py --table               (print the committed results)

Truth: mIoU of linear_seg on the 150 test images of clipart_boxes at 128 pixels, their size, a linear classifier of
frozen patches fitted to the 500 training images; nothing is fine-tuned. (At the entries' own 28 pixels most networks
have one place in their map, and predict background.) Scores: as recipes/rank.py computes them, at the networks' own
size, of 500 windows of the training images (`data=masks:clipart_boxes`); beside them, of 500 whole drawings
(`data=clipart`). Intervals are over models.
"""

import argparse
import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from detection_ranking import SHOWN, agreement_cells
from results import keep, load
from tqdm import tqdm

import evaluation
from evaluation.datasets import open_split
from evaluation.features.models import load_model
from evaluation.features.zoo_members import load_member, members
from evaluation.protocols.linear_seg import linear_seg
from evaluation.ranking.candidates import sampled
from evaluation.ranking.windows import open_windows
from sslkit.terminal.tables import markdown

RESULTS = "segmentation_ranking"
IMAGES, SIZE, WHEEL = 500, 128, 32  # scored windows; pixels of the truth, and of networks outside a zoo
METRICS = ("knn", "logme", "h_score_regularized", "parc", "gbc", "linear_probe", "ped+logme", "itm", "feature_dim")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--zoo", nargs="+", default=["runs/study"], help="models, as in recipes/rank.py")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--table", action="store_true", help="print the results and exit")
    args = parser.parse_args()
    if not args.table:
        torch.set_num_threads(args.threads)
        measure(args.zoo)
    print(table(load(RESULTS)["runs"]))


def measure(zoo: list[str]) -> None:
    """Measure mIoU, then score the models; finished parts are not done again."""
    given = members(zoo)
    models = {name: load_member(one, WHEEL) for name, one in given.items()}
    for name, one in tqdm(given.items(), unit="model", leave=False, disable=None):
        if f"miou | {name}" not in load(RESULTS)["runs"]:
            found = linear_seg(load_model(one, image_size=SIZE), "clipart_boxes", progress=False)
            keep(RESULTS, f"miou | {name}", {"miou": found.value, "seconds": round(found.seconds, 1)})
    tasks = {"windows": open_windows("clipart_boxes"), "whole images": open_split("clipart", "train")}
    for told, task in tasks.items():
        ranking = evaluation.rank(models, sampled(task, IMAGES, 0), METRICS, bootstrap=0, progress=False)
        for k, metric in enumerate(ranking.metrics):
            keep(RESULTS, f"scores | {told} | {metric}", dict(zip(ranking.models, ranking.scores[:, k], strict=True)))


def table(runs: dict) -> str:
    """Markdown tables: mIoU of the models, and each metric's agreement with it."""
    truth = {key.partition(" | ")[2]: 100 * one["miou"] for key, one in runs.items() if key.startswith("miou | ")}
    rows = [
        ["model", "mIoU, %"],
        *([name, f"{truth[name]:.1f}"] for name in sorted(truth, key=truth.get, reverse=True)),
    ]
    columns = [["windows of", "metric", *SHOWN]]
    for key, scores in runs.items():
        kind, *rest = key.split(" | ")
        if kind == "scores":
            columns.append([*rest, *agreement_cells(truth, scores)])
    return f"{markdown(rows, [1])}\n\n{markdown(columns, range(2, len(columns[0])))}"


if __name__ == "__main__":
    main()
