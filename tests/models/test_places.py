"""Scores of places at several scales against a plain loop, blocks that are joined, and windows that cover a picture."""

from itertools import pairwise

import pytest
import torch
from torch.nn import functional as F

import sslkit
from sslkit.errors import UserError
from sslkit.models.model import Model
from sslkit.models.places import Look, Whole, grid_of, place_features, prepare

MS = (1.0, 1.32, 1.73, 2.28, 3.0)


def network() -> Model:
    return sslkit.load("random:narrow_vit", image_size=32)


def test_the_last_blocks_are_joined_as_each_is_normalised() -> None:
    model, x = network(), torch.rand(2, 3, 32, 32)
    net, states = model.net, []
    hooks = [block.register_forward_hook(lambda _, __, out: states.append(out)) for block in net.blocks[-2:]]
    with torch.inference_mode():
        joined, last = place_features(model.backbone, x, 2), place_features(model.backbone, x, 1)
        states[:] = states[:2]
        parts = [net.fc_norm(net.norm(state))[:, net.num_prefix_tokens :] for state in states]
    for hook in hooks:
        hook.remove()
    torch.testing.assert_close(joined.flatten(2).mT, torch.cat(parts, 2))
    torch.testing.assert_close(joined[:, model.width :], last)


def test_windows_overlap_by_half_and_cover_all() -> None:
    for scale in MS:
        whole = Whole.of(scale, (8, 8), 32)
        starts = sorted({top for top, _ in whole.windows()})
        assert starts[0] == 0 and starts[-1] + 8 == whole.places[0] == round(8 * scale)
        assert all(0 < later - first <= 4 for first, later in pairwise(starts))
        assert whole.size == (4 * whole.places[0],) * 2
    assert sum(2 * len(Whole.of(scale, (46, 46), 640).windows()) for scale in MS) == 110, "as DINOv2's"
    uneven = Whole.of(1.5, (7, 7), 100)
    assert uneven.cut(torch.zeros(1, *uneven.size), uneven.windows()[-1]).shape == (1, 100, 100)


@pytest.mark.parametrize("votes", [False, True])
def test_scales_are_a_plain_loop(votes: bool) -> None:
    """Over windows, both mirrors and scales: scores averaged by place, then enlarged, then their probabilities."""
    model, scales = network(), (1.0, 1.5)
    g = torch.Generator().manual_seed(0)
    picture = torch.randint(0, 256, (3, 50, 70), generator=g, dtype=torch.uint8)
    weight = torch.randn(4, model.width, generator=g)

    def scores(x: torch.Tensor) -> torch.Tensor:
        return (x @ weight.T).softmax(1) if votes else x @ weight.T

    mean = torch.zeros(4, 50, 70, dtype=torch.float64)
    with torch.inference_mode():
        classes, sure = Look(1, scales).classify(model, picture, scores, votes=votes)
        for scale in scales:
            side = round(8 * scale)
            pixels = prepare(picture, model, (4 * side, 4 * side))
            for mirrored in (False, True):
                seen = pixels.flip(2) if mirrored else pixels
                total, count = torch.zeros(4, side, side), torch.zeros(side, side)
                for top in sorted({0, side - 8}):
                    for left in sorted({0, side - 8}):
                        window = seen[:, 4 * top : 4 * top + 32, 4 * left : 4 * left + 32]
                        places = place_features(model.backbone, window[None], 1)[0]
                        total[:, top : top + 8, left : left + 8] += scores(places.flatten(1).T).T.view(4, 8, 8)
                        count[top : top + 8, left : left + 8] += 1
                whole = total / count
                whole = whole.flip(2) if mirrored else whole
                large = F.interpolate(whole[None], (50, 70), mode="bilinear", align_corners=False)[0].double()
                mean += (large if votes else large.softmax(0)) / 4
    best, expected = mean.max(0)
    clear = mean.topk(2, 0).values.diff(dim=0)[0].abs() > 1e-5
    assert clear.double().mean() > 0.9 and (classes.long() == expected)[clear].all()
    assert sure == pytest.approx(float(best.mean()), abs=1e-6)


def test_one_scale_without_a_mirror_is_the_picture_once() -> None:
    model = network()
    picture = torch.randint(0, 256, (3, 40, 40), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    weight = torch.randn(3, model.width, generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        classes, sure = Look().classify(model, picture, lambda x: x @ weight.T)
        places = place_features(model.backbone, prepare(picture, model)[None], 1)[0]
        low = torch.einsum("kf,fgw->kgw", weight, places)
    expected = F.interpolate(low[None], (40, 40), mode="bilinear", align_corners=False)[0].argmax(0)
    assert (classes == expected).double().mean() > 0.999 and sure == pytest.approx(float(low.softmax(0).amax(0).mean()))
    assert grid_of(model) == (8, 8)


def test_blocks_that_a_network_has_not_are_one_line() -> None:
    vit, conv = network(), sslkit.load("random:narrow_resnet", image_size=32)
    Look(len(vit.net.blocks)).check(vit, "linear_seg")
    for model, blocks, message in (
        (vit, 99, f"blocks=99 joins .*has {len(vit.net.blocks)}$"),
        (conv, 4, "blocks=4 joins .* is no ViT, and has none"),
    ):
        with pytest.raises(UserError, match=message) as caught:
            Look(blocks).check(model, "linear_seg")
        assert "\n" not in str(caught.value)
