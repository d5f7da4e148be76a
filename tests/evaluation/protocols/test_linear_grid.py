"""The grid of linear probes: what it chooses and says, chance for labels of chance, a stopped call, bad input."""

from pathlib import Path

import numpy as np
import pytest

import evaluation
import sslkit
from evaluation.learners import linear_heads
from evaluation.protocols import linear_grid as module
from evaluation.protocols.base import Judged
from evaluation.results.result import Result
from sslkit.data.sources.named import open_images
from sslkit.errors import UserError
from sslkit.numerics.schedules import cosine

GRID = {"learning_rates": [0.001, 0.1], "iterations": 60, "batch_size": 128}
QUIET = {"device": "cpu", "progress": False, "workers": 0}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 training images of digits and 200 test images, 800 with labels by chance."""
    images, folder = open_images("digits", split="train"), tmp_path_factory.mktemp("digits")
    x, y, drawn = images.pixels[:, 0], images.labels, np.random.default_rng(0).integers(0, 10, 1200)
    for name, labels, count in (("real", y, 600), ("chance", drawn, 1200)):
        parts = {"x_train": x[:400], "y_train": labels[:400], "x_test": x[400:count], "y_test": labels[400:count]}
        np.savez(folder / f"{name}.npz", **parts)
    return folder


def measured(name: str, data: Path, **options) -> Result:
    size = 8 if "resnet" in name else 32
    how = {"image_size": size, "in_chans": 1, "grid": GRID, "cache": data.parent / "cache", **QUIET}
    return evaluation.linear_grid(f"random:{name}", data, **{**how, **options})


def test_all_inputs_are_tried_and_the_best_is_named(data: Path) -> None:
    result = measured("narrow_vit", data / "real.npz")
    tried = result.details["tried"]
    assert {one["input"] for one in tried} == {f"last{n}.{pool}" for n in (1, 4) for pool in ("class", "mean", "both")}
    assert len(tried) == 12 and result.recipe.startswith("6 inputs x 2 heads, 60 steps")
    chosen = result.details["input"], result.details["lr"]
    best = max(one["value"] for one in tried)
    assert next(one["value"] for one in tried if (one["input"], one["lr"]) == chosen) == best
    assert result.details["rows"] == 400 and result.details["chosen_by"] == "held-out train" and not result.leaky
    said = result.details["best"]
    assert said.startswith("random:narrow_vit on real: last ") and f"won of 12 with {100 * best:.1f} %" in said
    assert f"at learning rate {result.details['lr']:g}" in said and result.value > 0.3
    assert result.interval[0] < result.value < result.interval[1] and result.outcomes.mean() == result.value
    member = Judged("random:narrow_vit", sslkit.load("random:narrow_vit", image_size=32, in_chans=1), data, [result])
    lines = module.terminal.remarks([member])
    assert lines == [f"best      {said}", f"features  checkpoint=random:narrow_vit@{result.details['input']}"]
    pair = evaluation.compare(result, measured("narrow_vit", data / "real.npz", pools=["mean"], blocks=[1]))
    assert pair.test == "McNemar" and pair.n == 200


def test_labels_of_chance_give_chance(data: Path) -> None:
    result = measured("narrow_resnet", data / "chance.npz")
    assert result.interval[0] < 0.1 < result.interval[1]
    assert {one["input"] for one in result.details["tried"]} == {"last1.mean", "last4.mean"}, "the last is its own"


def test_features_that_no_layer_has_stand_beside_the_stages() -> None:
    model = sslkit.load("efficientnet_lite0", image_size=32)
    assert module.inputs_of(model, module.Options()) == ["last1.mean", "last4.mean", "own"]


def steps_of(patch: pytest.MonkeyPatch, last: int | None = None) -> list[int]:
    """The steps that are computed from now on; the one after `last` of them ends the call."""
    seen: list[int] = []

    def counted(step: int, steps: int) -> float:
        seen.append(step)
        if last is not None and len(seen) > last:
            raise KeyboardInterrupt
        return cosine(step, steps)

    patch.setattr(linear_heads, "cosine", counted)
    return seen


@pytest.mark.parametrize("stop", [30, 90])
def test_a_stopped_call_goes_on(stop: int, data: Path, tmp_path: Path) -> None:
    whole = measured("narrow_resnet", data / "real.npz")
    with pytest.MonkeyPatch.context() as patch:
        steps_of(patch, stop)
        with pytest.raises(KeyboardInterrupt):
            measured("narrow_resnet", data / "real.npz", out=tmp_path, save_seconds=0)
    assert list(tmp_path.glob(".linear_grid-*.ckpt"))
    with pytest.MonkeyPatch.context() as patch:
        steps = steps_of(patch)
        resumed = measured("narrow_resnet", data / "real.npz", out=tmp_path, save_seconds=0)
    assert len(steps) == 2 * GRID["iterations"] - stop, "of the choice, and of the final fit"
    assert resumed.details["tried"] == whole.details["tried"] and resumed.value == whole.value
    assert np.array_equal(resumed.outcomes, whole.outcomes) and not list(tmp_path.glob(".linear_grid-*"))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("narrow_vit", {"blocks": [5]}, "narrow_vit has 4 layers, so there are no last 5"),
        ("narrow_resnet", {"pools": ["both"]}, "has no tokens"),
        ("vit_medium_patch16_gap_240", {"pools": ["class"]}, "no class token: take @mean"),
        ("narrow_vit", {"pools": ["max"]}, "pools must be a list, each class, mean or both"),
        ("narrow_vit", {"grid": {"rates": [1]}}, "there is no setting 'grid.rates'"),
    ],
)
def test_what_cannot_be_tried_is_one_line_before_anything_is_read(name: str, options: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        evaluation.linear_grid(f"random:{name}", "no/such/folder", image_size=32, **QUIET, **options)


def test_a_grid_that_diverges_is_one_line(data: Path) -> None:
    with pytest.raises(UserError, match="every head of the grid diverged"):
        measured("narrow_resnet", data / "real.npz", grid={**GRID, "learning_rates": [1e30], "weight_decays": [0.1]})
