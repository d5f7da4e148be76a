"""NNCLR against loops over its eq. 3 and lightly's memory of neighbours; its queue against a list."""

import math

import pytest
import torch
import torch.nn.functional as F
from lightly.models.modules import NNMemoryBankModule
from torch import Tensor

import sslkit
from sslkit import backbones
from sslkit.data.views.recipe import SIMCLR
from sslkit.embeddings import Predicted
from sslkit.errors import UserError
from sslkit.objectives.nnclr import NNCLR

NAMED = {"backbone": "narrow_resnet", "image_size": 16, "in_chans": 1}


def oracle(objective: NNCLR, e: Predicted) -> Tensor:
    """Eq. 3, image by image in fp64, from z, the queue and the predictions: e.target is not read."""
    rows = objective.queue.rows.double()
    z, predicted = e.z.detach().double(), [[p / p.norm() for p in view] for view in e.prediction.double()]
    losses = []
    for here, there in ((0, 1), (1, 0)):
        for i in range(z.shape[1]):
            neighbour = rows[nearest_of(z[here, i], rows)]
            neighbour = neighbour / neighbour.norm()
            similar = torch.stack([torch.exp(neighbour @ p / objective.temperature) for p in predicted[there]])
            losses.append(-torch.log(similar[i] / similar.sum()))
    return torch.stack(losses).mean()


def nearest_of(z: Tensor, rows: Tensor) -> int:
    cosines = [(z @ row / z.norm() / row.norm()).item() for row in rows]
    return max(range(len(cosines)), key=cosines.__getitem__)


def nnclr(**options) -> NNCLR:
    torch.manual_seed(0)
    backbone = backbones.build("narrow_resnet", image_size=16, in_chans=1)
    return NNCLR(backbone, **{"dim": 6, "hidden": 16, "queue_size": 20, **options})


def drawn(objective: NNCLR, n: int, dtype: torch.dtype = torch.double, scale: float = 1.0) -> Predicted:
    """Random embeddings with gradient, and their neighbours in the queue."""
    g = torch.Generator().manual_seed(n)
    z, prediction = (torch.randn(2, n, objective.dim, generator=g, dtype=dtype) * scale for _ in range(2))
    z.requires_grad_()
    target = objective.nearest(z)
    return Predicted(z=z, h=z, target=target, index=torch.arange(n), prediction=prediction.requires_grad_())


def views(n: int = 5) -> list[Tensor]:
    g = torch.Generator().manual_seed(9)
    return [torch.rand(n, 1, 16, 16, generator=g) for _ in range(2)]


def batch(seed: int, n: int = 4) -> Tensor:
    return torch.randint(0, 256, (n, 1, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def total(objective: NNCLR, e: Predicted) -> Tensor:
    return objective.align(e) + objective.constrain(e)


@pytest.mark.parametrize("n", [2, 7])
@pytest.mark.parametrize("queue_size", [1, 5, 200])
@pytest.mark.parametrize("temperature", [0.1, 0.7])
def test_align_plus_constrain_is_the_papers_loop(n: int, queue_size: int, temperature: float) -> None:
    objective = nnclr(queue_size=queue_size, temperature=temperature).double()
    e = drawn(objective, n)
    ours, theirs = total(objective, e), oracle(objective, e)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=0)
    (mine,), (its,) = (torch.autograd.grad(loss, e.prediction) for loss in (ours, theirs))
    assert mine.abs().max() > 1e-4
    torch.testing.assert_close(mine, its, rtol=1e-8, atol=1e-12)


def test_each_half_of_the_loss_is_its_half_of_eq_3() -> None:
    objective = nnclr(temperature=0.3).double()
    e = drawn(objective, 4)
    neighbour, predicted = (F.normalize(x.detach(), dim=-1) for x in (e.target, e.prediction))
    pulled, spread = 0.0, 0.0
    for here, there in ((0, 1), (1, 0)):
        for i in range(4):
            logits = [(neighbour[here, i] @ predicted[there, k]).item() / 0.3 for k in range(4)]
            pulled -= logits[i] / 8
            spread += math.log(sum(map(math.exp, logits))) / 8
    assert objective.align(e).item() == pytest.approx(pulled, rel=1e-10)
    assert objective.constrain(e).item() == pytest.approx(spread, rel=1e-10)


def test_neighbours_are_those_of_lightlys_memory() -> None:
    objective = nnclr(queue_size=50).double()
    memory = NNMemoryBankModule(size=(50, 6))
    memory.bank = objective.queue.rows.clone()
    e = drawn(objective, 9)
    for v in range(2):
        assert torch.equal(e.target[v], memory(e.z[v].detach(), update=False))


def test_the_length_of_z_and_of_the_prediction_means_nothing_and_z_gets_no_gradient() -> None:
    objective = nnclr().double()
    e = drawn(objective, 5)
    before = total(objective, e)
    assert torch.autograd.grad(before, e.z, allow_unused=True)[0] is None
    longer = torch.tensor([0.1, 3.0, 7.0, 0.5, 2.0], dtype=torch.double)[:, None]
    other = Predicted(
        z=e.z, h=e.h, target=objective.nearest(e.z * longer), index=e.index, prediction=e.prediction * longer
    )
    assert torch.equal(other.target, e.target)
    assert total(objective, other).item() == pytest.approx(before.item(), rel=1e-12)


def test_embed_predicts_from_both_views_and_asks_the_queue_for_both() -> None:
    objective = nnclr()
    images = views()
    e = objective.embed(images, torch.arange(5))
    z = objective.projector(objective.backbone(torch.cat(images)))  # batch norm sees both views
    torch.testing.assert_close(e.z.flatten(0, 1), z)
    torch.testing.assert_close(e.prediction.flatten(0, 1), objective.predictor(z))
    rows = objective.queue.rows
    expected = torch.stack([rows[nearest_of(one, rows)] for one in z.detach()])
    assert torch.equal(e.target.flatten(0, 1), expected) and not e.target.requires_grad
    assert e.h.shape == (2, 5, objective.backbone.width) and e.z.requires_grad


def test_half_precision_does_not_choose_the_neighbour() -> None:
    """Embeddings end autocast in fp32; bf16 cannot tell a cosine of 0.9 from one of 0.902."""
    objective = nnclr(queue_size=3000, dim=4)
    z = torch.randn(2, 50, 4, generator=torch.Generator().manual_seed(0))
    expected = objective.nearest(z)
    with torch.autocast("cpu", torch.bfloat16):
        found = objective.nearest(z)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_neighbours_come_from_the_old_queue_and_the_first_view_fills_it() -> None:
    m = sslkit.method("nnclr", objective={"queue_size": 10, "dim": 6, "hidden": 16}, **NAMED)
    expected = m.objective.queue.rows.clone()
    for step in range(4):  # 16 embeddings into 10 rows
        before = m.objective.queue.rows.clone()
        assert torch.equal(before, expected)
        terms, e = m.step(batch(step), torch.arange(4))
        after, m.objective.queue.rows = m.objective.queue.rows, before
        assert terms["loss"].item() == pytest.approx(oracle(m.objective, e).item(), rel=1e-4, abs=1e-5)
        m.objective.queue.rows = after
        terms["loss"].backward()
        for i, z in enumerate(e.z[0].detach()):
            expected[(4 * step + i) % 10] = z / z.norm()
        torch.testing.assert_close(after, expected)
        expected = after.clone()
    m.eval()
    m.step(batch(9), torch.arange(4))
    assert torch.equal(m.objective.queue.rows, expected)


def test_the_queue_starts_as_random_unit_vectors() -> None:
    rows = nnclr(queue_size=400, dim=8).queue.rows
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(400))
    assert len(rows.unique(dim=0)) == 400 and rows.mean(0).norm() < 0.15


@pytest.mark.parametrize("dtype", [torch.float32, torch.double])
def test_large_embeddings_and_a_small_temperature_stay_finite(dtype: torch.dtype) -> None:
    objective = nnclr(temperature=1e-3).to(dtype)
    e = drawn(objective, 6, dtype, scale=1e4)
    loss = total(objective, e)
    loss.backward()
    assert loss.isfinite() and loss.dtype is dtype and e.prediction.grad.isfinite().all()


def test_the_heads_are_the_published_ones() -> None:
    objective = NNCLR(backbones.build("narrow_resnet", image_size=16, in_chans=1), queue_size=8)
    width = objective.backbone.width
    kinds = [type(m).__name__ for m in objective.projector]
    assert kinds == ["Linear", "BatchNorm1d", "ReLU"] * 2 + ["Linear", "BatchNorm1d"]
    assert [type(m).__name__ for m in objective.predictor] == ["Linear", "BatchNorm1d", "ReLU", "Linear"]
    sizes = [m.weight.shape for head in (objective.projector, objective.predictor) for m in head[::3]]
    assert sizes == [(width, width)] * 2 + [(256, width), (2 * width, 256), (256, 2 * width)]
    other = nnclr(hidden=10, predictor=14, dim=6)
    assert other.projector[6].in_features == 10 and other.predictor[0].out_features == 14
    assert nnclr(hidden=10).predictor[0].out_features == 20


def test_options_and_views_are_the_published_ones() -> None:
    objective = NNCLR(backbones.build("narrow_resnet", image_size=16, in_chans=1))
    assert (len(objective.queue), objective.temperature, objective.dim) == (98_304, 0.1, 256)
    assert NNCLR.views is SIMCLR and len(NNCLR.views.each()) == 2


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("temperature", 0.0),
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("queue_size", 0),
        ("queue_size", 1.5),
        ("hidden", -1),
        ("dim", 0),
    ],
)
def test_bad_options_are_named_in_one_line(option: str, value: float) -> None:
    with pytest.raises(UserError, match=option) as found:
        nnclr(**{option: value})
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("option", "value"), [("temperature", 0.0), ("queue_size", 0), ("predictor", 0), ("dim", 2.5), ("widht", 3)]
)
def test_the_method_names_a_bad_option_in_one_line(option: str, value: float) -> None:
    with pytest.raises(UserError, match=option) as found:
        sslkit.method("nnclr", objective={option: value}, **NAMED)
    assert "\n" not in str(found.value)
