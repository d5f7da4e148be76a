"""Which of several runs a command continues, and the folder of a new one."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import sslkit
from sslkit.errors import UserError
from sslkit.runtime.checkpoint import LAST
from sslkit.runtime.loop import Loop
from sslkit.training import run as runs
from sslkit.training.config import Config
from sslkit.training.settled import Choice, Settled
from sslkit.training.step import Progress


@pytest.fixture
def stop(small_run, monkeypatch):
    """Start a run of two epochs and stop it in the second one; returns its folder."""

    def stop(**settings: object) -> Path:
        def press(_: Progress, loop: Loop) -> None:
            if loop.epoch:
                raise KeyboardInterrupt

        before = set(Path(small_run["out"]).glob("*"))
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Progress, "before_step", press)
            sslkit.pretrain({**small_run, "epochs": 2, **settings})
        (folder,) = (one for one in set(Path(small_run["out"]).glob("*")) - before if (one / LAST).is_file())
        return folder

    return stop


def go(small_run: dict, **settings: object) -> Path:
    return sslkit.pretrain({**small_run, "epochs": 2, **settings}).folder


def test_a_command_continues_its_own_run_not_the_newest_of_the_name(small_run, stop, monkeypatch) -> None:
    chosen, high = stop(), stop(**{"optimizer.lr": 0.02})
    assert high.name == f"{chosen.name}-2"
    with pytest.raises(UserError, match=r"-2 was started with other settings \(optimizer\.lr was 0\.02, is 0\.03\)"):
        go(small_run, resume=True, **{"optimizer.lr": 0.03})
    assert go(small_run, resume=True) == chosen  # without a rate it is the chosen one, not that of the newest
    assert go(small_run, resume=True) == chosen  # finished
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert go(small_run, **{"optimizer.lr": 0.02}) == high
    assert go(small_run, **{"optimizer.lr": 0.02}).name == f"{chosen.name}-3"  # the requeued job's run had ended


def test_a_run_that_is_called_name_2_is_no_second_run_of_name(small_run, stop) -> None:
    first = stop(name="exp")
    assert go(small_run, name="exp-2").name == "exp-2"
    assert go(small_run, name="exp", resume=True) == first
    assert go(small_run, name="exp").name == "exp-3"
    assert go(small_run, name="exp", resume=True).name == "exp-3"


def test_the_neighbours_of_the_accuracies_stay_those_of_the_first_epoch(small_run, stop) -> None:
    stop(name="x")
    with pytest.raises(UserError, match=r"other settings \(eval\.k was 3, is 5\)"):
        go(small_run, name="x", resume=True, eval={**small_run["eval"], "k": 5})
    assert go(small_run, name="x", resume=True, eval={**small_run["eval"], "every": 2}).name == "x"


def test_runs_that_begin_together_have_folders_of_their_own(tmp_path: Path) -> None:
    settled = Settled(Config.from_mapping({"method": "simclr"}), {})
    with ThreadPoolExecutor(8) as threads:
        folders = list(threads.map(lambda _: runs.begin(tmp_path, "x", settled), range(24)))
    assert {folder.name for folder in folders} == {"x", *(f"x-{number}" for number in range(2, 25))}


def test_a_file_in_the_way_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(UserError, match="cannot make the run folder"):
        runs.begin(tmp_path, "x", Settled(Config.from_mapping({"method": "simclr"}), {}))


def test_of_settings_raises_for_a_damaged_run_only_where_it_is_the_newest(tmp_path: Path) -> None:
    def begin(lr: float) -> Path:
        return runs.begin(tmp_path, "x", Settled(asked(lr), {}))

    def asked(lr: float | None) -> Config:
        return Config.from_mapping({"method": "simclr", "optimizer": {"lr": lr}, "name": "x", "out": str(tmp_path)})

    first, second, third = begin(0.1), begin(0.2), begin(0.1)
    assert runs.of_settings(asked(0.1)) == [third, first] and runs.of_settings(asked(0.3)) == []
    assert runs.of_settings(asked(None)) == [third, second, first], "any rate fits where none is given"
    chosen = runs.begin(tmp_path, "x", Settled(asked(None), {"optimizer.lr": Choice(0.4)}))
    begin(0.5)
    assert runs.of_settings(asked(None)) == [chosen], "that was begun with the same words"
    (second / "config.yaml").write_text("[")
    assert runs.of_settings(asked(0.1)) == [third, first]
    with pytest.raises(UserError, match="damaged"):
        runs.of_settings(asked(0.2))


def test_a_run_is_found_by_its_words_whatever_network_it_chose(tmp_path: Path) -> None:
    def asked(data: str) -> Config:
        return Config.from_mapping({"method": "simclr", "data": data, "out": str(tmp_path)})

    def begin(data: str, network: str) -> Path:
        settled = Settled(asked(data), {"optimizer.lr": Choice(0.002), "backbone": Choice(network)})
        return runs.begin(tmp_path, runs.base_name(asked(data), network), settled)

    mine, other = begin("my", "resnet50"), begin("my-data", "resnet18")
    assert mine.name == "simclr-my-resnet50-e6-s0" and runs.of_name(asked("my")) == [mine]
    assert runs.of_name(asked("my-data")) == [other]
    with pytest.raises(UserError, match=r"there is no run .*simclr-another-\.\.\.-e6-s0"):
        runs.to_resume(asked("another"))
