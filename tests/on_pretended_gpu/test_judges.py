"""Every protocol and every metric on a pretended GPU, and beside one with device=cpu."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from defective import write_mvtec
from detectors import images, narrow
from gpu_contract import GPU, check, steps_watched
from motion_films import write_motions
from pretended_device import Pretended

import evaluation
from evaluation import protocols
from sslkit import backbones
from sslkit.data.sources.named import open_images
from sslkit.models.loading import load
from sslkit.models.model import Model

pytestmark = pytest.mark.filterwarnings("ignore")
OPTIONS: dict[str, dict[str, Any]] = {
    "action": {"epochs": 1, "batch_size": 8, "stride": 2, "clips": 2, "crops": 1},
    "anomaly": {"shots": [1], "draws": 2},
    "attentive": {"grid": {"iterations": 5}},
    "clustering": {"restarts": 2},
    "linear_grid": {"grid": {"iterations": 5}},
    "detection": {"schedule": "smoke", "steps": 1, "batch_size": 2},
    "few_shot": {"n_way": 3, "n_query": 3, "episodes": 20},
    "fine_tune": {"grid": {"lr": [0.01], "weight_decay": [0.0]}, "steps": 3, "batch_size": 16, "crop": (0.6, 1.0)},
    "knn": {"k": 5},
    "knn_seg": {"patches": 500, "k": 5},
    "lidar": {"n_images": 20, "q": 2},
    "linear": {"c": 1.0},
    "linear_aug": {"epochs": 1, "batch_size": 16},
    "linear_seg": {"patches": 500, "max_iter": 3},
    "segmentation": {"schedule": "smoke", "steps": 1, "batch_size": 2},
    "patch_quality": {"n_images": 20},
    "view_retrieval": {"n_images": 20},
    "semi_supervised": {"fraction": 2, "draws": 1, "epochs": 1},
}
LONG = {"action", "detection", "segmentation", "linear_seg", "semi_supervised"}
ON_DEVICES = [
    pytest.param(name, device, marks=[pytest.mark.nightly] * (name in LONG))
    for name in protocols.names()
    for device in ("cuda", "cpu")
]
QUICKER: dict[str, dict[str, Any]] = {"itm": {"iterations": 20}, "nleep": {"components_per_class": 1}}


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> Path:
    """60 training and 40 test images of four digits."""
    found = open_images("digits", split="train")
    rows = np.flatnonzero(found.labels < 4)[:100]
    x, y = found.pixels[rows, 0], found.labels[rows]
    path = tmp_path_factory.mktemp("digits") / "few.npz"
    np.savez(path, x_train=x[:60], y_train=y[:60], x_test=x[60:], y_test=y[60:])
    return path


def judged(name: str, digits: Path, tmp_path: Path) -> tuple[Model, Any]:
    """A model and data for a protocol."""
    if name == "action":
        body = backbones.build("narrow_slow", image_size=16, in_chans=3, frames=4)
        return load(body), f"video:{write_motions(tmp_path / 'films', train=4)}"
    if name in ("detection", "segmentation"):
        return narrow(3), {"train": images(4), "test": images(2, "test")}
    if name.endswith("_seg"):
        return load("random:narrow_vit", image_size=16), {"train": images(12), "test": images(6, "test")}
    if name == "anomaly":
        return load("random:narrow_vit", image_size=32), write_mvtec(tmp_path) / "bottle"
    has_places = name in ("patch_quality", "attentive")  # a narrow ResNet has one place at 8 pixels
    network = "random:narrow_vit" if has_places else "random:narrow_resnet"
    return load(network, image_size=8, in_chans=1), digits


@pytest.mark.parametrize(("name", "device"), ON_DEVICES)
def test_every_protocol(name: str, device: str, digits: Path, tmp_path: Path) -> None:
    model, data = judged(name, digits, tmp_path)
    how = {"out": tmp_path / "out", "cache": None, "progress": False, "device": device, "workers": 0}
    with Pretended() as gpu, steps_watched(gpu):
        results = evaluation.evaluate(model, data, [name], options={name: OPTIONS.get(name, {})}, **how)
    if name in ("detection", "segmentation"):  # images have different numbers of boxes, which torchvision counts
        gpu.waits.clear()
    check(gpu)
    assert bool(gpu.launches) == (device == "cuda")
    assert all(np.isfinite(result.value) for result in results)


@pytest.fixture(scope="module")
def task() -> dict[str, Any]:
    """Real digits as features, and what else a metric may need."""
    found = open_images("digits")
    x = found.pixels[:120, 0].reshape(120, -1) / np.float32(16)
    rng = np.random.default_rng(0)
    logits = torch.from_numpy(x @ rng.normal(size=(64, 12)))
    inputs = {"source_probs": logits.softmax(1).numpy(), "untrained": np.tanh(x @ rng.normal(size=(64, 20)))}
    return {"features": x, "labels": found.labels[:120], "boxes": rng.uniform(size=(120, 4)), **inputs}


@pytest.mark.parametrize("name", evaluation.metrics())
def test_every_metric(name: str, task: dict[str, Any]) -> None:
    given = task | {"model": torch.nn.Linear(2, 3)} | QUICKER.get(name, {})
    here = evaluation.evaluate_metric(name, **given)
    with Pretended() as gpu:
        there = evaluation.evaluate_metric(name, **given, device=str(GPU))
    assert not gpu.faults, gpu.report()
    assert there.score == pytest.approx(here.score, rel=1e-6, nan_ok=True)
