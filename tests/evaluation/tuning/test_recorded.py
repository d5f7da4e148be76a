"""Runs that train weights, each recorded once, and their checkpoints."""

from pathlib import Path

import pytest

from evaluation.results.records import Records
from evaluation.tuning.recorded import checkpoint_of, each_recorded, of_ranks, open_folder
from sslkit.errors import UserError

KEYS = [{"lr": 0.1}, {"lr": 0.2}]


def test_a_checkpoint_is_removed_when_its_run_is_recorded(tmp_path: Path) -> None:
    records, seen = Records(tmp_path / "runs.jsonl"), []

    def work(number: int) -> dict[str, int]:
        checkpoint_of(records.path, KEYS[number]).save({"step": number})
        seen.append(len(list(tmp_path.glob(".runs-*.ckpt"))))
        return {"value": number}

    found = each_recorded(KEYS, records, work, ("value",))
    assert [record["value"] for record in found] == [0, 1] and seen == [1, 1]
    assert not list(tmp_path.glob("*.ckpt"))


def test_a_checkpoint_left_by_a_kill_after_the_record_is_removed(tmp_path: Path) -> None:
    records = Records(tmp_path / "runs.jsonl")
    records.add(KEYS[0], {"value": 3})
    checkpoint_of(records.path, KEYS[0]).save({"step": 9})
    assert each_recorded(KEYS[:1], records, lambda number: pytest.fail("it is on record"))[0]["value"] == 3
    assert not list(tmp_path.glob("*.ckpt"))


def test_a_record_that_lacks_a_field_is_refused(tmp_path: Path) -> None:
    records = Records(tmp_path / "runs.jsonl")
    with pytest.raises(UserError, match=r"runs.jsonl: the record of run \w+ lacks seconds: remove that line"):
        each_recorded(KEYS, records, lambda number: {"value": number}, ("value", "seconds"))


def test_a_run_has_its_own_checkpoint(tmp_path: Path) -> None:
    one, other = (checkpoint_of(tmp_path / "runs.jsonl", key) for key in KEYS)
    assert one.path != other.path and one.key != other.key
    again = checkpoint_of(tmp_path / "runs.jsonl", dict(KEYS[0]))
    assert (again.path, again.key) == (one.path, one.key)
    assert of_ranks() == {}


def test_without_a_folder_there_is_a_temporary_one(tmp_path: Path) -> None:
    with open_folder(tmp_path) as folder:
        assert folder == tmp_path
    with open_folder(None) as folder:
        assert folder.is_dir()
    assert not folder.exists()
