"""Patches, their classes' shares, and mIoU against loops and scikit-learn."""

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from sklearn.metrics import jaccard_score
from torch import nn

import sslkit
from evaluation.features.places import check_network
from evaluation.tasks.segmentation import miou
from evaluation.tasks.segmentation.features import (
    class_shares,
    each_map,
    patches_of,
)
from evaluation.tasks.segmentation.label_maps import IGNORED
from evaluation.tasks.segmentation.pictures import draw_maps
from evaluation.tasks.segmentation.sources import open_label_maps
from sslkit.errors import UserError
from sslkit.models.places import enlarge, place_features, prepare
from sslkit.numerics.figures import class_styles, palette
from sslkit.runtime.context import Runtime

QUIET = Runtime(device="cpu", progress=False)


@pytest.mark.parametrize(("size", "grid"), [((12, 12), (3, 4)), ((7, 10), (3, 3)), ((4, 4), (4, 4)), ((5, 9), (2, 7))])
def test_shares_are_counted_pixel_by_pixel(size: tuple[int, int], grid: tuple[int, int]) -> None:
    g = torch.Generator().manual_seed(0)
    classes = torch.randint(0, 4, size, generator=g, dtype=torch.uint8)
    classes[torch.rand(size, generator=g) < 0.3] = IGNORED
    share, weight = class_shares(classes, 4, grid)
    table, pixels = np.zeros((*grid, 4)), np.zeros(grid)
    for y in range(size[0]):
        for x in range(size[1]):
            cell = int((y + 0.5) * grid[0] / size[0]), int((x + 0.5) * grid[1] / size[1])
            pixels[cell] += 1
            if classes[y, x] != IGNORED:
                table[(*cell, int(classes[y, x]))] += 1
    total = table.sum(-1)
    np.testing.assert_allclose(weight.reshape(grid), total / np.maximum(pixels, 1), rtol=1e-6)
    np.testing.assert_allclose(share.reshape(*grid, 4), table / np.maximum(total, 1)[..., None], rtol=1e-6)


def test_miou_is_scikit_learns_mean_jaccard_index() -> None:
    g = torch.Generator().manual_seed(1)
    truth = torch.randint(0, 5, (6, 20, 30), generator=g, dtype=torch.uint8)
    guess = torch.where(torch.rand(6, 20, 30, generator=g) < 0.6, truth, torch.randint(0, 5, (6, 20, 30), generator=g))
    truth[:, 0] = IGNORED
    table = np.stack([miou.counts(t, f.to(torch.uint8), 7) for t, f in zip(truth, guess, strict=True)])
    kept = truth != IGNORED
    assert miou.miou(table) == pytest.approx(jaccard_score(truth[kept], guess[kept], average="macro"), rel=1e-12)
    value, others = miou.estimates(table)
    assert value.interval is None and "it takes about" in value.kind  # of six images
    assert others["pixel_accuracy"].value == pytest.approx((truth[kept] == guess[kept]).double().mean().item())


def test_a_class_that_is_nowhere_does_not_count_and_one_that_is_only_predicted_does() -> None:
    truth = torch.zeros(2, 2, dtype=torch.uint8)
    assert miou.miou(miou.counts(truth, truth, 9)[None]) == 1
    guess = torch.tensor([[0, 0], [0, 3]], dtype=torch.uint8)
    assert miou.miou(miou.counts(truth, guess, 9)[None]) == pytest.approx((3 / 4 + 0) / 2)


def test_scores_are_enlarged_bilinearly_before_the_choice() -> None:
    scores = torch.tensor([[[1.0, 0.0]], [[0.0, 2.0]]])
    assert enlarge(scores, (1, 6)).tolist() == [[0, 0, 1, 1, 1, 1]]


@pytest.mark.parametrize(("name", "grid"), [("random:narrow_vit", (8, 8)), ("random:narrow_resnet", (2, 2))])
def test_places_are_the_networks_own_features(name: str, grid: tuple[int, int]) -> None:
    model = sslkit.load(name, image_size=32)
    assert check_network(model, "knn_seg") == grid
    x = torch.rand(2, 3, 32, 32)
    with torch.inference_mode():
        places, pooled = place_features(model.backbone, x, 1), model.net(x)
    torch.testing.assert_close(places.mean((2, 3)), pooled if name.endswith("resnet") else places.mean((2, 3)))
    assert places.shape == (2, model.width, *grid)
    if name.endswith("vit"):  # the pooled features are normalised after the mean
        with torch.inference_mode():
            tokens = model.net.forward_features(x)[:, model.net.num_prefix_tokens :]
            expected = model.net.fc_norm(tokens)
        torch.testing.assert_close(places.flatten(2).mT, expected)


def test_images_are_squeezed_to_the_networks_square_and_normalised() -> None:
    model = sslkit.load("random:narrow_vit", image_size=16)
    image = torch.randint(0, 256, (3, 20, 40), dtype=torch.uint8)
    expected = nn.functional.interpolate(image[None] / 255, (16, 16), mode="bicubic", antialias=True)[0].clamp(0, 1)
    mean, std = (torch.tensor(one).view(3, 1, 1) for one in (model.mean, model.std))
    torch.testing.assert_close(prepare(image, model), (expected - mean) / std)
    gray = sslkit.load("random:narrow_vit", image_size=16, in_chans=1)
    assert prepare(image, gray).shape == (1, 16, 16)


def test_patches_are_drawn_evenly_and_those_without_a_class_left_out() -> None:
    maps = open_label_maps("clipart_boxes", "test").take(np.arange(5))
    model = sslkit.load("random:narrow_vit", image_size=32)
    whole = patches_of(model, maps, 10**6, QUIET)
    assert len(whole.x) == 5 * 64 and (np.bincount(whole.image) == 64).all()
    np.testing.assert_allclose(whole.share.sum(1), 1, rtol=1e-5)
    some = patches_of(model, maps, 50, QUIET)
    again = patches_of(model, maps, 50, QUIET)
    assert (np.bincount(some.image) == 10).all() and np.array_equal(some.x, again.x)
    rows = {row.tobytes() for row in whole.x.round(4)}
    assert all(row.tobytes() in rows for row in some.x.round(4))


def test_a_diverged_network_and_networks_without_a_map_are_one_line() -> None:
    maps = open_label_maps("clipart_boxes", "test").take(np.arange(3))
    model = sslkit.load("random:narrow_resnet", image_size=32)
    with torch.no_grad():
        model.net.conv1.weight.fill_(float("nan"))
    with pytest.raises(UserError, match="not finite"):
        list(each_map(model, maps, "", QUIET))
    flat = sslkit.load(nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 4)), image_size=16)
    with pytest.raises(UserError, match="feature map"):
        check_network(flat, "linear_seg")
    with pytest.raises(UserError, match="one place"):
        check_network(sslkit.load("random:resnet18", image_size=8), "linear_seg")


def test_the_picture_shows_the_classes_that_occur(tmp_path) -> None:
    maps = open_label_maps("clipart_boxes", "test").take(np.arange(3))
    draw_maps(maps, [maps[row][1].numpy() for row in range(3)], tmp_path / "maps.png", title="a model")
    assert (tmp_path / "maps.png").stat().st_size > 10_000
    names = [f"kind {k}" for k in range(25)]
    colours = palette(names)
    assert len({tuple(colour) for colour in colours[:25]}) == 25, "twelve colours, strong and pale, and gray"
    assert to_hex(colours[1]) == class_styles(names[1:])[0][0] and colours[IGNORED].tolist() == [1, 1, 1]
