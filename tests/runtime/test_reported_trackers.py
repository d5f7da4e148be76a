"""Public reports about trackers in other libraries: names, values and settings that real trackers do not take."""

import json
import math
import warnings
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from sslkit.errors import UserError
from sslkit.runtime import loggers

SETTINGS = {
    "data": {"source": [f"path/to/{'images' * 10}/{number}" for number in range(200)]},  # 13,000 letters
    "name": None,
    "optimizer": {"betas": (0.9, 0.95), "schedule": {}},
    "method": ["a", None, {"b": [1.5]}],
}
VALUES = [math.nan, math.inf, -math.inf, 1.0]


def logged(name: str, folder: Path, first: int = 0) -> None:
    """A row for each of VALUES, of which none is warned of."""
    folder.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings(), loggers.open_trackers(name, folder, SETTINGS) as trackers:
        warnings.filterwarnings("error", ".*takes no metrics.*")
        for step, value in enumerate(VALUES, first):
            trackers.log({"loss": value}, step, closes_epoch=False)


def test_tensorboard_takes_nested_settings_and_values_that_are_not_finite(tmp_path: Path) -> None:
    """A hyperparameter of None or a list ended the run; NaN was left out, so that a curve went on."""
    folder = tmp_path / "a[b] 100%?"  # glob takes [b] for a pattern
    logged("tensorboard", folder)
    logged("tensorboard", folder, len(VALUES))
    rows = EventAccumulator(str(folder)).Reload()
    assert [row.step for row in rows.Scalars("loss")] == list(range(2 * len(VALUES)))
    assert len(rows.Scalars("hp_metric")) == 1, "the settings are logged once"
    assert list(map(str, (row.value for row in rows.Scalars("loss"))))[:3] == ["nan", "inf", "-inf"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["n" * 200, "a[b]#c:d%", "-rf"])
def test_wandb_takes_any_name_of_a_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Identifiers that were made of the run's name were too long, or had letters that are not allowed."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    logged("wandb", tmp_path / name)
    known = json.loads((tmp_path / name / "loggers.json").read_text())["wandb"]
    assert list((tmp_path / name / "wandb").glob(f"offline-run-*-{known}/run-{known}.wandb"))


@pytest.mark.parametrize("name", ["a?b", "a%20b"])
def test_mlflow_refuses_a_folder_that_it_would_take_for_another(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    """`sqlite:///a?b/mlflow.db` is a database `a`, beside the run."""
    pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    line = r"trainer\.logger=mlflow cannot start: MLflow takes \? and % in .* for parts of an address"
    with pytest.raises(UserError, match=line):
        logged("mlflow", tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.nightly
def test_mlflow_takes_long_settings_and_values_that_are_not_finite(tmp_path: Path, monkeypatch: Any) -> None:
    """A parameter of more than 6,000 letters was refused; NaN broke the table of the latest values."""
    from mlflow.tracking import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    folder = tmp_path / "a b#c&d"
    logged("mlflow", folder)
    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    (kept,) = [run for e in client.search_experiments() for run in client.search_runs([e.experiment_id])]
    assert kept.info.status == "FINISHED" and kept.data.params["name"] == "None"
    assert [row.step for row in client.get_metric_history(kept.info.run_id, "loss")] == [0, 1, 2, 3]


def test_a_row_is_sent_although_another_tracker_refuses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One tracker's error ended the loop over all of them."""
    from pytorch_lightning import loggers as lightning

    class Refusing(lightning.TensorBoardLogger):
        def __init__(self, name: str, save_dir: Path, **_: Any) -> None:
            super().__init__(save_dir / "other", name)

        def log_hyperparams(self, *_: Any, **__: Any) -> None: ...

        def log_metrics(self, *_: Any, **__: Any) -> None:
            raise ConnectionResetError("reset by peer")

    monkeypatch.setattr(lightning, "WandbLogger", Refusing)
    monkeypatch.setattr(loggers, "_close", lambda *_: None)
    with (
        pytest.warns(UserWarning, match="Refusing takes no metrics: reset by peer"),
        loggers.open_trackers(["wandb", "tensorboard"], tmp_path, {}) as trackers,
    ):
        trackers.log({"loss": 1.0}, 1, closes_epoch=False)
    assert [row.value for row in EventAccumulator(str(tmp_path)).Reload().Scalars("loss")] == [1.0]
