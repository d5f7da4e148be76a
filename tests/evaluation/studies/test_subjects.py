"""A network of one layer followed through its fine-tuning, and the experiments on such networks."""

from pathlib import Path

import numpy as np
import pytest
from torch import nn

from evaluation.datasets import Reading
from evaluation.ranking.truth.ground_truth import open_splits
from evaluation.studies import maps, subjects
from evaluation.studies.claims import Claim
from evaluation.studies.maps import SAME, TunedMaps
from evaluation.studies.stages import Curves, Stages
from evaluation.studies.study import Lab
from evaluation.studies.subjects import Stage, Subjects, follow, percent
from evaluation.tuning.classifier import Setting
from sslkit.models.loading import load
from sslkit.models.model import Model

SETTING = Setting(lr=1e-2, optimizer="adamw", steps=4, batch_size=8, crop=(0.5, 1.0), mirror=False)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    from sslkit.runtime.context import Runtime

    (tmp_path / "ped").mkdir()
    runtime = Runtime(device="cpu", out=tmp_path / "ped", cache=tmp_path / "cache", progress=False)
    return Lab(scale="small", root=tmp_path, zoo=tmp_path / "zoo", train=lambda words: None, runtime=runtime)


@pytest.fixture
def nets(monkeypatch: pytest.MonkeyPatch) -> dict[str, Model]:
    """Three networks in place of the small zoo, each tuned by SETTING."""
    layers = {
        name: nn.Sequential(nn.Flatten(), nn.Linear(64, width)) for name, width in zip("abc", (3, 4, 5), strict=True)
    }
    models = {name: load(net, image_size=8, in_chans=1) for name, net in layers.items()}
    monkeypatch.setattr(Subjects, "zoo", models)
    monkeypatch.setattr(Subjects, "splits", lambda self, task: open_splits("digits", Reading(), 60, 60))
    monkeypatch.setattr(Subjects, "truth", lambda self, task: {"a": 0.3, "b": 0.2, "c": 0.1})
    monkeypatch.setattr(Subjects, "settings", lambda self, task: dict.fromkeys(models, SETTING))
    monkeypatch.setattr(subjects, "SMALL", tuple(models))
    return models


def test_one_run_is_measured_at_all_shares(nets: dict[str, Model], lab: Lab) -> None:
    model, splits = nets["a"], open_splits("digits", Reading(), 60, 60)
    found = follow(model, splits, SETTING, (0, 0.1, 0.5, 1), lambda stage: stage.features("test"), lab)
    assert list(found) == [0, 0.1, 0.5, 1] and found[0].shape == (60, 3)
    assert np.array_equal(found[0], found[0.1]) and not np.array_equal(found[0.5], found[1])
    whole = follow(model, splits, SETTING, (1,), Stage.accuracy, lab)[1]
    assert whole == follow(model, splits, SETTING, (0.25, 0.5, 1), Stage.accuracy, lab)[1]


def test_ranks_and_curves_during_fine_tuning(nets: dict[str, Model], lab: Lab, tmp_path: Path) -> None:
    metrics = dict.fromkeys(
        (f"LogME after {percent(0)}", f"LogME after {percent(1)}", f"accuracy after {percent(1)}"), ""
    )
    ranks = Stages(caption="Figure.", metrics=metrics, benchmark="ped", claims=(), tasks=("digits",), shares=(0, 1))
    found = {key: job() for key, job in ranks.jobs(lab).items()}
    assert set(ranks.summarize(found).rows) == set(metrics) and len(found["digits"]) == 12
    curves = Curves(caption="Figure.", benchmark="itm", data={"small": "digits"}, shares=(0, 0.5, 1))
    found = {key: job() for key, job in curves.jobs(lab).items()}
    assert set(found) == {f"{name} | {seed}" for name in "abc" for seed in (0, 1)}
    curves.draw(found, tmp_path / "curves.png", "Curves")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_maps_stand_beside_the_results(nets: dict[str, Model], lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "tsne", lambda z, seed: (z[:, :2], 0.0))
    one = TunedMaps(
        caption="Figure.",
        name="fig8",
        models={"small": ("a", "b", "c")},
        data={"small": "digits"},
        benchmark="ped",
        mapped=("a",),
        claims=(Claim("tuning separates", SAME, ((percent(1), percent(0)),)),),
        shares=(0, 1),
    )
    found = {key: job() for key, job in one.jobs(lab).items()}
    summary = one.summarize(found)
    assert list(summary.rows) == ["a", "b", "c", maps.EVERY] and "over 3 networks" in summary.sentence
    one.draw(found, lab.runtime.out / "fig8.png", "Maps")
    assert (lab.runtime.out / "fig8.png").exists() and (lab.runtime.out / "fig8-a.npz").exists()


def test_shares_are_said_in_per_cent() -> None:
    assert percent(0.05) == "5 % of the steps" and subjects.PAPER.steps == 5000
