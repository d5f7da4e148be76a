"""Masks against loops over the published algorithms, their statistics, and N processes against one."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from sslkit.layers import masks
from sslkit.objectives.dinov2 import DINOv2
from sslkit.objectives.ibot import IBOT
from sslkit.objectives.relic_v2 import draw_others
from sslkit.runtime import distributed


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def published_blocks(grid: tuple[int, int], share: float, smallest: int, rng: np.random.Generator) -> np.ndarray:
    """BEiT's algorithm 1, one image and one rectangle at a time."""
    rows, columns = grid
    mask = np.zeros(grid, dtype=bool)
    while (missing := share * rows * columns - mask.sum()) > 0:
        for _ in range(10):
            area = rng.uniform(smallest, missing) if missing > smallest else rng.uniform(missing, smallest)
            ratio = math.exp(rng.uniform(math.log(0.3), math.log(1 / 0.3)))
            height, width = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if height >= rows or width >= columns:
                continue
            top, left = rng.integers(0, rows - height + 1), rng.integers(0, columns - width + 1)
            block = np.zeros(grid, dtype=bool)
            block[top : top + height, left : left + width] = True
            if 0 < (block & ~mask).sum() <= missing:
                mask |= block
                break
        else:
            break
    return mask


@pytest.mark.parametrize(("grid", "share", "smallest"), [((14, 14), 0.4, 16), ((14, 14), 0.15, 16), ((7, 9), 0.5, 4)])
def test_blocks_have_the_statistics_of_the_published_loop(grid, share: float, smallest: int) -> None:
    n = 3000
    ours = masks.draw_blocks(n, grid, torch.full((n,), share), generator(), smallest=smallest).view(n, *grid)
    rng = np.random.default_rng(0)
    theirs = torch.from_numpy(np.stack([published_blocks(grid, share, smallest, rng) for _ in range(n)]))
    assert ours.sum((1, 2)).max() <= share * grid[0] * grid[1]

    def edges(mask: torch.Tensor) -> torch.Tensor:
        """Neighbours of which one is masked: few in blocks, many in scattered patches."""
        return (mask[:, 1:] != mask[:, :-1]).sum((1, 2)).double() + (mask[:, :, 1:] != mask[:, :, :-1]).sum((1, 2))

    for measure in (lambda m: m.sum((1, 2)).double(), edges):
        mine, its = measure(ours), measure(theirs)
        error = math.hypot(mine.std().item(), its.std().item()) / math.sqrt(n)
        assert abs(mine.mean() - its.mean()).item() < 4 * error + 0.03 * its.mean().item()
    # The middle of the grid is masked more often than the corners, alike in both.
    torch.testing.assert_close(ours.double().mean(0), theirs.double().mean(0), atol=0.06, rtol=0)


def test_an_image_with_share_0_stays_whole_and_one_block_is_a_rectangle() -> None:
    share = torch.tensor([0.0, 0.5] * 200)
    mask = masks.draw_blocks(400, (8, 8), share, generator())
    assert not mask[::2].any() and mask[1::2].any(1).all()
    small = masks.draw_blocks(300, (8, 8), torch.full((300,), 4.5 / 64), generator(), smallest=4).view(300, 8, 8)
    for one in small:
        down, across = one.any(1).nonzero()[:, 0], one.any(0).nonzero()[:, 0]
        full = (down[-1] - down[0] + 1) * (across[-1] - across[0] + 1) if len(down) else torch.tensor(0)
        assert one.sum() == full or one.sum() >= 3  # one rectangle, or several that add up to four patches


@pytest.mark.parametrize("grid", [(14, 14), (7, 7), (5, 8), (3, 3), (2, 2)])
def test_a_context_shares_no_patch_with_its_targets(grid: tuple[int, int]) -> None:
    context, targets = masks.draw_context(400, grid, generator(), least=min(10, grid[0] * grid[1] // 4))
    length = grid[0] * grid[1]
    assert context.shape[1] >= 1 and targets.shape[:2] == (400, 4)
    seen = torch.zeros(400, length, dtype=torch.bool).scatter_(1, context, True)
    asked = torch.zeros(400, length, dtype=torch.bool).scatter_(1, targets.flatten(1), True)
    overlapping = (seen & asked).any(1).float().mean().item()
    assert overlapping == 0
    assert (context.diff(dim=1) > 0).all()


def test_target_blocks_have_the_published_area_and_aspect() -> None:
    areas, aspects, heights = [], [], []
    for seed in range(200):
        context, targets = masks.draw_context(2, (14, 14), generator(seed))
        rows, columns = targets // 14, targets % 14
        height, width = ((x.amax(-1) - x.amin(-1) + 1)[0, 0].item() for x in (rows, columns))
        assert targets.shape[-1] == height * width and (targets.diff(dim=-1) > 0).all()
        areas.append(height * width / 196)
        aspects.append(height / width)
        heights.append(rows.amax().item())
        assert 10 <= context.shape[1] <= 196 - height * width
    assert min(areas) >= 0.12 and max(areas) <= 0.23  # sides are whole patches
    assert np.mean(areas) == pytest.approx(0.175, abs=0.01)
    assert min(aspects) >= 0.65 and max(aspects) <= 1.8 and np.mean(aspects) == pytest.approx(1.12, abs=0.08)
    assert max(heights) == 13  # blocks reach the last row


def test_sizes_are_drawn_once_for_the_batch_and_places_for_each_image() -> None:
    _, targets = masks.draw_context(64, (14, 14), generator())
    assert len(targets[:, 0, 0].unique()) > 20
    moved = targets - targets[..., :1]
    assert (moved == moved[0, 0]).all()


def test_the_size_of_a_context_depends_on_the_sizes_of_the_blocks_alone() -> None:
    """Not on the number of images: few shapes for compiled networks, and nothing that ranks have to agree on."""
    kept = {}
    for seed in range(60):
        for n in (1, 40):
            context, targets = masks.draw_context(n, (14, 14), generator(seed))
            kept.setdefault((seed, targets.shape[-1]), set()).add(context.shape[1])
    assert all(len(sizes) == 1 for sizes in kept.values())
    assert len({(m, *sizes) for (_, m), sizes in kept.items()}) <= 16


def test_a_rank_of_a_million_draws_its_own_images_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "world_size", lambda: 10**6)
    monkeypatch.setattr(distributed, "rank", lambda: 10**6 - 1)
    assert masks.draw_context(2, (14, 14), generator())[1].shape[:2] == (2, 4)
    assert masks.draw_inverse_blocks(2, (14, 14), 39, generator()).shape == (2, 196)
    assert drawn_by(DINOv2, 2).shape == drawn_by(IBOT, 2).shape == (2,)
    assert draw_others(2, 3, generator()).shape == (2, 3)


@pytest.mark.parametrize("visible", [30, 49, 98])
def test_each_patch_of_a_random_order_is_as_often_visible(visible: int) -> None:
    seen = masks.draw_orders(4000, 196, generator())[:, :visible].flatten().bincount(minlength=196)
    assert stats.chisquare(seen.numpy() / (1 - visible / 196)).pvalue > 1e-3


def test_a_larger_context_loses_patches_anywhere() -> None:
    context, _ = masks.draw_context(500, (14, 14), generator())
    seen = torch.zeros(500, 196).scatter_(1, context, 1.0).view(500, 14, 14).mean((0, 2))
    assert abs(seen[:7].mean() - seen[7:].mean()) < 0.05


@pytest.mark.parametrize(("grid", "visible"), [((14, 14), 39), ((7, 7), 10), ((12, 12), 1), ((4, 4), 15)])
def test_inverse_blocks_leave_that_many_patches_in_squares(grid: tuple[int, int], visible: int) -> None:
    order = masks.draw_inverse_blocks(500, grid, visible, generator())
    assert torch.equal(order.sort(1).values, torch.arange(grid[0] * grid[1]).expand(500, -1))
    seen = torch.zeros(500, grid[0] * grid[1]).scatter_(1, order[:, :visible], 1.0).view(500, *grid)
    scattered = torch.rand(500, grid[0] * grid[1], generator=generator()).argsort(1)[:, :visible]
    random = torch.zeros_like(seen).flatten(1).scatter_(1, scattered, 1.0).view_as(seen)

    def together(mask: torch.Tensor) -> float:
        return ((mask[:, 1:] * mask[:, :-1]).sum() + (mask[:, :, 1:] * mask[:, :, :-1]).sum()).item()

    if 5 < visible < 0.5 * grid[0] * grid[1]:
        assert together(seen) > 1.8 * together(random)


def test_sets_of_a_random_order_are_disjoint() -> None:
    visible, hidden = masks.split_orders(masks.draw_orders(5, 12, generator()), 2, 4)
    assert visible.shape == (2, 5, 4) and hidden.shape == (2, 5, 8)
    for i in range(5):
        first, second = (set(visible[v, i].tolist()) for v in range(2))
        assert not first & second
        assert set(hidden[0, i].tolist()) == set(range(12)) - first


def drawn_by(kind: type[IBOT], n: int) -> torch.Tensor:
    """The shares of an objective, without its networks."""
    own = kind.__new__(kind)
    torch.nn.Module.__init__(own)
    own.mask_probability, own.mask_share = 0.5, (0.1, 0.5)
    return own.shares(n, generator(3))


@pytest.mark.parametrize(
    "draw",
    [
        lambda n: masks.draw_orders(n, 20, generator(3)),
        lambda n: masks.draw_blocks(n, (7, 7), torch.full((n,), 0.4), generator(3)),
        lambda n: drawn_by(DINOv2, n),
        lambda n: drawn_by(IBOT, n),
        lambda n: masks.draw_context(n, (7, 7), generator(3))[0],
        lambda n: masks.draw_context(n, (7, 7), generator(3))[1],
        lambda n: masks.draw_inverse_blocks(n, (7, 7), 10, generator(3)),
    ],
)
def test_three_processes_draw_what_one_draws(draw, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = draw(6)
    monkeypatch.setattr(distributed, "world_size", lambda: 3)
    for rank in range(3):
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        assert torch.equal(draw(2), whole[rank::3])
