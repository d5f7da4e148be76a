"""What every metric owes: found by listing the folder, no list of names."""

import importlib
import inspect
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import evaluation
from evaluation import transferability
from evaluation.ranking.scoring import needs
from sslkit.data.sources.named import open_images

HEADS = ("Range:", "Cost:", "Source:", "Not for:")
MODEL = nn.Linear(2, 3)
OF_ONE_SCALE = {  # metrics that the scale of the features changes by their definition, and the option without it
    "etran": ("adds the energy of the features, and shrinks by exp(-5 lambda)", ""),
    "etran_classification": ("shrinks by exp(-5 lambda), lambda an eigenvalue of the features' covariance", ""),
    "etran_energy": ("is the logarithm of a sum of exponentials of the features", ""),
    "interclass_distance": ("is a distance", "normalize"),
    "ncti": ("shrinks by the exponential of a variance", ""),
    "pactran": ("has one variance for the prior of the weights", ""),
    "ped": ("is SFDA after the moves, which themselves are in proportion to the features", ""),
    "random": ("is drawn from the bytes of the features", ""),
    "sfda": ("shrinks by exp(-5 lambda)", "standardize"),
    "tmi": ("is a differential entropy with a floor in units of the features", ""),
    "transrate": ("has a distortion in units of the features", "normalize"),
}
SCALES = [10.0**power for power in range(-3, 5)]


@pytest.fixture(scope="module")
def task() -> dict:
    """Real digits as features, and a source classifier's probabilities for them."""
    images = open_images("digits")
    x = images.pixels[:240, 0].reshape(240, -1) / np.float32(16)
    p = torch.from_numpy(x @ np.random.default_rng(0).normal(size=(64, 12))).softmax(1).numpy()
    z = np.tanh(x @ np.random.default_rng(1).normal(size=(64, 20)))
    boxes = np.random.default_rng(2).uniform(size=(240, 4))
    inputs = {"source_probs": p, "model": MODEL, "untrained": z, "boxes": boxes}
    return {"features": x, "labels": images.labels[:240], **inputs}


def values(found: evaluation.MetricResult) -> list[float]:
    return list(found.parts.values()) if math.isnan(found.score) else [found.score]


@pytest.mark.parametrize("name", evaluation.metrics())
class TestEveryMetric:
    def test_its_docstring_says_what_a_reader_must_know(self, name: str) -> None:
        doc = inspect.getdoc(transferability.find(name).score)
        missing = [head for head in HEADS if head not in (doc or "")]
        assert not missing, f"{name}: {missing}"
        assert transferability.find(name).__doc__

    def test_it_has_a_test_file(self, name: str) -> None:
        assert (Path(__file__).parent / f"test_{name}.py").is_file()

    def test_finite_and_the_same_bits_again(self, name: str, task: dict) -> None:
        before = {key: np.array(value) for key, value in task.items() if key != "model"}
        first, second = (evaluation.evaluate_metric(name, **task) for _ in range(2))
        assert values(first) == values(second) and all(map(math.isfinite, values(first)))
        assert all((task[key] == value).all() for key, value in before.items())

    def test_the_global_generators_are_left_alone(self, name: str, task: dict) -> None:
        torch.manual_seed(5), np.random.seed(5)
        evaluation.evaluate_metric(name, **task)
        drawn = torch.rand(1), np.random.rand()
        torch.manual_seed(5), np.random.seed(5)
        assert (torch.rand(1), np.random.rand()) == drawn

    def test_names_of_labels_and_torch_or_numpy_are_of_no_account(self, name: str, task: dict) -> None:
        named = [f"digit {label}" for label in task["labels"]]
        others = task | {"labels": named, "features": torch.from_numpy(task["features"])}
        assert values(evaluation.evaluate_metric(name, **others)) == values(evaluation.evaluate_metric(name, **task))

    def test_it_says_what_it_needs(self, name: str, task: dict) -> None:
        wanted = {"features", "source_probs", "model", "untrained", "boxes"}
        assert set(needs(name)) <= wanted
        absent = dict.fromkeys(wanted - set(needs(name)))
        found = evaluation.evaluate_metric(name, **(task | absent))
        assert all(map(math.isfinite, values(found)))

    def test_more_dimensions_than_images_and_a_class_of_one(self, name: str, task: dict) -> None:
        rows = np.r_[0:40]
        labels = np.where(np.arange(40) == 39, 99, task["labels"][rows] % 3)
        part = {"features": task["features"][rows], "labels": labels, "source_probs": task["source_probs"][rows]}
        part |= {extra: task[extra][rows] for extra in ("untrained", "boxes")}
        found = evaluation.evaluate_metric(name, **part, model=MODEL)
        assert all(map(math.isfinite, values(found)))

    def test_terms_are_what_the_score_is_the_mean_of(self, name: str, task: dict) -> None:
        found = evaluation.evaluate_metric(name, **task)
        if found.details.terms is not None:
            assert float(found.details.terms.mean()) == pytest.approx(found.score, abs=1e-9)


FREE_OF_SCALE = [
    *(name for name in evaluation.metrics() if name not in OF_ONE_SCALE),
    *(f"{name}({option}=true)" for name, (_, option) in OF_ONE_SCALE.items() if option),
    *("gbc(covariance=diagonal)", "gbc(pca=none)", "nleep(covariance=diag)", "lead(kernel=empirical)"),
    *("ped+logme", "ped+gbc", "ped+h_score", "ped+parc", "ped+knn"),
]


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("metric", FREE_OF_SCALE)
def test_features_of_any_scale_have_the_same_score(metric: str, wide: bool, task: dict) -> None:
    """A tenth of a thousandth or ten thousand times: no constant of a metric is in units of the features."""
    task, x = dict(task), np.float64(task["features"])
    if wide:
        x = np.maximum(x @ np.random.default_rng(3).normal(size=(64, 300)), 0)
    expected, *found = (
        values(evaluation.evaluate_metric(metric, **task | {"features": s * x})) for s in [1.0, *SCALES]
    )
    assert np.allclose(found, expected, rtol=1e-9, atol=1e-12), np.ptp(found, 0)


@pytest.mark.parametrize("name", OF_ONE_SCALE)
def test_metrics_of_one_scale_are_so_and_say_it(name: str, task: dict) -> None:
    one, other = (evaluation.evaluate_metric(name, **task | {"features": task["features"] * s}) for s in (0.01, 1.0))
    assert not np.allclose(values(one), values(other), rtol=1e-3)
    assert name == "random" or any(word in transferability.find(name).score.__doc__ for word in ("scale", "units"))


@pytest.mark.parametrize("name", [name for name in evaluation.metrics() if "features" in needs(name)])
@pytest.mark.parametrize("wrapper", transferability.wrappers())
def test_wrappers_wrap_every_metric_of_features(wrapper: str, name: str, task: dict) -> None:
    if name in transferability.wrappers():
        return
    x = task["features"]
    found = evaluation.evaluate_metric(f"{wrapper}+{name}", **task, reference=(x.mean(0), x.std(0)))
    assert all(map(math.isfinite, values(found)))


def test_nothing_is_left_out_of_the_listing() -> None:
    folder = Path(importlib.import_module("evaluation.transferability").__file__).parent
    files = {path.stem for path in folder.glob("*.py")} - {"__init__", "base"}
    assert {name for name in files if not name.startswith("_")} == set(evaluation.metrics())
