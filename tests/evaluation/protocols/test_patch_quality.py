"""The dense structure of patches: the number of a run, in sets that no group shares, with its picture."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import evaluation
from evaluation.protocols.base import Subject
from evaluation.protocols.patch_quality import SET, Options, draw_sets, open
from sslkit.data.sources.named import open_images
from sslkit.errors import UserError
from sslkit.models.loading import load
from sslkit.models.patches import maps_of, structure_of

QUIET = {"device": "cpu"}


def photos(folder: Path, count: int) -> Path:
    """Clip art in one folder, without labels."""
    folder.mkdir()
    images = open_images("clipart", split="train")
    for row in range(count):
        pixels = images.__getitems__([row])["images"][0].numpy()
        Image.fromarray(pixels.transpose(1, 2, 0)).save(folder / f"{row:03d}.png")
    return folder


def test_a_set_of_images_has_the_number_of_a_run_without_labels(tmp_path: Path) -> None:
    data, model = photos(tmp_path / "photos", 20), load("random:narrow_vit", image_size=16)
    result, *_ = evaluation.evaluate(
        model, str(data), "patch_quality", out=tmp_path / "out", cache=None, progress=False
    )
    images = model.clean(open_images(str(data)))
    expected = structure_of(maps_of(model.backbone, model.normalize(images.__getitems__(range(20))["images"])))
    assert result.others["dimension"].value == pytest.approx(expected.dimension, abs=2e-3), "in another order"
    parts = {name: part.value for name, part in result.others.items()}
    halves = (parts["intra_image"] + parts["intra_group"]) / 2
    assert result.value == pytest.approx(parts["inter"] + parts["dimension"] - halves)
    assert result.interval is None and result.kind == "no interval, one set of images: it takes 128 images"
    [picture] = (tmp_path / "out").rglob("patches-photos.png")
    with Image.open(picture) as image:
        assert image.height > 8 * 96


def test_the_interval_is_over_sets_of_as_many_images_as_a_run_has() -> None:
    result = evaluation.patch_quality("random:narrow_vit", "clipart", image_size=16, n_images=3 * SET, **QUIET)
    assert result.kind == "t over 3 sets of 64 images" and result.n == 192 and result.details["places"] == [8, 8]
    low, high = result.interval
    assert low < result.value < high


def test_no_group_is_in_two_sets_and_seed_and_names_draw_them() -> None:
    ids, groups = np.array([f"{n:03d}" for n in range(400)]), np.arange(400) // 10
    sets = draw_sets(ids, groups, 400, 0)
    assert [len(rows) for rows in sets] == [SET] * 5
    members = [set(groups[rows]) for rows in sets]
    assert sum(map(len, members)) == len(set.union(*members))
    order = np.random.default_rng(0).permutation(400)
    again = draw_sets(ids[order], groups[order], 400, 0)
    assert all(set(ids[rows]) == set(ids[order][other]) for rows, other in zip(sets, again, strict=True))
    assert any((rows != other).any() for rows, other in zip(sets, draw_sets(ids, groups, 400, 1), strict=False))
    alone = draw_sets(ids, None, 200, 0)
    assert [len(rows) for rows in alone] == [SET] * 3 and len(np.unique(np.concatenate(alone))) == 3 * SET
    assert [len(rows) for rows in draw_sets(ids[:9], None, 200, 0)] == [9]


class Flat(nn.Module):
    """A map that is the same at each place of each image."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))

    def forward_features(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight.view(1, -1, 1, 1).expand(len(x), 8, 4, 4)

    def forward_head(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.forward_head(self.forward_features(x))


def test_what_has_no_patches_to_compare_is_one_line(tmp_path: Path) -> None:
    data, two = photos(tmp_path / "photos", 4), load("random:narrow_resnet", image_size=12)
    vit = load("random:narrow_vit", image_size=16)
    (tmp_path / "one").mkdir()
    (data / "000.png").rename(tmp_path / "one" / "000.png")
    flat = load(nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 8)), image_size=16)
    for network, source, message in (
        (vit, tmp_path / "one", "needs 2 images or more, one .* has 1"),
        (two, data, "one place|at least 4 are needed"),
        (flat, data, "feature map"),
    ):
        with pytest.raises(UserError, match=message) as caught:
            open(Subject(network, source), Options())
        assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="are alike: the network has collapsed"):
        evaluation.patch_quality(Flat(), data, image_size=16, **QUIET)
