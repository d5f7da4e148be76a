"""Linear segmentation against scikit-learn's regression on the same shares, and on a task that colours solve."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

import sslkit
from evaluation.tasks.segmentation import features, judge
from evaluation.tasks.segmentation.features import Patches
from evaluation.tasks.segmentation.miou import counts, miou
from evaluation.tasks.segmentation.protocols.knn_seg import knn_seg
from evaluation.tasks.segmentation.protocols.linear_seg import fit_classifier, linear_seg, path, shares_loss
from evaluation.tasks.segmentation.sources import open_label_maps
from sslkit.errors import RunFailed, UserError
from sslkit.models import places as of_models
from sslkit.models.places import place_features


def patches(n: int = 200, features: int = 6, classes: int = 3, seed: int = 0) -> Patches:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, features)).astype(np.float32)
    logits = x @ rng.normal(size=(features, classes)) + rng.normal(size=(n, classes))
    share = np.exp(2 * logits) / np.exp(2 * logits).sum(1, keepdims=True)
    image = np.arange(n) // 10
    likeness = np.zeros((n, 4), np.int64)
    return Patches(x, share.astype(np.float32), rng.uniform(0.2, 1, n).astype(np.float32), image, image, likeness)


@pytest.mark.parametrize("penalty", [1.0, 0.01])
def test_the_classifier_is_scikit_learns_on_weighted_copies(penalty: float) -> None:
    own = patches()
    n, k = own.share.shape
    theta = path(own, 2000, None, (penalty,))["head"]
    x, y = np.repeat(own.x, k, axis=0), np.tile(np.arange(k), n)
    weight = (own.weight[:, None] * own.share / own.weight.mean()).ravel()
    sklearn = LogisticRegression(C=1 / (penalty * n), tol=1e-10, max_iter=10_000).fit(x, y, sample_weight=weight)
    # the weights of both have mean 0 over the classes: the penalty sees to that
    np.testing.assert_allclose(theta[0].numpy(), sklearn.coef_, atol=0.02)
    centred = theta[1] - theta[1].mean()
    np.testing.assert_allclose(centred.numpy(), sklearn.intercept_ - sklearn.intercept_.mean(), atol=0.02)


def test_the_loss_and_its_residual_are_the_cross_entropy_and_its_gradient() -> None:
    own = patches(n=30)
    logits = torch.randn(30, 3, dtype=torch.float64, requires_grad=True)
    value, residual = shares_loss(own)(logits.detach())
    weight, share = (torch.from_numpy(one).double() for one in (own.weight / own.weight.mean(), own.share))
    expected = (weight * nn.functional.cross_entropy(logits, share, reduction="none")).mean()
    expected.backward()
    assert value == pytest.approx(expected.item(), rel=1e-6)
    torch.testing.assert_close(residual / 30, logits.grad, rtol=1e-5, atol=1e-8)


def test_the_penalty_is_chosen_by_images_that_were_held_out_and_scale_does_not_matter() -> None:
    own = patches(n=400)
    (weight, bias), details = fit_classifier(own, 0, 500)
    scaled = replace(own, x=own.x * np.float32(1000) + np.float32(5))
    (other, shift), _ = fit_classifier(scaled, 0, 500)
    torch.testing.assert_close(other * 1000, weight, rtol=2e-3, atol=1e-3)
    torch.testing.assert_close(shift + 5 * other.sum(1), bias, rtol=2e-3, atol=5e-3)
    losses = details["held_out_loss"]
    assert losses[int(np.argmin(losses))] == min(losses) and min(losses) < losses[0]


class Colours(nn.Module):
    """Its map is the image itself at a quarter of the size: where colours tell classes, it segments."""

    def __init__(self, blind: bool = False) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.blind = blind

    def forward_features(self, x: torch.Tensor) -> torch.Tensor:
        small = nn.functional.avg_pool2d(x, 4) * self.scale
        return small.mean((2, 3), keepdim=True).expand_as(small) if self.blind else small

    def forward_head(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.forward_head(self.forward_features(x))


class Painted:
    """Images whose left part has one colour and class, the right part another."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __getitem__(self, row: int) -> torch.Tensor:
        image = torch.full((3, 32, 32), 40, dtype=torch.uint8)
        image[0, :, 4 * (2 + row % 4) :] = 220
        return image

    def path(self, row: int) -> str:
        return f"image {row}"

    def take(self, rows: np.ndarray) -> "Painted":
        return self

    def update_digest(self, digest) -> None:
        digest.update(b"painted")


class Halves(Painted):
    def __getitem__(self, row: int) -> np.ndarray:
        classes = np.zeros((32, 32), np.uint8)
        classes[:, 4 * (2 + row % 4) :] = 1
        return classes


def painted() -> dict:
    opened = {split: open_label_maps("clipart_boxes", split).take(np.arange(8)) for split in ("train", "test")}
    return {k: replace(v, classes=("a", "b"), pixels=Painted(8), maps=Halves(8)) for k, v in opened.items()}


@pytest.mark.parametrize("protocol", [linear_seg, knn_seg])
def test_colours_are_segmented_and_what_sees_no_place_is_not(protocol) -> None:
    found = protocol(Colours(), painted(), image_size=32, progress=False)
    blind = protocol(Colours(blind=True), painted(), image_size=32, progress=False)
    assert found.value > 0.98 and found.metric == "miou" and found.details["iou"].keys() == {"a", "b"}
    assert blind.value < 0.6
    assert found.interval is None and "it takes about" in found.kind  # of eight images
    assert 0 < found.others["pixel_accuracy"].value <= 1


@pytest.mark.parametrize("look", [{}, {"blocks": 2, "scales": [1, 1.5]}])
def test_a_kept_classifier_predicts_the_masks_that_were_measured(tmp_path: Path, look: dict) -> None:
    data = {split: open_label_maps("clipart_boxes", split).take(np.arange(12)) for split in ("train", "test")}
    how = {"image_size": 64, "progress": False, "max_iter": 20, "cache": None, **look}
    found = linear_seg("random:narrow_vit", data, out=tmp_path, keep="best", **how)
    [name] = found.details["kept"]
    model, card = sslkit.load(tmp_path / name), sslkit.ZooEntry.load(tmp_path / name).card["segmenter"]
    assert card["measured"]["value"] == found.value and card["measured"]["n"] == 12 and "linear" in card["made"]
    assert model.classes == data["test"].classes and model.image_size == 64
    images = np.stack([data["test"][row][0].numpy() for row in range(12)])
    masks = model.predict(images, progress=False).masks
    table = np.stack(
        [counts(data["test"][row][1], torch.from_numpy(masks[row]), len(model.classes)) for row in range(12)]
    )
    assert miou(table) == pytest.approx(found.value, abs=1e-4)
    assert "kept" not in linear_seg("random:narrow_vit", data, out=tmp_path / "none", **how).details
    assert not (tmp_path / "none/models").exists()


@pytest.mark.parametrize("protocol", [linear_seg, knn_seg])
def test_several_scales_see_colours_and_a_stopped_run_goes_on(
    protocol, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[int] = []

    def places(*given: Any) -> torch.Tensor:
        passes.append(1)
        if sum(passes) == 30:
            raise RunFailed("stopped")
        return place_features(*given)

    for module in (features, of_models):
        monkeypatch.setattr(module, "place_features", places)
    for module in (features, judge):
        monkeypatch.setattr(module, "BATCH", 2)
    model = sslkit.load(Colours(), image_size=32)
    how = {"scales": [1, 2], "progress": False, "cache": tmp_path / "cache"}
    with pytest.raises(RunFailed):
        protocol(model, painted(), **how)
    passes[:] = [100]
    result = protocol(model, painted(), **how)
    goes_on = sum(passes)
    assert result.value > 0.95 and result.recipe.endswith("8 x 8 patches at 2 scales and mirrored")
    whole = protocol(model, painted(), **{**how, "cache": None})
    assert whole.value == result.value and goes_on - 100 < sum(passes) - goes_on
    before = sum(passes)
    assert protocol(model, painted(), **how).value == result.value and sum(passes) - before <= 2, "only the grid"
    with pytest.raises(UserError, match="is no ViT"):
        protocol(model, painted(), blocks=4, progress=False)


class Brighter(Painted):
    """The images of another set, a little brighter."""

    def __init__(self, images: Any) -> None:
        self.images = images

    def __getitem__(self, row: int) -> torch.Tensor:
        return self.images[row].clamp(max=250) + 4


@pytest.mark.parametrize("protocol", [linear_seg, knn_seg])
def test_near_copies_across_the_split_are_told(protocol) -> None:
    train = open_label_maps("clipart_boxes", "train").take(np.arange(40))
    test = replace(train, split="test", pixels=Brighter(train.pixels))
    result = protocol("random:narrow_vit", {"train": train, "test": test}, image_size=16, progress=False)
    assert "40 of 40 test images of clipart_boxes have a near-copy in train" in result.details["notes"]
    apart = {"train": train, "test": open_label_maps("clipart_boxes", "test").take(np.arange(20))}
    assert "near-copy" not in protocol("random:narrow_vit", apart, image_size=16, progress=False).details.get(
        "notes", ""
    )


def test_other_classes_few_images_and_a_missing_split_are_refused() -> None:
    data = painted()
    with pytest.raises(UserError, match="different classes"):
        linear_seg(Colours(), {**data, "test": replace(data["test"], classes=("a", "c"))}, image_size=32)
    with pytest.raises(UserError, match="too few"):
        linear_seg(Colours(), {**data, "train": data["train"].take(np.arange(3))}, image_size=32)
    with pytest.raises(UserError, match="splits train and test"):
        linear_seg(Colours(), {"train": data["train"]}, image_size=32)
