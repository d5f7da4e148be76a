"""Every public function of `evaluation`, called once in a process of its own: what of the process each has changed.

main(names) prints {name: {part of the process: [before, after]}} as JSON. The folder has entry, other, digits.npz, zoo.
"""

import json
import locale
import logging
import os
import random
import signal
import sys
import types
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch

import evaluation
import sslkit

ENTRY, DIGITS = "entry", "digits.npz"
QUICK = {"cache": "cache", "progress": False, "device": "cpu"}
SHORT = {"schedule": "smoke", "steps": 1, "batch_size": 2, "trials": 1, "out": "out", "progress": False}


@cache
def features(split: str) -> evaluation.Features:
    return evaluation.extract(ENTRY, DIGITS, split, **QUICK)


@cache
def boxes() -> dict[str, Any]:
    from detectors import images

    return {split: images(3, split) for split in ("train", "test")}


@cache
def ranking() -> evaluation.Ranking:
    return evaluation.rank([ENTRY], DIGITS, ["logme", "knn", "nleep", "ncti"], bootstrap=2, workers=0, **QUICK)


def both() -> tuple[evaluation.Features, evaluation.Features]:
    return features("train"), features("test")


def splits() -> tuple[Any, Any]:
    return evaluation.open_split(DIGITS, "train"), evaluation.open_split(DIGITS, "test")


def films() -> str:
    from motion_films import write_motions

    return f"video:{write_motions(Path('films'))}"


def defects() -> Path:
    from defective import write_mvtec

    return write_mvtec(Path("mvtec"))


def results() -> list[evaluation.Result]:
    return [evaluation.knn(*both()), evaluation.knn(*both(), k=5)]


def settled(paths: Path) -> None:
    from evaluation.features.plots import plot_confusion, plot_features

    plot_features(features("test"), paths / "map.png")
    plot_confusion([0, 1, 1], [0, 1, 0], ["a", "b"], paths / "confusion.png")


def measured() -> None:
    from evaluation.ranking.truth.ground_truth import ground_truth

    ground_truth([ENTRY], DIGITS, out="truth", lr=[0.01], steps=2, seeds=[0, 1], **QUICK)


def chosen() -> None:
    from evaluation.ranking.choice.halving import successive_halving

    successive_halving([ENTRY, "other"], DIGITS, out="choice", steps=4, first=2, seeds=[0], lr=[0.01], **QUICK)


def ranked() -> None:
    from evaluation.ranking.summary import rank_tasks

    rank_tasks([ENTRY, "other"], DIGITS, ["logme"], bootstrap=2, out="ranking", **QUICK)


def embedded() -> None:
    from evaluation.embedding.run import run

    run(ENTRY, DIGITS, "features.npz", neighbours=2, duplicates=True, map="tsne", **QUICK)


FUNCTIONS: dict[str, Callable[[], Any]] = {
    "load": lambda: sslkit.load(ENTRY),
    "open_split": splits,
    "extract": both,
    "evaluate": lambda: evaluation.evaluate(ENTRY, DIGITS, ["linear", "knn", "crowding"], pictures=True, **QUICK),
    "knn": results,
    "linear_probe": lambda: evaluation.linear_probe(*both(), progress=False),
    "fit_logistic": lambda: evaluation.fit_logistic(features("train").x, features("train").y, 1.0),
    "crowding": lambda: evaluation.crowding(features("test")),
    "few_shot": lambda: evaluation.few_shot(features("test"), n_way=3, k_shot=1, n_query=2, episodes=10),
    "draw_episodes": lambda: evaluation.draw_episodes(features("test"), n_way=3, k_shot=1, n_query=2, episodes=5),
    "lidar": lambda: evaluation.lidar(ENTRY, splits()[0], q=2, n_images=20, device="cpu"),
    "view_retrieval": lambda: evaluation.view_retrieval(ENTRY, splits()[0], n_images=20, device="cpu"),
    "patch_quality": lambda: evaluation.patch_quality(
        "random:narrow_vit", DIGITS, image_size=32, n_images=64, out="patches", device="cpu"
    ),
    "anomaly": lambda: evaluation.anomaly("random:narrow_vit", defects(), image_size=32, device="cpu", out="defects"),
    "attentive": lambda: evaluation.attentive(ENTRY, DIGITS, grid={"iterations": 5}, out="probes", **QUICK),
    "clustering": lambda: evaluation.clustering(features("test"), restarts=2),
    "evaluators": lambda: evaluation.evaluators("knn", DIGITS, cache="cache", progress=False),
    "robustness": lambda: evaluation.robustness(ENTRY, DIGITS, out="robust", **QUICK),
    "retrieval": lambda: evaluation.retrieval(ENTRY, DIGITS, draw=["worst"], out="retrieved", **QUICK),
    "linear_grid": lambda: evaluation.linear_grid(ENTRY, DIGITS, grid={"iterations": 5}, out="grid", **QUICK),
    "linear_on_views": lambda: evaluation.linear_on_views(ENTRY, *splits(), epochs=1, device="cpu", progress=False),
    "fine_tune": lambda: evaluation.fine_tune(
        ENTRY, DIGITS, grid={"lr": [0.01]}, extend=False, steps=2, seeds=[0, 1], out="tuned", workers=2, **QUICK
    ),
    "solve": lambda: evaluation.solve(DIGITS, [ENTRY], methods=[], tune=False, out="solved", **QUICK),
    "finetune": lambda: evaluation.finetune(ENTRY, DIGITS, head="linear", out="finetuned", **QUICK),
    "semi_supervised": lambda: evaluation.semi_supervised(ENTRY, DIGITS, fraction=4, draws=2, epochs=1, **QUICK),
    "object_detection": lambda: evaluation.object_detection("random:narrow_resnet", boxes(), image_size=28, **SHORT),
    "instance_segmentation": lambda: evaluation.instance_segmentation(
        "random:narrow_resnet", boxes(), image_size=28, **SHORT
    ),
    "action_recognition": lambda: evaluation.action_recognition(
        "random:narrow_slow", films(), epochs=1, frames=4, clips=1, crops=1, out="action", image_size=16, progress=False
    ),
    "embed": lambda: evaluation.embed(ENTRY, DIGITS, **QUICK),
    "rank": ranking,
    "score": lambda: evaluation.score("logme", features("train")),
    "evaluate_metric": lambda: evaluation.evaluate_metric("logme", features("train")),
    "metrics": evaluation.metrics,
    "weighted_tau": lambda: evaluation.weighted_tau([1, 2, 3], [1, 3, 2]),
    "compare": lambda: evaluation.compare(*results()),
    "compare_all": lambda: evaluation.compare_all(results()),
    "decide": lambda: evaluation.decide(results()[:1]),
    "table": lambda: evaluation.table(results()),
    "report.write_report": lambda: evaluation.report.write_report("zoo", "report.html"),
    "plots": lambda: settled(Path()),
    "ranking.ground_truth": measured,
    "ranking.successive_halving": chosen,
    "ranking.rank_tasks": ranked,
    "embedding.run": embedded,
}


def public() -> set[str]:
    """The functions among the names of `evaluation.__all__`."""
    return {name for name in evaluation.__all__ if isinstance(getattr(evaluation, name), types.FunctionType)}


def process() -> dict[str, str]:
    """All that a function may change for its caller, as text.

    But SIGCHLD: torch has one handler for all loaders with workers, and sets it once.
    """
    numbers = signal.valid_signals() - {signal.SIGCHLD}
    cudnn, cuda = torch.backends.cudnn, torch.backends.cuda
    return {
        "backend of matplotlib": matplotlib.rcParams._get_backend_or_none() or "none yet",
        "settings of matplotlib": repr([item for item in dict.items(matplotlib.rcParams) if item[0] != "backend"]),
        "environment": repr(sorted(os.environ.items())),
        "folder": os.getcwd(),
        "path": repr(sys.path),
        "threads": f"{torch.get_num_threads()} {torch.get_num_interop_threads()}",
        "default type and device": f"{torch.get_default_dtype()} {torch.get_default_device()}",
        "random numbers of torch": str(torch.get_rng_state().tolist()),
        "random numbers of numpy": repr(np.random.get_state()[1].tolist()),
        "random numbers of python": repr(random.getstate()),
        "filters of warnings": repr(warnings.filters),
        "form of warnings": f"{warnings.formatwarning.__module__} {warnings.showwarning.__module__}",
        "signals": repr({number: signal.getsignal(number) for number in numbers}),
        "cudnn": f"{cudnn.benchmark} {cudnn.deterministic} {cudnn.allow_tf32} {cudnn.enabled}",
        "matmul": f"{cuda.matmul.allow_tf32} {torch.get_float32_matmul_precision()}",
        "deterministic": f"{torch.are_deterministic_algorithms_enabled()} {torch.backends.mkldnn.enabled}",
        "sharing": torch.multiprocessing.get_sharing_strategy(),
        "gradients": f"{torch.is_grad_enabled()} {torch.is_inference_mode_enabled()}",
        "errors of numpy": repr(np.geterr()),
        "numbers of numpy": repr(np.get_printoptions()),
        "logging": f"{logging.root.level} {logging.root.handlers} {logging.raiseExceptions}",
        "locale": repr(locale.setlocale(locale.LC_ALL)),
        "hooks": f"{sys.excepthook} {sys.stdout} {sys.stderr}",
    }


def main(names: Sequence[str]) -> None:
    with redirect_stdout(sys.stderr):
        changed = {}
        for name in names:
            before = process()
            FUNCTIONS[name]()
            after = process()
            changed[name] = {part: [before[part], after[part]] for part in before if before[part] != after[part]}
    print(json.dumps(changed))
