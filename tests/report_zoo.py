"""A small zoo on the disk for tests of the report: real digits judged and ranked, one name that attacks the page."""

import json
import shutil
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image

import evaluation
from evaluation.results import store
from sslkit import backbones, zoo
from sslkit.data.sources.named import open_images
from sslkit.training.monitor import History

HOSTILE = "<img src=x onerror=alert(1)> & \"quoted\" 'name'"
ENTRIES = {"byol+dsa-digits": 0.912, "simclr-digits": 0.704, HOSTILE: 0.55}
EPOCHS = {"byol+dsa-digits": 3, "simclr-digits": 20}  # of the others: 100
LOST = [f"photos/<b>broken</b> {i}.jpg" for i in range(3)]
COLUMNS = {"byol+dsa-digits": slice(0, 64), "simclr-digits": slice(0, 24), HOSTILE: slice(24, 32)}  # of the pixels


def make_zoo(root: Path) -> Path:
    """root/zoo with three entries, two of them with results; root/ranking with one ranking with truth, one without."""
    for part in ("zoo", "ranking"):
        shutil.copytree(Path(_made().name, part), root / part)
    return root / "zoo"


@cache
def _made() -> tempfile.TemporaryDirectory:
    """A folder with the zoo and its rankings, made once for all tests of a process."""
    folder = tempfile.TemporaryDirectory()
    root = Path(folder.name)
    for name, knn in ENTRIES.items():
        make_entry(root / "zoo" / name, knn)
    train, test = (digits(split) for split in ("train", "test"))
    for name in list(ENTRIES)[:2]:
        part = COLUMNS[name]
        result = evaluation.knn((train[0][:, part], train[1]), (test[0][:, part], test[1]))
        store.append(root / "zoo" / name, replace(result, model=name, data="digits", paired_on="the test digits"))
    rank(root, train, test)
    return folder


def make_entry(folder: Path, knn: float) -> None:
    method = folder.name.split("-")[0] if "digits" in folder.name else "swav"
    epochs = EPOCHS.get(folder.name, 100)
    body = backbones.build("narrow_resnet", image_size=8, in_chans=1)
    net = {"name": "narrow_resnet", "lines": body.recipe.lines, "image_size": 8, "in_chans": 1, "width": body.width}
    card = {
        "format": 1,
        "method": method,
        "options": {},
        "config": {"method": method, "epochs": epochs, "seed": 7, "data": {"source": "digits"}, "eval": {"k": 10}},
        "backbone": net,
        "load": f"# {folder.name}",
        "normalize": {"mean": [0.3], "std": [0.4]},
        "data": {"source": "digits", "images": 1347, "digest": "d1" * 32, "licence": "BSD-3-Clause", "held_out": True},
        "seed": 7,
        "epochs": epochs,
        "date": "2026-11-21T10:00:00+00:00",
        "commit": "c0ffee",
        "versions": {"sslkit": "0.1.0", "torch": "2.15.0"},
        "seconds": 42.5,
        "before": {"knn": 0.4, "probe": 0.5, "inter": 0.1, "intra": 0.02, "n": 450},
        "after": {"knn": knn, "probe": knn + 0.01, "inter": 0.4, "intra": 0.2, "n": 450},
        "diagnostics": {"rankme": 31.25, "uniformity": -1.0},
        "unreadable": LOST if method == "swav" else [],
    }
    zoo.save(folder, body.export(), card)
    steps = [{"epoch": 1, "step": step, "align": 2.0 - step / 100, "loss": 3.0 - step / 100} for step in (10, 20, 30)]
    judged = {"epoch": 1, "step": 30, "images_per_second": 900.0, "waiting": 0.01, "rankme": 30.0, "knn": 0.6}
    history = History(folder, unit="images", k=20, log_every=10)
    history.rows = [*steps, {**judged, "probe": 0.7}]
    history.write()
    images = open_images("digits").pixels[:4, 0].astype(np.uint8)
    Image.fromarray(np.hstack(list(images))).resize((320, 80)).save(folder / "embedding.png")


def rank(root: Path, train: tuple, test: tuple) -> None:
    """Rankings of parts of the pixels, the truth their measured accuracy as neighbours."""
    parts = {name: (train[0][:300, part], train[1][:300]) for name, part in COLUMNS.items()}
    truth = {
        name: evaluation.knn((train[0][:, part], train[1]), (test[0][:, part], test[1])).value
        for name, part in COLUMNS.items()
    }
    for name, known in (("digits", truth), ("without_truth", None)):
        ranking = evaluation.rank(parts, metrics=["logme", "h_score"], truth=known, bootstrap=8)
        replace(ranking, data=name, notes=("a note of <i>the ranking</i>",)).to_json(root / "ranking" / f"{name}.json")


def digits(split: str) -> tuple[np.ndarray, np.ndarray]:
    """(N, 64) pixels from 0 to 1, (N,) labels."""
    images = open_images("digits", split=split)
    return images.pixels.reshape(len(images), -1).astype(np.float32) / 255, images.labels


def write_study(path: Path) -> Path:
    """A study as recipes/benchmarks/ranking writes it, of two metrics on one task."""
    tau = "weighted tau (Vigna)"
    number = {"value": 0.625, "interval": [0.25, 0.9], "models": 5}
    metric = {
        "baseline": False,
        "models": 5,
        "tasks": {"digits": {tau: number}},
        "mean": {tau: number, "regret@1": {"value": 0.0125, "interval": None, "models": 5}},
        "seconds_per_model": 0.0421,
    }
    claim = {"metric": "ped+logme", "against": "logme", "claimed_by": "PED", "verdict": "not to be told apart"}
    study = {
        "date": "2026-11-21",
        "seed": 0,
        "n_models": 5,
        "n_tasks": 1,
        "machine": {"processor": "a processor", "cores": 2},
        "truth": {"digits": {"a": 0.875, "b": 0.5}},
        "metrics": {"logme": metric, "random": {**metric, "baseline": True}},
        "claims": [{**claim, "difference": {tau: number}, "by_task": {"digits": {**number, "value": 0.375}}}],
    }
    path.write_text(json.dumps(study))
    return path
