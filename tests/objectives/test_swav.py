"""SwAV against lightly's loss; Sinkhorn against the paper's matrix scaling; the queue against a list."""

import copy

import pytest
import torch
import torch.nn.functional as F
from lightly.loss import SwaVLoss
from lightly.loss.swav_loss import sinkhorn as lightlys_sinkhorn

import sslkit
from sslkit import backbones
from sslkit.errors import UserError
from sslkit.layers.prototypes import Crops
from sslkit.objectives.swav import SwAV, sinkhorn


def swav(**options) -> SwAV:
    torch.manual_seed(0)
    net = backbones.build("narrow_resnet", image_size=16, in_chans=1)
    return SwAV(net, **{"prototypes": 11, "dim": 6, "queue_size": 10, "queue_start": 2, **options})


def crops(n: int = 9, n_local: int = 3, dim: int = 6, seed: int = 1, dtype=torch.double) -> Crops:
    g = torch.Generator().manual_seed(seed)
    z, local = (torch.randn(v, n, dim, generator=g, dtype=dtype).requires_grad_() for v in (2, n_local))
    return Crops(z=z, h=z, target=None, index=torch.arange(n), local=local if n_local else None)


def oracle(objective: SwAV, e: Crops) -> torch.Tensor:
    """lightly's, on scores; its queue takes the scores of what the queues hold."""
    weight = objective.prototypes.weight.to(e.z.dtype)
    high = [F.normalize(z, dim=1) @ weight.T for z in e.z]
    low = [] if e.local is None else [F.normalize(z, dim=1) @ weight.T for z in e.local]
    older = None
    if objective.queues and objective.epoch >= objective.queue_start:
        older = [q.rows[: q.filled].to(weight.dtype) @ weight.T for q in objective.queues]
    loss = SwaVLoss(objective.temperature, objective.iterations, objective.epsilon)
    return loss(high, low, older).squeeze(0)


@pytest.mark.parametrize(
    ("n", "n_local", "options"),
    [
        (9, 3, {}),
        (2, 0, {}),
        (16, 1, {"temperature": 0.05, "epsilon": 0.2, "iterations": 5}),
        (5, 6, {"queue_start": 0}),
        (23, 2, {"queue_start": 0, "queue_size": 7}),
    ],
)
def test_align_is_lightlys_loss(n: int, n_local: int, options: dict) -> None:
    objective = swav(**options).double()
    objective.observe(crops(n=4, seed=7))
    objective.epoch = 1  # prototypes are trained
    e = crops(n, n_local)
    ours, theirs = objective.align(e), oracle(objective, e)
    torch.testing.assert_close(ours, theirs)
    leaves = [x for x in (e.z, e.local, objective.prototypes.weight) if x is not None]
    for mine, its in zip(*(torch.autograd.grad(loss, leaves) for loss in (ours, theirs)), strict=True):
        assert mine.abs().max() > 1e-4
        torch.testing.assert_close(mine, its)
    assert objective.constrain(e) is None


def test_sinkhorn_is_the_papers_scaling_of_a_matrix() -> None:
    scores = torch.randn(7, 5, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    q = [[torch.exp(s / 0.3).item() for s in row] for row in scores]
    for _ in range(4):
        for k in range(5):
            mass = sum(row[k] for row in q) * 5
            for row in q:
                row[k] /= mass
        for row in q:
            mass = sum(row) * 7
            row[:] = [x / mass for x in row]
    expected = torch.tensor(q, dtype=torch.double) * 7
    before = scores.clone()
    torch.testing.assert_close(sinkhorn(scores, 0.3, 4), expected, rtol=1e-12, atol=0)
    assert torch.equal(scores, before)


@pytest.mark.parametrize("shape", [(40, 12), (2, 7, 30)])
def test_sinkhorn_is_lightlys_for_scores_that_it_bears(shape: tuple[int, ...]) -> None:
    scores = torch.rand(shape, generator=torch.Generator().manual_seed(0)) * 2 - 1
    theirs = torch.stack([lightlys_sinkhorn(s, 3, 0.05) for s in scores.view(-1, *shape[-2:])]).view(shape)
    torch.testing.assert_close(sinkhorn(scores, 0.05, 3), theirs, rtol=1e-4, atol=1e-6)


def test_codes_share_the_batch_equally_among_the_prototypes() -> None:
    scores = torch.randn(60, 12, generator=torch.Generator().manual_seed(0))
    scores[:, 3] += 5  # what every image likes best
    q = sinkhorn(scores, 0.5, 200)
    torch.testing.assert_close(q.sum(1), torch.ones(60))
    torch.testing.assert_close(q.sum(0), torch.full((12,), 5.0), rtol=1e-3, atol=0)


@pytest.mark.parametrize("size", [1e2, 1e4, 1e30])
def test_sinkhorn_is_finite_at_huge_scores(size: float) -> None:
    scores = size * torch.randn(20, 8, generator=torch.Generator().manual_seed(0))
    q = sinkhorn(scores, 0.05, 3)
    assert q.isfinite().all() and not lightlys_sinkhorn(scores, 3, 0.05).isfinite().all()
    torch.testing.assert_close(q.sum(1), torch.ones(20))


def test_the_queues_hold_each_view_and_only_filled_rows_count() -> None:
    objective = swav().double()
    objective.epoch = 1
    objective.observe(crops())
    assert not objective.uses_queue and all(q.filled == 0 for q in objective.queues)
    objective.epoch = 2
    assert objective.uses_queue
    written = [[], []]
    for seed in range(4):  # 4 batches of 4 into 10 rows
        e = crops(n=4, seed=seed)
        expected = oracle(objective, e)  # with the queue as it was before the batch
        torch.testing.assert_close(objective.align(e), expected)
        codes = objective.codes(F.normalize(e.z, dim=-1))
        older = [torch.stack(rows[-10:]) if rows else e.z.new_empty(0, 6) for rows in written]
        everything = torch.stack(
            [torch.cat([F.normalize(z, dim=1), o]) for z, o in zip(e.z.detach(), older, strict=True)]
        )
        again = sinkhorn(everything @ objective.prototypes.weight.T, 0.05, 3)[:, :4]
        torch.testing.assert_close(codes, again)
        objective.observe(e)
        for rows, z in zip(written, F.normalize(e.z.detach(), dim=-1), strict=True):
            rows.extend(z)
        for queue, rows in zip(objective.queues, written, strict=True):
            held = {tuple(row.tolist()) for row in queue.rows[: queue.filled]}
            assert held == {tuple(row.tolist()) for row in rows[-10:]}


def test_no_queue_when_its_size_is_zero() -> None:
    objective = swav(queue_size=0, queue_start=0)
    objective.observe(crops())
    assert len(objective.queues) == 0 and not objective.uses_queue


def test_prototypes_have_length_one_from_the_start_and_after_every_step() -> None:
    objective = swav()
    ones = torch.ones(11)
    torch.testing.assert_close(objective.prototypes.weight.norm(dim=1), ones)
    before = objective.prototypes.weight.detach().clone()
    with torch.no_grad():
        objective.prototypes.weight.mul_(3).add_(0.1)
    objective.after_step(0.5)
    torch.testing.assert_close(objective.prototypes.weight.norm(dim=1), ones)
    torch.testing.assert_close(objective.prototypes.weight, F.normalize(3 * before + 0.1, dim=1))


def test_prototypes_are_frozen_at_first() -> None:
    objective = swav(freeze_prototypes=2).double()
    values = []
    for epoch, moves in ((0, False), (1, False), (2, True)):
        objective.epoch = epoch
        loss = objective.align(crops())
        (grad,) = torch.autograd.grad(loss, objective.prototypes.weight, allow_unused=True)
        assert (grad is not None) == moves == (not objective.frozen())
        values.append(loss.item())
    assert values[0] == pytest.approx(values[2], abs=1e-12)


def test_one_forward_for_each_resolution_and_z_of_the_full_size_views() -> None:
    objective = swav()
    sizes = []
    objective.backbone.register_forward_pre_hook(lambda _, x: sizes.append(tuple(x[0].shape)))
    views = [torch.rand(4, 1, 16, 16) for _ in range(2)] + [torch.rand(4, 1, 7, 7) for _ in range(6)]
    e = objective.embed(views, torch.arange(4))
    assert sizes == [(8, 1, 16, 16), (24, 1, 7, 7)]
    assert e.z.shape == (2, 4, 6) and e.local.shape == (6, 4, 6) and e.h.shape == (2, 4, 128)
    objective.eval()  # without the batch's statistics every crop stands for itself
    e = objective.embed(views, torch.arange(4))
    alone = [objective.projector(objective.backbone(view)) for view in views]
    torch.testing.assert_close(torch.cat([e.z, e.local]), torch.stack(alone), rtol=1e-4, atol=1e-5)


def test_the_recipe_is_the_published_one() -> None:
    recipe = SwAV.views.at(224)
    assert [view.scale for view in recipe.each()] == [(0.14, 1.0)] * 2 + [(0.05, 0.14)] * 6
    assert [view.size for view in recipe.each()] == [None] * 2 + [96] * 6
    assert {(v.brightness, v.saturation, v.hue, v.jitter, v.grayscale, v.blur) for v in recipe.each()} == {
        (0.8, 0.8, 0.2, 0.8, 0.2, 0.5)
    }


def test_resume_is_exact_with_the_queue() -> None:
    def run(m: sslkit.Method, epochs: range) -> list[float]:
        losses = []
        for epoch in epochs:
            m.epoch, m.batch = epoch, 0
            g = torch.Generator().manual_seed(epoch)
            images = torch.randint(0, 256, (6, 1, 16, 16), dtype=torch.uint8, generator=g)
            loss = m(images, torch.arange(6))["loss"]
            m.zero_grad()
            loss.backward()
            torch.optim.SGD([p for p in m.parameters() if p.requires_grad], 0.1).step()
            m.after_step(epoch / 8)
            losses.append(loss.item())
        return losses

    options = {"prototypes": 9, "dim": 5, "queue_size": 10, "queue_start": 1, "hidden": 16}
    build = {"backbone": "narrow_resnet", "image_size": 16, "in_chans": 1, "objective": options}
    whole = sslkit.method("swav", seed=3, **build)
    run(whole, range(4))
    saved = copy.deepcopy(whole.state_dict())
    resumed = sslkit.method("swav", seed=3, **build)
    resumed.load_state_dict(saved)
    assert run(resumed, range(4, 7)) == run(whole, range(4, 7))


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"prototypes": 1}, "prototypes must be at least 2, got 1"),
        ({"temperature": 0.0}, "temperature=0.0"),
        ({"epsilon": -1.0}, "epsilon=-1.0"),
        ({"iterations": 0}, "iterations=0"),
        ({"queue_size": -3}, "-3"),
    ],
)
def test_bad_options_are_named(options: dict, word: str) -> None:
    with pytest.raises(UserError, match=word):
        swav(**options)
