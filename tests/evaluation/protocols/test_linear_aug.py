"""The linear layer on augmented views of digits: frozen backbone, the published schedules, torch's SGD as oracle."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from evaluation import protocols
from evaluation.datasets import open_split
from evaluation.datasets.base import Split
from evaluation.protocols import linear_aug as module
from evaluation.protocols.base import Subject
from evaluation.protocols.linear_aug import RECIPES, layer_training, linear_on_views
from evaluation.results.result import rows_digest
from evaluation.tuning.classifier import Setting
from evaluation.tuning.loop import Diverged, fit
from evaluation.tuning.task import open_task
from sslkit.errors import UserError
from sslkit.models.loading import load
from sslkit.models.model import Model
from sslkit.runtime.context import Runtime


class Pixels(nn.Module):
    """Batch-normalised pixels: 64 features with running statistics that a frozen backbone must not change."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(1)
        self.shift = nn.Parameter(torch.zeros(64))

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x).flatten(1) + self.shift


@pytest.fixture
def model() -> Model:
    return load(Pixels(), image_size=8, in_chans=1)


@pytest.fixture(scope="module")
def splits() -> tuple[Split, Split]:
    train, test = (open_split("digits", split) for split in ("train", "test"))
    return train, test


def test_the_schedules_are_the_published_ones() -> None:
    moco, vissl, simclr = RECIPES["moco100"], RECIPES["vissl28"], RECIPES["simclr90"]
    assert [moco.factor(epoch / 100) for epoch in (0, 59, 60, 79, 80, 99)] == pytest.approx(
        [1, 1, 0.1, 0.1, 0.01, 0.01]
    )
    epochs = [0, 7, 8, 15, 16, 23, 24, 27]
    expected = [1, 1, 0.1, 0.1, 0.01, 0.01, 1e-3, 1e-3]
    assert [vissl.factor(epoch / 28) for epoch in epochs] == pytest.approx(expected)
    assert [simclr.factor(share) for share in (0, 0.25, 0.5, 1)] == pytest.approx([1, 0.8535534, 0.5, 0])
    assert (simclr.lr, moco.lr, vissl.lr, vissl.weight_decay) == (0.1, 30, 0.01, 5e-4)


def test_it_learns_and_leaves_the_backbone_alone(model, splits) -> None:
    before = {name: value.clone() for name, value in model.net.state_dict().items()}
    result = linear_on_views(model, *splits, epochs=6, batch_size=64)
    assert result.value > 0.5 and result.protocol == "linear_aug" and result.seeds == [0]  # 0.1 by chance
    assert result.recipe == "simclr90, 6 of 90 epochs, on augmented views"
    assert all(torch.equal(value, before[name]) for name, value in model.net.state_dict().items())
    test = splits[1]
    assert result.outcomes.mean() == result.value and result.paired_on == rows_digest(test.ids, test.y)
    assert result.details["steps"] == 6 * (len(splits[0]) // 64) and result.details["lr"] == pytest.approx(0.025)
    assert set(result.others) == {"top5", "mean_per_class"}


@pytest.mark.parametrize("recipe", ["moco100", "vissl28"])
def test_other_recipes(model, splits, recipe: str) -> None:
    result = linear_on_views(model, *splits, recipe, epochs=4, batch_size=64)
    assert result.value > 0.4 and result.recipe.startswith(f"{recipe}, 4 of ")


def test_the_seed_decides_everything(model, splits) -> None:
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first, again, other = (linear_on_views(model, *splits, epochs=1, batch_size=128, seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(first.outcomes, again.outcomes) and not np.array_equal(first.outcomes, other.outcomes)
    assert torch.equal(state, torch.get_rng_state())


def test_the_layer_is_trained_as_torch_does(generator: torch.Generator) -> None:
    x, y = torch.randn(96, 5, generator=generator), torch.randint(3, (96,), generator=generator)
    places = torch.arange(96).view(6, 16)
    backbone, recipe = nn.Sequential(nn.Linear(5, 4), nn.Dropout(0.5)).eval(), RECIPES["vissl28"]
    head, want = nn.Linear(4, 3), nn.Linear(4, 3)
    want.load_state_dict(head.state_dict())
    setting = Setting(lr=0.5, steps=6, batch_size=16)
    fit(
        layer_training(backbone, head, lambda first: ((x[at], at) for at in places), y, recipe, setting),
        checkpoint=None,
        progress=True,
    )
    optimizer = torch.optim.SGD(want.parameters(), 0.5, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4, 6])  # 8, 16 and 24 of 28 epochs in 6 steps
    for at in places:
        optimizer.zero_grad()
        F.cross_entropy(want(backbone(x[at]).detach()), y[at]).backward()
        optimizer.step()
        schedule.step()
    torch.testing.assert_close(head.weight, want.weight)
    torch.testing.assert_close(head.bias, want.bias)
    assert backbone[0].weight.grad is None
    wild = layer_training(backbone, head, lambda first: ((x[at] * torch.inf, at) for at in places), y, recipe, setting)
    with pytest.raises(Diverged, match="step 6"):
        fit(wild, checkpoint=None, progress=True)


def test_several_labels_an_image(model, splits) -> None:
    many = [
        replace(s, y=np.where(s.y[:, None] == np.arange(10), 1, -1).astype(np.int8), metric="map11") for s in splits
    ]
    result = linear_on_views(model, *many, epochs=5, batch_size=64)
    assert result.metric == "map11" and result.value > 0.25 and result.outcomes is None and result.paired_on == ""


def test_as_a_protocol_of_a_subject(model) -> None:
    subject, runtime = Subject(model, "digits"), Runtime(seed=3)
    on_views, linear = protocols.find("linear_aug"), protocols.find("linear")
    (result,) = on_views.run(subject, on_views.Options(epochs=1, batch_size=512), runtime)
    (same,) = linear.run(subject, linear.Options(recipe="moco100", epochs=1), runtime)
    assert same.protocol == "linear_aug" and same.recipe.startswith("moco100, 1 of 100 epochs")
    assert result.seeds == [3] and result.data == "digits" and result.n == len(open_split("digits", "test"))


def test_bad_input(model, splits) -> None:
    train, test = splits
    with pytest.raises(UserError, match=r"recipe must be .*, got 'simclr': did you mean 'simclr90'"):
        linear_on_views(model, train, test, "simclr")
    with pytest.raises(UserError, match=r"epochs must be .*, at least 1 .*, got 0"):
        linear_on_views(model, train, test, epochs=0)
    with pytest.raises(UserError, match=r"batch_size must be .*, at least 2 .*, got 1"):
        linear_on_views(model, train, test, batch_size=1)
    strange = replace(test, classes=[*test.classes[:9], "ten"])
    with pytest.raises(UserError, match="no image of: ten"):
        linear_on_views(model, train, strange, epochs=1)


def test_a_checkpoint_is_of_these_images_and_this_preparation(model, splits, tmp_path) -> None:
    task = open_task(model, dict(zip(("train", "test"), splits, strict=True)))
    others = [replace(task, digest="replaced images")]
    changed = [replace(model.resizing, **how) for how in ({"crop_pct": 0.5}, {"interpolation": "bilinear"})]
    others += [replace(task, model=replace(model, resizing=how)) for how in changed]
    places = [
        module._checkpoint(tmp_path, one, RECIPES["simclr90"], Setting(0.1)).path for one in (task, task, *others)
    ]
    assert places[0] == places[1] and len(set(places)) == 4


def test_validation_images_are_learned_from(model, splits) -> None:
    train, test = splits
    parts = train.take(np.arange(600)), train.take(np.arange(600, 900))
    found = linear_on_views(model, parts[0], test, epochs=1, val=parts[1])
    assert found.details["steps"] == 900 // 256


def test_one_test_image_of_each_class_and_a_seed_of_numpy(model, splits, tmp_path) -> None:
    train, test = splits
    rows = np.array([np.flatnonzero(test.y == k)[0] for k in range(10)])
    np.savez(tmp_path / "few.npz", x_test=test.images.pixels[rows, 0], y_test=test.y[rows])
    few = replace(open_split(tmp_path / "few.npz"), classes=test.classes)
    result = linear_on_views(model, train, few, epochs=1, batch_size=512, seed=np.int64(2))
    assert result.others["mean_per_class"].interval == pytest.approx(result.interval, abs=0.03)
    assert json.loads(result.to_json())["seeds"] == [2]
