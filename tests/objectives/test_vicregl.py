"""VICRegL against lightly's loss; its matching against loops; its places against the pixels that augment takes."""

from itertools import permutations

import pytest
import torch
from lightly.loss import VICRegLLoss
from torch import Tensor

from sslkit import backbones
from sslkit.data.views.augmentation import Views, augment
from sslkit.data.views.recipe import View, ViewRecipe
from sslkit.errors import UserError
from sslkit.objectives.vicregl import Local, VICRegL, cell_centres, closest, gather_matches, match


def oracle(objective: VICRegL, e: Local) -> Tensor:
    """lightly's loss, which matches the places anew."""
    side = round(e.local.shape[2] ** 0.5)
    theirs = VICRegLLoss(
        objective.invariance,
        objective.variance,
        objective.covariance,
        alpha=objective.alpha,
        num_matches=objective.num_matches,
    )
    features = [(z, local.unflatten(1, (side, side))) for z, local in zip(e.z, e.local, strict=True)]
    return theirs(features, [place.unflatten(1, (side, side)) for place in e.places]).squeeze()


def build(**options) -> VICRegL:
    options = {"hidden": 8, "dim": 6, "local_dim": 5, **options}
    return VICRegL(backbones.build("narrow_resnet", image_size=32, in_chans=1), **options)


def boxes(v: int, n: int, g: torch.Generator) -> Tensor:
    size = 0.3 + 0.5 * torch.rand(v, n, 2, generator=g, dtype=torch.double)
    start = (1 - size) * torch.rand(v, n, 2, generator=g, dtype=torch.double)
    flip = torch.randint(0, 2, (v, n, 1), generator=g)
    return torch.cat([start, size, flip], -1)


def drawn(n: int, side: int, count: int, *, v: int = 2, d: int = 6, width: int = 5) -> Local:
    g = torch.Generator().manual_seed(n * side)
    z = torch.randn(v, n, d, generator=g, dtype=torch.double).requires_grad_()
    local = torch.randn(v, n, side**2, width, generator=g, dtype=torch.double).requires_grad_()
    places = cell_centres(boxes(v, n, g), side, side)
    matches = match(local, places, count)
    return Local(z=z, h=z, target=None, index=torch.arange(n), local=local, places=places, matches=matches)


@pytest.mark.parametrize("alpha", [0.75, 0.0, 1.0])
@pytest.mark.parametrize("num_matches", [(20, 4), (3, 1), (2, 5)])
@pytest.mark.parametrize(("n", "side", "width"), [(4, 5, 5), (9, 2, 4), (2, 3, 30), (12, 7, 4)])
def test_align_plus_constrain_is_lightlys(n: int, side: int, width: int, num_matches: tuple, alpha: float) -> None:
    e = drawn(n, side, max(num_matches), width=width)
    objective = build(alpha=alpha, num_matches=num_matches, invariance=5.0, variance=7.0, covariance=3.0)
    both = objective.align(e) + objective.constrain(e), oracle(objective, e)
    torch.testing.assert_close(*both, rtol=1e-9, atol=1e-12)
    for field in (e.z, e.local):
        grads = [torch.autograd.grad(x, field, retain_graph=True)[0] for x in both]
        torch.testing.assert_close(*grads, rtol=1e-7, atol=1e-11)


def test_three_views_too() -> None:
    e, objective = drawn(5, 3, 4, v=3), build(num_matches=(4, 2))
    torch.testing.assert_close(objective.align(e) + objective.constrain(e), oracle(objective, e))


def test_matches_are_the_nearest_places_of_a_loop() -> None:
    e = drawn(3, 3, 4)
    p = 9
    for n in range(3):
        k = 0
        for kind in (e.local, e.places):
            for a, b in permutations(range(2)):
                pairs = []
                for i in range(p):
                    distances = [(kind[a, n, i] - kind[b, n, j]).norm().item() for j in range(p)]
                    nearest = min(range(p), key=distances.__getitem__)
                    pairs.append((distances[nearest], a * p + i, b * p + nearest))
                best = sorted(pairs)[:4]
                assert e.matches[0, k, :, n].tolist() == [i for _, i, _ in best]
                assert e.matches[1, k, :, n].tolist() == [j for _, _, j in best]
                k += 1
        assert k == e.matches.shape[1]
    rows = gather_matches(e)
    assert rows.shape == (2, 4, 4, 3, 5)
    at = e.matches[1, 2, 3, 1].item()
    torch.testing.assert_close(rows[1, 2, 3, 1], e.local[at // p, 1, at % p])


def test_no_more_matches_than_places() -> None:
    e = drawn(4, 2, 20)
    assert e.matches.shape == (2, 4, 4, 4)
    assert torch.equal(e.matches[0, 0].sort(0).values, torch.arange(4)[:, None].expand(4, 4))


def test_places_are_where_augment_took_the_pixels_from() -> None:
    """Images whose brightness is the row, or the column: what a view shows at a cell says where the cell lies."""
    side, height, width = 4, 64, 96
    ramp = torch.arange(height) / height, torch.arange(width) / width
    images = torch.stack([ramp[0][:, None].expand(height, width), ramp[1].expand(height, width)])[:, None]
    images = images.repeat(6, 1, 1, 1)
    crop = View(scale=(0.2, 0.6), flip=0.5, jitter=0.0, grayscale=0.0, blur=0.0)
    views = augment(images, ViewRecipe((crop, crop)), 32, torch.Generator().manual_seed(0))
    assert 0 < views.boxes[..., 4].sum() < 24
    places = cell_centres(views.boxes, side, side).unflatten(2, (side, side))  # (V, N, side, side, 2)
    for view, place in zip(views, places, strict=True):
        seen = torch.nn.functional.avg_pool2d(view, 32 // side)[:, 0]
        for n in range(12):
            # The ramp's value at a pixel is that of the pixel's edge, half a pixel before its centre.
            half = 0.5 / (height, width)[n % 2]
            torch.testing.assert_close(seen[n] + half, place[n, ..., n % 2], rtol=0, atol=0.012)


def test_a_mirrored_view_meets_itself_by_location() -> None:
    box = torch.tensor([0.1, 0.2, 0.5, 0.6])
    where = torch.stack([torch.cat([box, torch.tensor([float(flip)])]) for flip in (0, 1)])[:, None]
    places = cell_centres(where, 3, 3)
    found = match(torch.randn(2, 1, 9, 4, generator=torch.Generator().manual_seed(0)), places, 9)
    here, there = found[:, 2, :, 0] % 9  # by location, from the first view to the second
    assert torch.equal(there // 3, here // 3) and torch.equal(there % 3, 2 - here % 3)


def test_embed_takes_views_with_boxes_and_refuses_others() -> None:
    objective, g = build(), torch.Generator().manual_seed(0)
    pixels = [torch.rand(5, 1, 32, 32, generator=g) for _ in range(2)]
    where = boxes(2, 5, g).float()
    e = objective.embed(Views(pixels, where), torch.arange(5))
    maps, pooled = objective.backbone.feature_map(torch.cat(pixels))
    side = maps.shape[-1]
    assert e.local.shape == (2, 5, side**2, 5) and e.z.shape == (2, 5, 6) and e.local.requires_grad
    torch.testing.assert_close(e.h, pooled.unflatten(0, (2, 5)))
    cells = maps.movedim(1, -1).reshape(-1, maps.shape[1])
    torch.testing.assert_close(e.local, objective.local_projector(cells).view_as(e.local))
    torch.testing.assert_close(e.places, cell_centres(where, side, side))
    assert torch.equal(e.matches, match(e.local, e.places, 20))
    with pytest.raises(UserError, match="views made by sslkit's augment"):
        objective.embed(pixels, torch.arange(5))


def test_watched_has_both_halves_and_they_sum_to_constrain() -> None:
    e, objective = drawn(6, 3, 20), build()
    total = objective.constrain(e)
    assert objective.watched.keys() == {"variance", "covariance", "local_variance", "local_covariance"}
    torch.testing.assert_close(total.detach(), sum(objective.watched.values()))
    assert not any(x.requires_grad for x in objective.watched.values())


@pytest.mark.parametrize(
    ("options", "message"),
    [({"alpha": 1.2}, "alpha must be from 0 to 1, got 1.2"), ({"num_matches": (4, 0)}, r"\[4, 0\]")],
)
def test_bad_options_are_refused(options: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        build(**options)


def test_published_widths_and_views() -> None:
    backbone = backbones.build("narrow_resnet", image_size=32, in_chans=1)
    objective = VICRegL(backbone)
    assert objective.dim == 4 * backbone.width and objective.alpha == 0.75 and objective.num_matches == (20, 4)
    widths = [m.out_features for m in objective.local_projector if isinstance(m, torch.nn.Linear)]
    assert widths == [backbone.width // 4] * 3
    assert len(objective.views.views) == 2 and not objective.views.n_local


def test_of_equally_near_places_the_first_are_matched() -> None:
    distance = torch.ones(2, 49, 49)
    distance[:, ::3] = 0.5
    row, column = closest(distance, 20)
    assert row.tolist() == [[*range(0, 49, 3), 1, 2, 4]] * 2 and not column.any()
