"""Loggers by name: what they are given, that a resumed run goes on in them, and what is refused."""

import json
import os
import threading
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pytorch_lightning import loggers as lightning
from pytorch_lightning.loggers import Logger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import sslkit
from sslkit.errors import UserError
from sslkit.runtime import loggers
from sslkit.training import pretrain, start
from sslkit.training.config import Config
from sslkit.training.run import settings_of


class Tracker(Logger):
    """Keeps what it is given, as W&B would; every test starts without any."""

    made: ClassVar[list["Tracker"]] = []
    refuses = False

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options, self.settings, self.rows, self.finished = options, [], [], 0
        Tracker.made.append(self)

    name = "tracker"

    @property
    def version(self) -> str:
        return self.options["id"] or f"run{len(Tracker.made)}"

    @property
    def experiment(self) -> "Tracker":
        return self

    def log_hyperparams(self, params: dict, *_: Any) -> None:
        self.settings.append(params)

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        if self.refuses:
            raise ConnectionRefusedError("the server is gone\nand more")  # an OSError, but not of the disk
        self.rows.append((step, metrics))

    def finish(self, exit_code: int) -> None:
        self.finished += 1
        self.failed = bool(exit_code)


@pytest.fixture
def tracker(monkeypatch) -> type[Tracker]:
    """`trainer.logger=wandb` without the package."""
    monkeypatch.setattr(Tracker, "made", [])
    monkeypatch.setattr(lightning, "WandbLogger", Tracker)
    monkeypatch.setitem(
        loggers.KINDS, "wandb", loggers.Kind("WandbLogger", "json", "sslkit[wandb]", "Fake=offline works, ")
    )
    return Tracker


def logging(run: dict, *names: str, **more: object) -> dict:
    return {**run, **more, "trainer": {**run["trainer"], "logger": list(names)}}


def test_a_tracker_gets_the_settings_and_every_row_of_metrics_csv(small_run, tracker, tmp_path) -> None:
    entry = sslkit.pretrain(logging(small_run, "wandb", name="x", epochs=1))
    (one,) = tracker.made
    assert one.options == {"name": "x", "project": "sslkit", "save_dir": entry.folder, "id": None}
    assert one.settings == [settings_of(entry.folder).config.to_dict()]
    assert [step for step, _ in one.rows] == [1, 2, 3, 3] and one.finished == 1
    assert {"loss", "lr", "align"} <= one.rows[0][1].keys() and "knn" in one.rows[-1][1]
    assert not one.failed and (entry.folder / "metrics.csv").is_file() and not list(entry.folder.glob("events*"))
    assert json.loads((entry.folder / "loggers.json").read_text()) == {"wandb": "run1"}


def test_a_resumed_run_goes_on_in_its_tracker(small_run, tracker, monkeypatch) -> None:
    run = logging(small_run, "wandb", "csv", name="x")
    with monkeypatch.context() as patch:
        patch.setattr(pretrain, "finish", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            sslkit.pretrain(run)
    sslkit.pretrain({**run, "resume": True})
    first, second = tracker.made
    assert first.options["id"] is None and second.options["id"] == "run1"
    assert first.settings and not second.settings, "the settings are logged once"
    assert first.finished == second.finished == 1


class Cut:
    """Ends a run in its second epoch, as a kill would: nothing of the epoch is in the checkpoint."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, loop: object) -> None:
        self.calls += 1
        if self.calls == 2:
            raise RuntimeError("cut")


def cut(run: dict) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(RuntimeError, match="cut"):
        patch.setattr(pretrain.Unreadable, "epoch_end", staticmethod(Cut()))
        sslkit.pretrain(run)


def test_rows_of_a_cut_epoch_are_sent_once_and_the_run_is_closed_as_it_ended(small_run, tracker) -> None:
    run = logging(small_run, "wandb", "tensorboard", name="x")
    cut(run)
    entry = sslkit.pretrain({**run, "resume": True})
    first, second = tracker.made
    assert [step for step, _ in first.rows] == [1, 2, 3, 3, 4, 5, 6] and [step for step, _ in second.rows] == [6]
    assert (first.failed, second.failed) == (True, False) and not (entry.folder / loggers.SENT).exists()
    events = EventAccumulator(str(entry.folder)).Reload()
    assert [row.step for row in events.Scalars("loss")] == [1, 2, 3, 4, 5, 6]
    assert [row.step for row in events.Scalars("knn")] == [3, 6]
    assert len(events.Scalars("hp_metric")) == 1, "the settings are logged once"


def test_no_thread_and_no_variable_is_left(small_run) -> None:
    threads, variables = threading.active_count(), dict(os.environ)
    for name in ("a", "b"):
        sslkit.pretrain(logging(small_run, "tensorboard", name=name, epochs=1))
    assert threading.active_count() == threads and dict(os.environ) == variables


def test_a_tracker_that_fails_on_the_way_is_warned_of_and_the_run_goes_on(small_run, tracker, monkeypatch) -> None:
    monkeypatch.setattr(Tracker, "refuses", True)
    with pytest.warns(UserWarning, match=r"^Tracker takes no metrics: the server is gone; metrics\.csv has all$"):
        entry = sslkit.pretrain(logging(small_run, "wandb", epochs=1))
    assert entry.card["after"]


def test_a_tracker_that_cannot_start_is_one_line_before_anything_is_computed(small_run, tracker, monkeypatch) -> None:
    def refuse(self, params: dict, *_: Any) -> None:
        raise RuntimeError("no key\nlong explanation")

    with monkeypatch.context() as patch:
        patch.setattr(Tracker, "log_hyperparams", refuse)
        patch.setattr(start, "evaluate", lambda *_: pytest.fail("the network was judged"))
        with pytest.raises(
            UserError, match=r"trainer\.logger=wandb cannot start: no key; Fake=offline works, trainer"
        ) as error:
            sslkit.pretrain(logging(small_run, "wandb", name="x", epochs=1))
    assert "\n" not in str(error.value)
    assert sslkit.pretrain(logging(small_run, "csv", name="x", epochs=1, resume=True)).folder.name == "x"


def test_a_full_disk_stops_the_run_in_one_line_and_it_goes_on(small_run, tracker, monkeypatch) -> None:
    def full(self, metrics: dict, step: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Tracker, "log_metrics", full)
        with pytest.raises(
            UserError, match=r"stopped: No space left on device; nothing was saved yet, .*resume=True begins"
        ):
            sslkit.pretrain(logging(small_run, "wandb", name="x", epochs=1))
    assert tracker.made[0].finished == 1
    assert sslkit.pretrain(logging(small_run, "wandb", name="x", epochs=1, resume=True)).folder.name == "x"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("wandb", r'trainer\.logger=wandb needs the package wandb, .*: pip install "sslkit\[wandb\]"'),
        ("mlflow", r'needs the package mlflow, .*: pip install "sslkit\[mlflow\]"'),
        ("comet", r'needs the package comet_ml, .*: pip install "comet-ml"'),
    ],
)
def test_one_that_is_not_installed_is_refused_before_a_folder_is_made(
    small_run, name: str, said: str, monkeypatch, tmp_path
) -> None:
    find = loggers.importlib.util.find_spec
    hidden = {kind.module for kind in loggers.KINDS.values()}
    monkeypatch.setattr(
        loggers.importlib.util, "find_spec", lambda module, *more: None if module in hidden else find(module, *more)
    )
    with pytest.raises(UserError, match=said):
        sslkit.pretrain(logging(small_run, name))
    assert not (tmp_path / "zoo").exists()


def test_an_unknown_name_lists_the_known_ones() -> None:
    known = "tensorboard, csv, wandb, mlflow, comet or litlogger"
    for given in ("wandbb", ["csv", "tensorbord"]):
        with pytest.raises(UserError, match=rf"trainer\.logger must be {known}, or a list of such"):
            Config.from_mapping({"trainer.logger": given})
    names = Config.from_mapping({"trainer.logger": ["csv", "mlflow", "tensorboard", "mlflow"]})
    assert loggers.chosen(names.trainer.logger) == ["mlflow", "tensorboard"] and loggers.chosen(
        Config().trainer.logger
    ) == ["tensorboard"]


def test_every_logger_of_lightning_is_known() -> None:
    """And each takes the options that it is given; Logger is their base, and CSVLogger is History's metrics.csv."""
    import inspect

    assert {kind.name for kind in loggers.KINDS.values()} == set(lightning.__all__) - {"Logger", "CSVLogger"}
    for name, kind in loggers.KINDS.items():
        parameters = inspect.signature(getattr(lightning, kind.name).__init__).parameters
        given = set(loggers._options(name, Path("x"), "id"))
        assert given <= set(parameters) or "kwargs" in parameters


def test_a_damaged_file_of_identifiers_is_named(small_run, tracker) -> None:
    folder = Path(small_run["out"]) / "x"
    folder.mkdir(parents=True)
    (folder / "loggers.json").write_text("[1]")
    with pytest.raises(UserError, match=r"loggers\.json is damaged: remove it"):
        sslkit.pretrain(logging(small_run, "wandb", name="x", resume=True))


@pytest.mark.slow
def test_wandb_offline(small_run, monkeypatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    for name in ("a", "b"):
        entry = sslkit.pretrain(logging(small_run, "wandb", name=name, epochs=1))
        known = json.loads((entry.folder / "loggers.json").read_text())["wandb"]
        (written,) = (entry.folder / "wandb").glob(f"offline-run-*-{known}/run-{known}.wandb")
        content = written.read_bytes()
        assert b"images_per_second" in content and b"batch_size" in content


@pytest.mark.slow
def test_a_run_of_wandb_that_the_caller_has_open_stays_the_callers(small_run, monkeypatch, tmp_path) -> None:
    import wandb

    monkeypatch.setenv("WANDB_MODE", "offline")
    with wandb.init(project="mine", dir=tmp_path) as mine:
        entry = sslkit.pretrain(logging(small_run, "wandb", name="a", epochs=1))
        assert wandb.run is mine and "loss" not in dict(mine.summary)
        mine.log({"after": 1})
    known = json.loads((entry.folder / "loggers.json").read_text())["wandb"]
    assert known != mine.id and list((entry.folder / "wandb").glob(f"offline-run-*-{known}"))


@pytest.mark.nightly
def test_each_run_has_a_database_of_mlflow_and_a_status(small_run, monkeypatch) -> None:
    from mlflow.tracking import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    first = sslkit.pretrain(logging(small_run, "mlflow", name="a", epochs=1))
    cut(logging(small_run, "mlflow", name="b"))
    assert "MLFLOW_TRACKING_URI" not in os.environ
    for folder, status in ((first.folder, "FINISHED"), (first.folder.with_name("b"), "FAILED")):
        client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
        (kept,) = [run for e in client.search_experiments() for run in client.search_runs([e.experiment_id])]
        assert (kept.info.run_name, kept.info.status) == (folder.name, status)


@pytest.mark.nightly
def test_mlflow_in_the_runs_folder(small_run, monkeypatch) -> None:
    from mlflow.tracking import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = logging(small_run, "mlflow", "tensorboard", name="x")
    with monkeypatch.context() as patch:
        patch.setattr(pretrain, "finish", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            sslkit.pretrain(run)
    entry = sslkit.pretrain({**run, "resume": True})
    client = MlflowClient(f"sqlite:///{entry.folder / 'mlflow.db'}")
    (experiment,) = [e for e in client.search_experiments() if e.name == "sslkit"]
    (kept,) = client.search_runs([experiment.experiment_id])
    assert kept.info.run_id == json.loads((entry.folder / "loggers.json").read_text())["mlflow"]
    assert kept.info.run_name == "x" and kept.data.params["data/batch_size"] == "32"
    assert [m.step for m in client.get_metric_history(kept.info.run_id, "loss")] == [1, 2, 3, 4, 5, 6]
    assert not os.path.lexists("mlruns")
