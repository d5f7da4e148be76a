"""A whole published benchmark, with made models and a small real data set in the place of the published ones."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from evaluation.datasets import open_split
from evaluation.datasets.base import Split
from evaluation.ranking import published_ranking
from evaluation.ranking.inputs.benchmark import Benchmark
from evaluation.ranking.published_ranking import means, rank_published
from sslkit.errors import UserError

OWN = {"zoo": None, "data": None}  # the models and data of the benchmark alone


def test_each_data_set_is_ranked_against_its_published_truth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    zoo = {f"model {seed}": f"random:narrow_resnet:{seed}" for seed in range(4)}
    truth = {"digits": {name: 90.0 - k for k, name in enumerate(zoo)}}
    made = Benchmark("ped", zoo, ["digits"], tmp_path)
    monkeypatch.setattr(published_ranking, "open_benchmark", lambda name, **_: made)
    monkeypatch.setattr(published_ranking.published, "truth", lambda name: truth)
    (ranking,) = published_ranking.rank_published(
        "ped",
        tmp_path,
        metrics=["logme", "leep", "param_count"],
        out=tmp_path,
        bootstrap=5,
        max_images=60,
        image_size=16,
        cache=tmp_path / "cache",
        pictures=False,
        **OWN,
    )
    assert ranking.models == tuple(zoo) and ranking.truth.tolist() == [90.0, 89.0, 88.0, 87.0]
    assert set(ranking.agreement) == {"logme"}  # no source classifiers, and all of one size
    said = capsys.readouterr().out
    assert "mean over 1 data sets" in said and "leep" in said and "no agreement" in said
    assert "note      no source classifier: no LEEP, no NCE (model 0, " in said
    assert (tmp_path / "ped" / "digits.json").is_file()


@pytest.mark.parametrize("given", [{"zoo": ["efficientnet_lite0"]}, {"data": "digits"}, {"truth": "truth.json"}])
def test_a_benchmark_brings_its_own_zoo_data_and_truth(given: dict, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"leave out {next(iter(given))}="):
        rank_published("ped", tmp_path, metrics=["logme"], **{**OWN, **given})


def test_every_set_is_opened_and_checked_before_the_first_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("features were extracted")

    made = Benchmark("ped", {"one": "random:narrow_resnet"}, ["digits", "glyphs"], tmp_path)
    monkeypatch.setattr(published_ranking, "open_benchmark", lambda name, **_: made)
    monkeypatch.setattr(
        published_ranking.published, "truth", lambda name: {"digits": {"one": 1.0}, "glyphs": {"one": 1.0}}
    )
    monkeypatch.setattr("evaluation.features.extraction._extract", never)
    with pytest.raises(UserError, match="max_images=20 is less than two for each class of glyphs"):
        rank_published("ped", tmp_path, metrics=["logme"], max_images=20, image_size=16, **OWN)


def test_metrics_of_classes_rank_a_set_with_several_classes_an_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def several(tasks: dict, *_: object) -> dict[str, Split]:
        split = open_split("digits", "train").take(np.arange(60))
        y = np.where(np.eye(10)[split.y] + np.eye(10)[9 - split.y] > 0, 1, -1)
        return {"voc07": replace(split, y=y.astype(np.int8))}

    zoo = {f"model {seed}": f"random:narrow_resnet:{seed}" for seed in range(3)}
    made = Benchmark("ped", zoo, ["voc07"], tmp_path)
    monkeypatch.setattr(published_ranking, "open_benchmark", lambda name, **_: made)
    monkeypatch.setattr(published_ranking, "open_tasks", several)
    truth = {"voc07": {name: float(k) for k, name in enumerate(zoo)}}
    monkeypatch.setattr(published_ranking.published, "truth", lambda name: truth)
    how = {"out": tmp_path, "bootstrap": 0, "image_size": 16, "cache": None, "pictures": False}
    (ranking,) = rank_published("ped", tmp_path, metrics=["logme", "sfda", "ped+gbc"], **OWN, **how)
    assert np.isfinite(ranking.scores).all()
    assert "each image has the first of its classes" in capsys.readouterr().out


def test_a_mean_says_of_how_many_data_sets_it_is() -> None:
    def one(*metrics: str) -> SimpleNamespace:
        found = {metric: [SimpleNamespace(name="tau", value=0.5)] for metric in metrics}
        return SimpleNamespace(metrics=("logme", "leep"), agreement=found)

    lines = means([one("logme", "leep"), one("logme")]).splitlines()
    assert lines[0].endswith("tau 0.50") and lines[1].endswith("tau 0.50 (over 1 of them)")
