"""Checks of shared arguments: each wrong value is one clear error, also from Python."""

from pathlib import Path

import numpy as np
import pytest

import evaluation
import sslkit
from evaluation.ranking.truth.ground_truth import ground_truth
from sslkit.errors import UserError
from sslkit.runtime.device import device_of


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> None:
    def extracted(*_: object, **__: object) -> None:
        raise AssertionError("features were extracted")

    monkeypatch.setattr("evaluation.features.extraction._extract", extracted)


@pytest.mark.parametrize("name", ["xyz", "meta", "cuda", "cuda:7", "cpu:x", "", "mps", 3.5])
def test_a_device_that_is_not_there_is_refused(name: object) -> None:
    with pytest.raises(UserError, match="device="):
        device_of(name)


@pytest.mark.parametrize("given", [{"image_size": 0}, {"image_size": -1}, {"image_size": 10**9}, {"in_chans": 0}])
def test_sizes_of_images_have_a_range(given: dict) -> None:
    with pytest.raises(UserError, match="must be a whole number"):
        sslkit.load("random:narrow_resnet", **given)


WRONG = [
    ("batch_size", 0),
    ("batch_size", -1),
    ("batch_size", 2.5),
    ("image_size", 0),
    ("counts", "maybe"),
    ("workers", -1),
    ("workers", "many"),
    ("on_error", "hope"),
    ("precision", None),
    ("device", "xyz"),
    ("device", "meta"),
]


@pytest.mark.parametrize(("name", "value"), [*WRONG, ("resize", 0), ("interpolation", "magic")])
def test_extract_refuses_what_is_out_of_range(name: str, value: object, never: None, tmp_path: Path) -> None:
    how = {"image_size": 8, "in_chans": 1, "cache": tmp_path / "cache", name: value}
    with pytest.raises(UserError, match=name):
        evaluation.extract("random:narrow_resnet", "digits", "test", **how)


@pytest.mark.parametrize(("name", "value"), [*WRONG, ("seed", -1), ("seed", 2**64)])
def test_evaluate_refuses_what_is_out_of_range(name: str, value: object, never: None, tmp_path: Path) -> None:
    how = {"image_size": 8, "cache": tmp_path / "cache", "out": tmp_path / "out", name: value}
    with pytest.raises(UserError, match=name):
        evaluation.evaluate("random:narrow_resnet", "digits", "knn", **how)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "value"), [*WRONG, ("max_images", 0), ("bootstrap", 1)])
def test_rank_refuses_what_is_out_of_range(name: str, value: object, never: None, tmp_path: Path) -> None:
    how = {"image_size": 8, "cache": tmp_path / "cache", "metrics": ["logme"], name: value}
    with pytest.raises(UserError, match=name):
        evaluation.rank(["random:narrow_resnet"], "digits", **how)


def test_one_class_is_refused_before_a_network_is_tuned(tmp_path: Path) -> None:
    images = np.zeros((20, 8, 8), np.uint8)
    parts = {"x_train": images, "y_train": [3] * 20, "x_test": images, "y_test": [3] * 20}
    np.savez(tmp_path / "one.npz", **parts)
    with pytest.raises(UserError, match="one class"):
        ground_truth(["random:narrow_resnet"], str(tmp_path / "one.npz"), out=tmp_path / "out", image_size=8)
    assert not (tmp_path / "out").exists()
