"""Lines of finished runs: whole or not at all, each run done by one process."""

import json
import multiprocessing
import threading
from pathlib import Path
from typing import BinaryIO

import pytest

from evaluation.results import records
from evaluation.results.records import Records, run_id
from evaluation.tuning.recorded import each_recorded
from sslkit.errors import UserError
from sslkit.files import writing

KEYS = [{"lr": 0.1, "seed": seed} for seed in range(6)]


def _fill(path: Path, name: str, rounds: int) -> None:
    records = Records(path)
    for number in range(rounds):
        records.add({"writer": name, "number": number}, {"value": "x" * 5000})


def _work(path: Path, log: Path, gate: object) -> None:
    gate.wait()

    def work(number: int) -> dict:
        with log.open("a") as file:
            file.write(f"{number}\n")
        return {"value": number}

    each_recorded(KEYS, Records(path), work)


def test_a_record_is_found_by_its_key_in_any_order(tmp_path: Path) -> None:
    records = Records(tmp_path / "sub" / "runs.jsonl")
    assert records.read() == {} and records.find({"a": 1, "b": 2}) is None
    records.add({"a": 1, "b": 2}, {"value": 0.5, "diverged": False})
    found = Records(tmp_path / "sub" / "runs.jsonl").find({"b": 2, "a": 1})
    assert found == {"run": run_id({"a": 1, "b": 2}), "a": 1, "b": 2, "value": 0.5, "diverged": False}
    assert records.find({"a": 1, "b": 3}) is None


@pytest.mark.parametrize("cut", [1, 2, 40, 80])
def test_a_line_cut_short_does_not_count_and_the_next_one_replaces_it(tmp_path: Path, cut: int) -> None:
    records = Records(tmp_path / "runs.jsonl")
    records.add({"n": 1}, {"value": 1})
    first = records.path.read_bytes()
    records.add({"n": 2}, {"text": "y" * 100})
    whole = records.path.read_bytes()
    records.path.write_bytes(whole[:-cut])
    assert set(records.read()) == {run_id({"n": 1})}
    records.add({"n": 3}, {"value": 3})
    lines = records.path.read_bytes().splitlines(keepends=True)
    assert lines[0] == first and len(lines) == 2 and json.loads(lines[1])["n"] == 3


def test_a_file_of_half_a_line_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_bytes(b'{"run": "' + b"z" * 200_000)
    records = Records(path)
    assert records.read() == {}
    records.add({"n": 1}, {"value": 1})
    assert len(path.read_text().splitlines()) == 1 and records.find({"n": 1})["value"] == 1


def test_a_long_half_line_leaves_the_lines_before_it(tmp_path: Path) -> None:
    records = Records(tmp_path / "runs.jsonl")
    records.add({"n": 1}, {"value": 1})
    with records.path.open("ab") as file:
        file.write(b"z" * 200_000)
    records.add({"n": 2}, {"value": 2})
    assert [json.loads(line)["n"] for line in records.path.read_text().splitlines()] == [1, 2]


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text('{"run": "a"}\nnothing\n{"run": "b"}\n')
    with pytest.raises(UserError, match="line 2 is not a record"):
        Records(path).read()


def test_a_value_that_json_lacks_is_refused(tmp_path: Path) -> None:
    records = Records(tmp_path / "runs.jsonl")
    with pytest.raises(ValueError):
        records.add({"n": 1}, {"value": float("nan")})
    assert records.read() == {}


def test_two_processes_do_not_mix_their_lines(tmp_path: Path) -> None:
    path, context = tmp_path / "runs.jsonl", multiprocessing.get_context("fork")
    writers = [context.Process(target=_fill, args=(path, name, 15)) for name in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert len(Records(path).read()) == 30


def test_a_record_added_meanwhile_without_a_lock_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By another machine, on a disk that has no locks."""
    path = tmp_path / "runs.jsonl"
    here, there = Records(path), Records(path)
    here.add({"lr": 1}, {"value": 1})
    look = records._torn

    def meanwhile(file: BinaryIO) -> int | None:
        found = look(file)
        monkeypatch.setattr(records, "_torn", look)
        there.add({"lr": 2}, {"value": 2})
        return found

    monkeypatch.setattr(records, "_torn", meanwhile)
    monkeypatch.setattr(writing, "lockable", lambda path: None)
    here.add({"lr": 3}, {"value": 3})
    assert [run["value"] for run in here.read().values()] == [1, 2, 3]


def test_two_processes_share_the_runs_and_do_none_twice(tmp_path: Path) -> None:
    path, log, context = tmp_path / "runs.jsonl", tmp_path / "log", multiprocessing.get_context("fork")
    gate = context.Barrier(3)
    writers = [context.Process(target=_work, args=(path, log, gate)) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert sorted(log.read_text().split()) == [str(number) for number in range(len(KEYS))]
    assert sorted(record["value"] for record in Records(path).read().values()) == list(range(len(KEYS)))


def test_what_is_recorded_is_not_done_again(tmp_path: Path) -> None:
    records, done = Records(tmp_path / "runs.jsonl"), []
    records.add(KEYS[2], {"value": 2})
    found = each_recorded(KEYS, records, lambda number: done.append(number) or {"value": number})
    assert done == [0, 1, 3, 4, 5] and [record["value"] for record in found] == [0, 1, 2, 3, 4, 5]
    assert each_recorded(KEYS, records, lambda number: pytest.fail("done twice")) == found


def test_a_claimed_run_is_left_to_its_owner_and_taken_over_when_that_one_fails(tmp_path: Path) -> None:
    records, order = Records(tmp_path / "runs.jsonl"), []
    claimed, let_go = threading.Event(), threading.Event()

    def owner() -> None:
        with Records(records.path).claim(KEYS[0], wait=False) as mine:
            assert mine
            claimed.set()
            let_go.wait(10)

    thread = threading.Thread(target=owner)
    thread.start()
    claimed.wait(10)

    def work(number: int) -> dict:
        order.append(number)
        if number == len(KEYS) - 1:
            let_go.set()
        return {"value": number}

    each_recorded(KEYS, records, work)
    thread.join()
    assert order == [1, 2, 3, 4, 5, 0]
