"""Two processes at once: what may be shared is shared and done once; what both would rewrite has one owner."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from forks import ended, started
from photographs import write_jpegs
from random_entries import made

import evaluation
from evaluation.embedding.run import run as embed_run
from evaluation.features import extraction
from evaluation.ranking.summary import rank_tasks
from evaluation.ranking.truth import ground_truth as truths
from evaluation.ranking.truth.ground_truth import TRUTH, ground_truth
from evaluation.results.records import Records
from evaluation.studies.run import reproduce
from sslkit.data.sources.named import open_images
from sslkit.data.sources.shard_writer import write_shards
from sslkit.errors import UserError
from sslkit.files.leases import own_file, own_folder

STUDIES = Path(__file__).parents[3] / "recipes" / "studies"
PROTOCOLS = ["linear", "knn", "fine_tune"]
OPTIONS = {"fine_tune": {"grid": {"lr": [0.03, 0.01]}, "extend": False, "steps": 4, "seeds": [0, 1]}}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with an entry and digits 0 to 5, to learn from and to test on."""
    arrays = {}
    for split, n in (("train", 20), ("test", 8)):
        images = open_images("digits", split=split)
        rows = np.concatenate([np.flatnonzero(images.labels == k)[:n] for k in range(6)])
        arrays |= {f"x_{split}": images.pixels[rows, 0], f"y_{split}": images.labels[rows]}
    np.savez(tmp_path / "six.npz", **arrays)
    made(tmp_path, "entry", "digits")
    return tmp_path


def count(owner: Any, name: str, log: Path) -> None:
    """Write a line whenever owner.name is called."""
    plain = getattr(owner, name)

    def counted(*given: Any, **named: Any) -> Any:
        with log.open("a") as file:
            file.write(f"{name}\n")
        return plain(*given, **named)

    setattr(owner, name, counted)


def judge(place: Path, log: Path, protocols: list[str]) -> None:
    os.chdir(place)
    count(extraction, "_write", log)
    how = {"options": {name: OPTIONS[name] for name in protocols if name in OPTIONS}, "progress": False, "workers": 0}
    for result in evaluation.evaluate("entry", "six.npz", protocols, cache="cache", device="cpu", **how):
        print(result.protocol, result.metric, result.value)


def lines(log: Path) -> list[str]:
    return sorted(log.read_text().splitlines())


def test_two_evaluations_share_a_cache_and_the_runs_and_lose_no_result(place: Path) -> None:
    logs = [place / f"{number}.log" for number in range(2)]
    both = [started(log, judge, place, place / "counts", PROTOCOLS) for log in logs]
    assert [ended(one) for one in both] == [0, 0], [log.read_text() for log in logs]
    numbers = [[line for line in log.read_text().splitlines() if line.startswith(tuple(PROTOCOLS))] for log in logs]
    assert numbers[0] == numbers[1] and len(numbers[0]) == len(PROTOCOLS)
    assert lines(place / "counts") == ["_write"] * 2, "of two splits"
    runs = [json.loads(line)["run"] for line in (place / "entry" / "fine_tune.jsonl").read_text().splitlines()]
    assert len(runs) == len(set(runs)) == 4, "two rates, and the better one with two seeds"
    written = [json.loads(line) for line in (place / "entry" / "results.jsonl").read_text().splitlines()]
    assert len(written) == 2 * len(numbers[0]) and len({one["run"] for one in written}) == len(numbers[0])
    assert not list((place / "entry").glob(".*.ckpt")) and not list(place.rglob("*.part"))


def measure(place: Path, log: Path, zoo: list[str]) -> None:
    os.chdir(place)
    count(truths, "tune_grid", log)
    how = {"lr": [0.03], "steps": 4, "seeds": [0, 1], "progress": False, "device": "cpu", "cache": "cache"}
    ground_truth(zoo, "six.npz", out="truth", **how)


def test_two_ground_truths_measure_each_model_once_and_both_are_in_the_truth(place: Path) -> None:
    zoo = [str(made(place, f"entry-{number}", "digits", seed=number)) for number in range(3)]
    logs = [place / f"{number}.log" for number in range(2)]
    both = [
        started(log, measure, place, place / "counts", order) for log, order in zip(logs, (zoo, zoo[::-1]), strict=True)
    ]
    assert [ended(one) for one in both] == [0, 0], [log.read_text() for log in logs]
    assert lines(place / "counts") == ["tune_grid"] * 3
    (column,) = json.loads((place / "truth" / TRUTH).read_text()).values()
    assert sorted(column) == [f"entry-{number}" for number in range(3)]


def test_the_last_truth_has_what_another_process_recorded_meanwhile(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one has read the records when the second one adds its own."""
    zoo = [str(made(place, f"entry-{number}", "digits", seed=number)) for number in range(2)]
    how = {"out": place / "truth", "lr": [0.03], "steps": 2, "seeds": [0, 1], "progress": False, "device": "cpu"}
    how |= {"data": str(place / "six.npz"), "cache": None}
    other = Thread(target=lambda: ground_truth(zoo[1], **how))
    read = truths._Measurement._latest

    def meanwhile(self: Any, wanted: Callable[[list[int]], bool]) -> Any:
        found = read(self, wanted)
        if list(self.models) == ["entry-0"] and not other.ident:
            other.start()
            while len(Records(place / "truth" / truths.RESULTS).read()) < 2:
                assert other.is_alive()
            other.join(1)  # it has written its truth unless it waits for this one
        return found

    monkeypatch.setattr(truths._Measurement, "_latest", meanwhile)
    ground_truth(zoo[0], **how)
    other.join()
    (column,) = json.loads((place / "truth" / TRUTH).read_text()).values()
    assert sorted(column) == ["entry-0", "entry-1"]


OWNED = {
    "rank": (lambda: own_folder(Path("out"), "ranks in"), "ranks in out"),
    "embed": (lambda: own_file(Path("out.npz"), "embeds to"), "embeds to out.npz"),
    "reproduce": (lambda: own_file(Path("out/dsa/table1.json"), "reproduces"), "reproduces out/dsa/table1.json"),
    "shards": (lambda: own_folder(Path("out"), "writes shards to"), "writes shards to out"),
}
CALLS = {
    "rank": lambda: rank_tasks("entry", "six.npz", ["feature_dim"], bootstrap=0, out="out", cache="cache"),
    "embed": lambda: embed_run("entry", "six.npz", "out.npz", against=None, split=None, cache="cache", progress=False),
    "reproduce": lambda: reproduce("dsa", "table1", out="out", folder=STUDIES, train=print, progress=False),
    "shards": lambda: write_shards("pictures", "out", progress=False),
}


@pytest.mark.parametrize("command", OWNED)
def test_what_both_would_rewrite_is_refused_in_a_line_before_anything_is_computed(
    command: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    write_jpegs(place / "pictures", 3, (8, 8))
    owner, work = OWNED[command]
    with owner():
        before = sorted(place.rglob("*"))
        with pytest.raises(UserError, match=f"^process {os.getpid()} {work}: wait until it has ended, or end it$"):
            CALLS[command]()
        assert sorted(place.rglob("*")) == before
    if command != "reproduce":  # which would take minutes
        CALLS[command]()
        assert not list(place.rglob("*.owner"))
