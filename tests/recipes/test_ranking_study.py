"""recipes/benchmarks/ranking/study.py: on made-up truths for which it is known how a metric ranks."""

import argparse
import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import nn

import evaluation
from evaluation.datasets import Split
from evaluation.ranking.truth.ground_truth import DETAILS, TRUTH
from sslkit.errors import UserError
from sslkit.models.loading import load
from sslkit.models.model import Model

BENCHMARKS = Path(__file__).parents[2] / "recipes" / "benchmarks"
WIDTHS = {"a": 3, "b": 9, "c": 27, "d": 81, "e": 100}
TASKS = ("digits", "fashion_mnist_few")
TAU = "weighted tau (Vigna)"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from ranking import study

    return study


def network(width: int) -> Model:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(width)
        return load(nn.Sequential(nn.Flatten(), nn.Linear(64, width)), image_size=8, in_chans=1)


ZOO = {name: network(width) for name, width in WIDTHS.items()}  # the wider the more parameters


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A truth that grows with the size of the networks."""
    write_truth(tmp_path, {task: {name: 0.5 + width / 300 for name, width in WIDTHS.items()} for task in TASKS})
    return tmp_path


def write_truth(place: Path, truth: dict) -> None:
    (place / "truth").mkdir(exist_ok=True)
    (place / "truth" / TRUTH).write_text(json.dumps(truth))


def arguments(place: Path, **changes: object) -> argparse.Namespace:
    given = {
        "zoo": ZOO,
        "truth": [place / "truth"],
        "data": None,
        "metrics": ["param_count", "logme", "ped+logme", "leep"],
        "images": 60,
        "draws": 20,
        "seed": 0,
        "root": "data",
        "cache": str(place / "cache"),
        "work": place / "work",
    }
    return argparse.Namespace(**given | changes)


def test_a_metric_that_orders_as_the_truth_has_tau_1_and_no_regret(script: ModuleType, place: Path) -> None:
    found = script.study(arguments(place))
    row = found["metrics"]["param_count"]
    assert row["baseline"] and row["models"] == 5 and set(row["tasks"]) == set(TASKS)
    for numbers in (row["mean"], *row["tasks"].values()):
        assert numbers[TAU]["value"] == 1 and numbers[TAU]["interval"] is None  # of five models
        assert numbers["regret@1"]["value"] == 0
    assert (found["n_models"], found["n_tasks"], found["failed"]) == (5, 2, [])
    assert found["chance"]["regret@1"] == pytest.approx((100 - sum(WIDTHS.values()) / 5) / 300)
    assert 0 < found["metrics"]["logme"]["seconds_per_model"] < 10
    json.dumps(found, allow_nan=False)


def test_the_reverse_has_minus_1_and_all_the_regret(script: ModuleType, place: Path) -> None:
    write_truth(place, {task: {name: 0.9 - width / 300 for name, width in WIDTHS.items()} for task in TASKS})
    row = script.study(arguments(place, metrics=["param_count"]))["metrics"]["param_count"]
    assert row["mean"][TAU]["value"] == -1
    assert row["mean"]["regret@1"]["value"] == pytest.approx((100 - 3) / 300, abs=1e-4)


def test_a_metric_without_its_inputs_says_for_how_many_it_is(script: ModuleType, place: Path) -> None:
    row = script.study(arguments(place, metrics=["leep"]))["metrics"]["leep"]
    assert row["models"] == 0 and row["mean"][TAU] is None and row["tasks"]["digits"][TAU] is None


@pytest.mark.nightly
def test_claims_are_paired(script: ModuleType, place: Path) -> None:
    (claim,) = script.study(arguments(place))["claims"]
    assert (claim["metric"], claim["against"]) == ("ped+logme", "logme")
    found = script.study(arguments(place))["metrics"]
    expected = found["ped+logme"]["mean"][TAU]["value"] - found["logme"]["mean"][TAU]["value"]
    assert claim["difference"][TAU]["value"] == pytest.approx(expected, abs=2e-4)
    assert set(claim["by_task"]) == set(TASKS)


@pytest.mark.nightly
def test_finished_cells_are_not_computed_again(
    script: ModuleType, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = script.study(arguments(place))
    plain, asked = evaluation.rank, []

    def counted(zoo: dict, task: object, metrics: list[str], **how: object) -> evaluation.Ranking:
        asked.append(metrics[0])
        return plain(zoo, task, metrics, **how)

    monkeypatch.setattr(evaluation, "rank", counted, raising=False)
    again = script.study(arguments(place))
    assert asked == [] and again["metrics"] == first["metrics"]
    script.study(arguments(place, metrics=["logme", "knn"]))
    assert asked == 6 * ["knn"], "on the images of each of two tasks, and on both halves of them"
    script.study(arguments(place, metrics=["logme"], data=["digits"], images=80))
    assert asked[6:] == 3 * ["logme"]


def test_one_cell_that_fails_does_not_stop_the_others(
    script: ModuleType, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = evaluation.rank

    def failing(zoo: dict, task: Split, metrics: list[str], **how: object) -> evaluation.Ranking:
        if metrics == ["logme"] and task.name == "digits":
            raise UserError("too few images")
        return plain(zoo, task, metrics, **how)

    monkeypatch.setattr(evaluation, "rank", failing, raising=False)
    found = script.study(arguments(place))
    assert found["failed"] == ["logme on digits: too few images"] and found["claims"] == []
    assert set(found["metrics"]["logme"]["tasks"]) == {"fashion_mnist_few"}
    assert set(found["metrics"]["ped+logme"]["tasks"]) == set(TASKS)
    shown = script.table(found)
    assert "logme on digits: too few images" in shown and "logme, 1 of 2 tasks" in shown


def test_a_part_of_models_and_tasks_says_so(script: ModuleType, place: Path) -> None:
    few = {name: ZOO[name] for name in "abc"}
    found = script.study(arguments(place, zoo=few, data=["digits"], metrics=["param_count"]))
    assert (found["n_models"], found["n_tasks"]) == (3, 1) and set(found["truth"]["digits"]) == set("abc")
    assert "3 models, 1 task;" in script.table(found)
    truth = json.loads((place / "truth" / TRUTH).read_text())
    del truth["digits"]["e"]
    write_truth(place, truth)
    found = script.study(arguments(place, metrics=["param_count"]))
    assert [len(found["truth"][task]) for task in TASKS] == [4, 5] and found["without_truth"]["digits"] == ["e"]
    assert "digits: no truth of e" in script.table(found) and found["metrics"]["param_count"]["mean"][TAU]["value"] == 1


def test_the_seeds_of_the_truth_are_the_ceiling(script: ModuleType, place: Path) -> None:
    truth = json.loads((place / "truth" / TRUTH).read_text())
    results: dict = {}
    for task, column in truth.items():
        run = {"grid": [{"lr": 0.1}, {"lr": 0.01}, {"lr": 0.001}], "chosen": {"lr": 0.01}, "seconds": 360}
        results[task] = {
            name: {"values": [v, v + 0.01], "weights": ZOO[name].digest, **run} for name, v in column.items()
        }
    results["digits"]["b"]["chosen"] = {"lr": 0.001}
    details = {"settings": {"image_size": None, "seeds": [0, 1]}, "results": results}
    (place / "truth" / DETAILS).write_text(json.dumps(details))
    found = script.study(arguments(place, metrics=["param_count"]))
    assert found["ceiling"][TAU]["value"] == 1 and found["ground_truth"]["digits"]["seeds"] == [0, 1]
    assert found["reliability"]["mean"]["Pearson"]["value"] == pytest.approx(1, abs=1e-4)
    assert found["cost"] == {"runs": 50, "core_hours": 1.0, "at_an_end": {"digits": 1, "fashion_mnist_few": 0}}
    part = script.study(arguments(place, metrics=["param_count"], data=["digits"]))
    assert part["cost"]["runs"] == 25 and list(part["reliability"]["tasks"]) == ["digits"]
    shown = script.table(found)
    assert "The truth, one half of each model's seeds against the other half: weighted tau 1.00" in shown
    assert "50 runs, 1 hours of a core; at an end of the grid: digits 1." in shown
    (place / "truth" / DETAILS).write_text(json.dumps({**details, "settings": {**details["settings"], "folds": 5}}))
    assert script.study(arguments(place, metrics=["param_count"]))["cost"]["runs"] == 50 + 10 * 4 * 3
    results["digits"]["b"]["weights"] = "others"
    (place / "truth" / DETAILS).write_text(json.dumps(details))
    with pytest.raises(UserError, match="digits: the ground truth of b is of other weights"):
        script.study(arguments(place))


def test_files_are_named_without_their_folder(script: ModuleType, place: Path) -> None:
    from ranking import tasks as ranking_tasks

    file = place / "clothes.npz"
    np.savez(file, **ranking_tasks.arrays_of(ranking_tasks.TASKS["clothes"]))
    column = {name: 0.5 + width / 300 for name, width in WIDTHS.items()}
    write_truth(place, {str(file): column})
    found = script.study(arguments(place, metrics=["logme"]))
    assert list(found["truth"]) == ["clothes"] and str(place) not in json.dumps(found)
    assert -1 <= found["metrics"]["logme"]["reliability"]["clothes"] <= 1
    assert found["models"]["a"] == {
        "weights": ZOO["a"].digest[:12],
        "image_size": 8,
        "family": "Sequential",
        "parameters": 64 * 3 + 3,
        "width": 3,
        "trained": "no",
    }


def test_the_halves_of_the_seeds_are_the_reliability(script: ModuleType) -> None:
    from ranking import summary

    noisy = {"a": [0.1, 0.4, 0.3], "b": [0.2, 0.3, 0.2], "c": [0.3, 0.2, 0.5], "d": [0.4, 0.1, 0.4]}
    found = summary._reliability(
        {"t": noisy, "u": {name: [v[0]] for name, v in noisy.items()}}, {"draws": 10, "seed": 0}
    )
    first, second = ([0.2, 0.2, 0.4, 0.4], [0.4, 0.3, 0.2, 0.1])
    assert set(found["tasks"]) == {"t"}, "one seed has no halves"
    assert found["tasks"]["t"]["Pearson"]["value"] == pytest.approx(np.corrcoef(first, second)[0, 1], abs=1e-4)


def test_tasks_of_several_truths_are_joined(script: ModuleType, place: Path) -> None:
    whole = json.loads((place / "truth" / TRUTH).read_text())
    parts = []
    for task, column in whole.items():
        (place / task / "truth").mkdir(parents=True)
        write_truth(place / task, {task: column})
        parts.append(place / task / "truth")
    assert set(script.study(arguments(place, truth=parts, metrics=["param_count"]))["truth"]) == set(TASKS)
    with pytest.raises(UserError, match="digits is measured in two"):
        script.study(arguments(place, truth=[place / "truth", parts[0]]))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"zoo": None}, "give the models"),
        ({"metrics": ["logmee"]}, "did you mean 'logme'"),
        ({"data": ["clipart"]}, "the ground truth has no clipart"),
        ({"truth": [Path("nowhere.json")]}, "cannot be read"),
    ],
)
def test_mistakes_are_named(change: dict, said: str, script: ModuleType, place: Path) -> None:
    with pytest.raises(UserError, match=said):
        script.study(arguments(place, **change))


def test_too_few_models_order_nothing(script: ModuleType, place: Path) -> None:
    few = {name: ZOO[name] for name in "ab"}
    with pytest.raises(UserError, match="has 2 of the 2 models, at least 3"):
        script.study(arguments(place, zoo=few))


def test_the_command_writes_and_prints_tables(tmp_path: Path, script: ModuleType, typed) -> None:
    names = [f"random:narrow_resnet:{seed}" for seed in range(3)]
    truth = {"digits": {name: 0.5 + k / 10 for k, name in enumerate(names)}}
    write_truth(tmp_path, truth)
    (tmp_path / "truth" / DETAILS).write_text(json.dumps({"settings": {"image_size": 16}, "results": {}}))
    call = ["benchmarks/ranking/run", "study", "--out", "study.json"]
    sized = [name.replace("resnet", "resnet(image_size=16)") for name in names]
    words = ["--zoo", *sized, "--truth", "truth", "--metrics", "logme", "ped+logme", "random", "--images", "60"]
    done = typed(*call, *words, "--draws", "20", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "3 models, 1 task;" in done.stdout and "random (baseline)" in done.stdout
    found = json.loads((tmp_path / "study.json").read_text())
    assert (
        found["machine"]["cores"] and found["date"] and set(found["metrics"]["logme"]["scores"]["digits"]) == set(names)
    )
    assert {one["image_size"] for one in found["models"].values()} == {16}
    shown = typed(*call, "--table", "--markdown", cwd=tmp_path)
    assert shown.returncode == 0 and "| random (baseline) | 3 | " in shown.stdout, shown.stderr


def test_a_task_of_several_labels_takes_no_part_in_the_means(script: ModuleType) -> None:
    from ranking.summary import summarise
    from ranking.table import table

    truth = {task: {"a": 0.1, "b": 0.2, "c": 0.4} for task in ("plain", "scenes")}
    cell = {"seconds": {"a": 0.1}, "notes": [], "reliability": None}
    right, wrong = ({name: sign * value for name, value in truth["plain"].items()} for sign in (1, -1))
    cells = {
        "plain": {"knn": {**cell, "scores": right}, "parc": {**cell, "scores": right}},
        "scenes": {"knn": {**cell, "scores": {}}, "parc": {**cell, "scores": wrong}},
    }
    found = summarise(cells, truth, {}, ["scenes"], draws=10, seed=0)
    for row in found["metrics"].values():
        assert row["models"] == 3 and row["mean"][TAU]["value"] == 1
    assert found["metrics"]["parc"]["tasks"]["scenes"][TAU]["value"] == -1
    told = table({**found, "truth": truth, "without_truth": {}, "failed": []})
    assert "1 task (without scenes, of several labels an image)" in told
