"""Results beside the weights: appended, repaired after a kill, read back with their outcomes."""

import json
import multiprocessing
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from evaluation.results.comparison import compare
from evaluation.results.result import Result
from evaluation.results.statistics import Estimate, over_episodes, share
from evaluation.results.store import append, read
from sslkit.errors import UserError
from sslkit.zoo import ZooEntry


def result(seed: int = 0, **given) -> Result:
    right = np.random.default_rng(seed).random(500) < 0.7
    given = {"protocol": "knn", "recipe": "k=20", "metric": "top1", "model": "byol", "data": "digits", **given}
    made = Result.from_estimate(
        share(right), outcomes=right, paired_on="rows", seeds=[seed], details={"k": 20}, **given
    )
    return replace(made, date="2026-11-23T12:00:00+00:00")  # two of them are equal, whenever they are made


def test_results_come_back_with_their_outcomes(tmp_path: Path) -> None:
    accuracy = np.random.default_rng(0).random(50)
    episodes = Result.from_estimate(
        over_episodes(accuracy), protocol="few_shot", recipe="", metric="accuracy", outcomes=accuracy
    )
    others = {"top5": Estimate(0.9, (0.8, 0.95), "wilson over images", 500)}
    kept = [
        result(others=others),
        episodes,
        Result.from_estimate(Estimate(0.5), protocol="crowding", recipe="", metric="inter"),
    ]
    for one in kept:
        assert append(ZooEntry(tmp_path, {}), one) == tmp_path / "results.jsonl"
    found = read(tmp_path)
    assert found == kept  # outcomes are no part of the comparison
    assert found[0].outcomes.dtype == bool and (found[0].outcomes == kept[0].outcomes).all()
    assert found[1].outcomes.dtype == float and (found[1].outcomes == accuracy).all()
    assert found[2].outcomes is None


def test_stored_results_can_be_compared(tmp_path: Path) -> None:
    for seed, model in ((0, "x"), (1, "y")):
        append(tmp_path, result(seed, model=model))
    a, b = read(tmp_path)
    assert compare(a, b) == compare(result(0, model="x"), result(1, model="y"))


def test_a_second_measurement_replaces_and_another_choice_stands_beside(tmp_path: Path) -> None:
    append(tmp_path, result())
    append(tmp_path, replace(result(), seconds=99.0))
    append(tmp_path, replace(result(), details={"k": 200}))
    found = read(tmp_path)
    assert [(one.details["k"], one.seconds) for one in found] == [(20, 99.0), (200, 0.0)]
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 3  # the file forgets nothing


def test_what_settings_of_fine_tuning_reached_is_no_choice(tmp_path: Path) -> None:
    def tuned(value: float, lr: float = 0.1) -> Result:
        tried = {"lr": lr, "value": value, "loss": 1 - value}
        details = {"chosen": tried, "grid": [tried, {**tried, "lr": 1.0}], "values": [value], "std": value}
        return replace(result(), protocol="fine_tune", details=details)

    for one in (tuned(0.5), tuned(0.51), tuned(0.5, lr=0.2)):
        append(tmp_path, one)
    assert [one.details["values"] + [one.details["chosen"]["lr"]] for one in read(tmp_path)] == [
        [0.51, 0.1],
        [0.5, 0.2],
    ]


def test_a_line_cut_short_is_repaired_by_the_next(tmp_path: Path) -> None:
    path = append(tmp_path, result())
    append(tmp_path, result(1))
    path.write_bytes(path.read_bytes()[:-40])
    assert read(tmp_path) == [result()]
    append(tmp_path, result(2))
    assert read(tmp_path) == [result(), result(2)]


def _append_many(folder: Path, start: int) -> None:
    for seed in range(start, start + 10):
        append(folder, result(seed))


def test_several_processes_append_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    jobs = [context.Process(target=_append_many, args=(tmp_path, start)) for start in (0, 10, 20)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    found = read(tmp_path)
    assert sorted(one.seeds[0] for one in found) == list(range(30))
    for one in found:
        assert (one.outcomes == result(one.seeds[0]).outcomes).all()


def test_missing_and_damaged_outcomes_are_said(tmp_path: Path) -> None:
    append(tmp_path, result())
    (file,) = (tmp_path / "outcomes").glob("*.npy")
    file.write_bytes(file.read_bytes()[:-1] + b"\x07")
    with pytest.raises(UserError, match="has changed since"):
        read(tmp_path)
    file.unlink()
    with pytest.raises(UserError, match=r"names outcomes.*outcomes=False"):
        read(tmp_path)
    assert read(tmp_path, outcomes=False) == [result()]


def test_bad_input_is_refused(tmp_path: Path) -> None:
    assert read(tmp_path) == []
    with pytest.raises(UserError, match="there is no folder"):
        append(tmp_path / "nowhere", result())
    with pytest.raises(UserError, match="there is no folder"):
        read(tmp_path / "nowhere")
    with pytest.raises(UserError, match="NaN or infinite"):
        append(tmp_path, replace(result(), value=float("nan")))
    assert read(tmp_path) == []
    append(tmp_path, result())
    path = tmp_path / "results.jsonl"
    path.write_text("no record\n" + path.read_text())
    with pytest.raises(UserError, match="line 1"):
        read(tmp_path)


@pytest.mark.parametrize("wrong", [{"a": 1}, [{}], 10**400, True, "x", None])
@pytest.mark.parametrize("field", [f.name for f in fields(Result) if f.name != "outcomes"])
def test_a_field_of_another_kind_is_one_line_or_read(field: str, wrong: object, tmp_path: Path) -> None:
    """Each field that is read can be shown: names and units are keys, numbers are formatted, lists are joined."""
    append(tmp_path, result(others={"top5": Estimate(0.9, (0.8, 0.95), "", 500)}))
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: wrong}) + "\n")
    try:
        (found,) = read(tmp_path)
    except UserError as error:
        assert str(path) in str(error) and "\n" not in str(error)
        return
    numbers = [found.value, found.seconds, *(found.interval or ())]
    assert {found.protocol, found.metric, found.unit, found.converged} and all(f"{x:.2f}{found.n:,}" for x in numbers)
    assert [*found.others, *found.versions.items(), *found.digests.items(), *map(str, found.seeds)]


@pytest.mark.parametrize("wrong", [{"unit": {}}, {"unit": []}, {"n": "x"}, {"interval": [0.1]}, {"interval": [{}, 1]}])
def test_a_further_number_of_another_kind_is_one_line(wrong: dict, tmp_path: Path) -> None:
    append(tmp_path, result(others={"top5": Estimate(0.9, (0.8, 0.95), "", 500)}))
    path = tmp_path / "results.jsonl"
    record = json.loads(path.read_text())
    record["others"]["top5"] |= wrong
    path.write_text(json.dumps(record) + "\n")
    with pytest.raises(UserError, match=r"is not a result \(others top5: of another kind than is written\)"):
        read(tmp_path)


@pytest.mark.parametrize("name", ["../../secret", "/absolute/secret", "a\0b", "x" * 64, 5])
def test_outcomes_are_not_looked_for_elsewhere(name: object, tmp_path: Path) -> None:
    path = append(ZooEntry(tmp_path, {}), result())
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"outcomes": name}) + "\n")
    with pytest.raises(UserError, match="which is not a sha256"):
        read(tmp_path)
