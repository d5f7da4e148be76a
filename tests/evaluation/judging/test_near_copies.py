"""Labels by coin of objects with ten pictures each: near-copies are told, and as groups leave all numbers at chance."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from coins import write_coins

import evaluation
from evaluation.judging.run import evaluate
from evaluation.ranking.choice.halving import successive_halving
from evaluation.ranking.truth.ground_truth import ground_truth
from evaluation.results import store

NEAR = {"columns": {"group": "near-copies"}}
MEND = "; columns.group=near-copies keeps them on one side"
MODEL = "random:narrow_resnet"
TUNED = {"lr": [0.03], "seeds": [0], "batch_size": 32, "max_images": None}


@pytest.fixture(scope="module")
def coins(tmp_path_factory) -> Path:
    return write_coins(tmp_path_factory.mktemp("coins") / "coins")


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def judge(coins: Path, tmp_path_factory, tmp_path: Path, said: list[str]) -> Callable[..., Any]:
    cache = tmp_path_factory.getbasetemp() / "cache of coins"

    def run(function: Callable[..., Any], *rest: Any, model: Any = MODEL, data: Path = coins, **options: Any) -> Any:
        about = {"image_size": 32, "cache": cache, "progress": False, "say": said.append}
        out = {} if function is evaluation.rank else {"out": tmp_path / "out"}
        return function(model, str(data), *rest, **about, **out, **options)

    return run


def near(said: list[str]) -> list[str]:
    return [line for line in said if "near-cop" in line]


def is_at_chance(interval: tuple[float, float]) -> bool:
    return interval[0] <= 0.5 <= interval[1]


def test_evaluate_tells_near_copies_and_stores_their_number(judge, said: list[str], tmp_path: Path) -> None:
    results = judge(evaluate, ["knn", "linear"])
    assert near(said) == [f"note: 80 of 80 test images of coins have a near-copy in train{MEND}"]
    assert results[1].value > 0.95, "the probe knows the objects"
    kept = store.read(next((tmp_path / "out").iterdir()))
    assert [result.details["near_copies"] for result in kept] == [80, 80] and not any(one.leaky for one in kept)


def test_as_groups_they_leave_probe_and_neighbours_at_chance(judge, said: list[str]) -> None:
    results = judge(evaluate, ["knn", "linear"], **NEAR)
    assert not near(said) and [result.details["near_copies"] for result in results] == [0, 0]
    assert all(result.n == 80 and is_at_chance(result.interval) for result in results)


def test_a_set_without_near_copies_says_nothing(judge, said: list[str], tmp_path: Path) -> None:
    folder = write_coins(tmp_path / "coins", objects=120, shots=1)
    (result,) = judge(evaluate, ["knn"], data=folder)
    assert not near(said) and result.details["near_copies"] == 0


def test_a_given_split_is_mended_by_look(judge, said: list[str], tmp_path: Path) -> None:
    folder = write_coins(tmp_path / "coins", objects=20, shots=4)
    for row, file in enumerate(sorted(folder.rglob("*.jpg"))):
        target = tmp_path / "two" / ("test" if row % 4 == 0 else "train") / file.parent.name / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        file.rename(target)
    judge(evaluate, ["knn"], data=tmp_path / "two")
    (line,) = near(said)
    assert f"python recipes/look.py data={tmp_path / 'two'} 'leave_out=[near_copies]' shows them" in line


@pytest.mark.parametrize("options", [{}, NEAR])
def test_few_shot(options: dict[str, Any], judge, said: list[str]) -> None:
    episodes = {"n_way": 2, "k_shot": 1, "n_query": 8, "episodes": 200}
    (result,) = judge(evaluate, ["few_shot"], options={"few_shot": episodes}, **options)
    told = [f"note: 400 of 400 images of coins are near-copies of others, by which they are recognised{MEND}"]
    assert near(said) == ([] if options else told)
    assert result.value < 0.52 if options else result.value > 0.52


@pytest.mark.parametrize("options", [{}, NEAR])
def test_rank(options: dict[str, Any], judge) -> None:
    zoo = {"one": MODEL, "other": f"{MODEL}:1"}
    ranking = judge(evaluation.rank, ["knn"], model=zoo, split="train", max_images=None, **options)
    notes = [note for note in ranking.notes if "are near-copies of others" in note]
    assert (not notes and all(map(is_at_chance, ranking.intervals[:, 0]))) if options else len(notes) == 1
    assert options or ranking.scores.min() > 0.55


@pytest.mark.parametrize("options", [{}, NEAR])
def test_ground_truth(options: dict[str, Any], judge, said: list[str], coins: Path) -> None:
    found = judge(ground_truth, model=[MODEL], steps=60, **TUNED, **options)
    (record,) = found.results[str(coins)].values()
    assert is_at_chance(record["interval"]) if options else record["value"] > 0.7
    told = f"{coins}: 80 of 80 test images have a near-copy in train{MEND}"
    assert near(said) == ([] if options else [told])


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, NEAR])
def test_choose(options: dict[str, Any], judge, said: list[str]) -> None:
    zoo = {"one": MODEL, "other": f"{MODEL}:1"}
    found = judge(successive_halving, ["knn"], model=zoo, steps=60, first=2, **TUNED, **options)
    values = [value for arm in found.rounds[-1].arms for value in arm.values]
    assert max(values) < 0.75 if options else max(values) > 0.8
    told = f"64 of 64 held-out images of coins have a near-copy in train{MEND}"
    assert near(said) == ([] if options else [told])
