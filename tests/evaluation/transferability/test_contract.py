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
from sslkit.data.sources import open_images

HEADS = ("Range:", "Cost:", "Source:", "Not for:")
MODEL = nn.Linear(2, 3)


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
