"""The attentive probe: what mean pooling cannot see, chance for labels of chance, a stopped call, bad input."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import evaluation
import sslkit
from evaluation.features.extraction import features_of
from evaluation.features.places import as_places
from evaluation.features.table import JoinedRows, join_splits
from evaluation.learners import attention_pools
from evaluation.protocols.base import Subject
from evaluation.results.result import Result
from sslkit.data.sources.named import open_images
from sslkit.errors import UserError
from sslkit.models.places import place_features
from sslkit.numerics.schedules import cosine
from sslkit.runtime.context import Runtime

GRID = {"learning_rates": [0.002, 0.02], "weight_decays": [0.05], "iterations": 60, "batch_size": 64}
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
    how = {"image_size": 32, "in_chans": 1, "grid": GRID, "cache": data.parent / "cache", **QUIET}
    return evaluation.attentive(f"random:{name}", data, **{**how, **options})


@pytest.mark.parametrize(("name", "pool"), [("narrow_vit", "efficient"), ("narrow_resnet", "attention")])
def test_a_probe_is_chosen_on_training_images_and_paired_with_others(name: str, pool: str, data: Path) -> None:
    result = measured(name, data / "real.npz", pool=pool)
    tried, places = result.details["tried"], sslkit.load(f"random:{name}", image_size=32, in_chans=1)
    assert [one["lr"] for one in tried] == GRID["learning_rates"] and result.details["pool"] == pool
    chosen = next(one["value"] for one in tried if one["lr"] == result.details["lr"])
    assert chosen == max(one["value"] for one in tried) and result.details["chosen_by"] == "held-out train"
    grid = places.backbone.feature_map(torch.zeros(1, 1, 32, 32))[0].shape[-2:]
    assert result.details["tokens"] == grid[0] * grid[1] and f"{pool} pool of {grid[0]} x " in result.recipe
    assert result.model == f"random:{name}" and result.details["rows"] == 400 and not result.leaky
    assert result.interval[0] < result.value < result.interval[1] and result.value > 0.3
    size = {"image_size": 32, "in_chans": 1, **QUIET, "cache": data / "cache"}
    train, test = (
        evaluation.extract(f"random:{name}", data / "real.npz", split, **size) for split in ("train", "test")
    )
    pair = evaluation.compare(result, evaluation.linear_probe(train, test, c=1.0))
    assert (pair.test, pair.n) == ("McNemar", 200) and pair.interval[0] <= pair.difference <= pair.interval[1]


def test_labels_of_chance_give_chance(data: Path) -> None:
    result = measured("narrow_vit", data / "chance.npz")
    assert result.interval[0] < 0.1 < result.interval[1]


class Spots(nn.Module):
    """A network of one's own whose map is the image, its sign and its square."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Parameter(torch.ones(1))

    def forward_features(self, x: Tensor) -> Tensor:
        level = x[:, :1] * self.one
        return torch.cat([level, level.sign() * torch.ones_like(x[:, :1]), level.square()], 1)

    def forward_head(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))


def test_tokens_are_the_networks_places_in_half_precision_and_stay_on_the_disk(data: Path, tmp_path: Path) -> None:
    model = sslkit.load("random:narrow_vit", image_size=32, in_chans=1)
    places, runtime = as_places(model), Runtime(cache=tmp_path, device="cpu", progress=False)
    subject = Subject(model, data / "real.npz")
    opened = {split: subject.open_split(split) for split in ("train", "test")}
    train, test = (features_of(places, one, subject.reading, runtime, np.float16) for one in opened.values())
    assert isinstance(train.x, np.memmap) and train.x.dtype == np.float16
    images = model.clean(opened["train"].images)
    pixels = model.normalize(images.__getitems__([0])["images"])
    with torch.inference_mode():
        expected = place_features(model.backbone, pixels, 1)[0].flatten(1).T.numpy()
    np.testing.assert_allclose(train.x[0].reshape(expected.shape), expected, rtol=2e-3, atol=2e-3)
    assert train.digest != features_of(places, opened["train"], subject.reading, runtime).digest
    joined = join_splits(train, test, in_memory=False)
    both, rows = np.concatenate([train.x, test.x]), np.array([599, 0, 400, 399, 0])
    assert isinstance(joined.x, JoinedRows) and joined.x.shape == both.shape
    assert np.array_equal(joined.x[rows], both[rows]) and np.array_equal(joined.x[390:410], both[390:410])
    assert np.array_equal(joined.x[450], both[450])


def test_a_stopped_call_goes_on(data: Path, tmp_path: Path) -> None:
    whole = measured("narrow_resnet", data / "real.npz")
    seen: list[float] = []

    def counted(step: float, steps: float) -> float:
        seen.append(step)
        if len(seen) == 40:
            raise KeyboardInterrupt
        return cosine(step, steps)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention_pools, "cosine", counted)
        with pytest.raises(KeyboardInterrupt):
            measured("narrow_resnet", data / "real.npz", out=tmp_path, save_seconds=0)
        [file] = tmp_path.glob(".attentive-*.ckpt")
        assert torch.load(file, weights_only=True)["step"] == 6 + 39
        resumed = measured("narrow_resnet", data / "real.npz", out=tmp_path, save_seconds=0)
    assert resumed.details["tried"] == whole.details["tried"] and np.array_equal(resumed.outcomes, whole.outcomes)
    assert not list(tmp_path.glob(".attentive-*"))


class Pruning(Spots):
    """Leaves out rows of places that are dark."""

    def forward_features(self, x: Tensor) -> Tensor:
        kept = super().forward_features(x)
        return kept if x.std() > 0 else kept[:, :, :-1]


class Loose(Spots):
    """Gives tokens that are in no grid."""

    def forward_features(self, x: Tensor) -> Tensor:
        return super().forward_features(x).flatten(2).transpose(1, 2)

    def forward_head(self, x: Tensor) -> Tensor:
        return x.mean(1)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("random:narrow_resnet(image_size=8)", {}, "one place in its last map"),
        ("random:narrow_slow", {}, "takes clips"),
        ("pixels", {}, "gives no feature map: take a timm model"),
        (Pruning(), {}, "attentive: Pruning has 31 x 32 places for one image and 32 x 32 for another of the same size"),
        (Loose(), {}, "attentive: Loose gives no map of places"),
        ("random:narrow_vit", {"pool": "mean"}, "pool must be efficient or attention, got 'mean'"),
        ("random:narrow_vit", {"grid": {"steps": 3}}, "there is no setting 'grid.steps'"),
    ],
)
def test_what_has_no_tokens_is_one_line_before_anything_is_read(model, options: dict, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        evaluation.attentive(model, "no/such/folder", image_size=32, **QUIET, **options)
    assert "\n" not in str(caught.value)


def test_tokens_that_half_precision_cannot_hold_are_one_line(data: Path) -> None:
    model = Spots()
    model.one.data *= 1e6
    with pytest.raises(UserError, match=r"gives features that are not finite .* as float16"):
        evaluation.attentive(model, data / "real.npz", image_size=8, in_chans=1, cache=None, **QUIET)
