"""SimSiam against lightly's cosine loss; its stopped gradient, heads and constant learning rate."""

import pytest
import torch
from lightly.loss import NegativeCosineSimilarity
from torch import Tensor, nn

from sslkit import backbones
from sslkit.embeddings import Predicted
from sslkit.objectives.simsiam import SimSiam


def oracle(objective: SimSiam, e: Predicted) -> Tensor:
    d = NegativeCosineSimilarity()
    return d(e.prediction[0], e.target[1]) / 2 + d(e.prediction[1], e.target[0]) / 2


def simsiam(**options) -> SimSiam:
    torch.manual_seed(0)
    return SimSiam(backbones.build("narrow_resnet", image_size=16, in_chans=1), **{"dim": 12, **options})


def drawn(v: int, n: int) -> Predicted:
    g = torch.Generator().manual_seed(n)
    prediction, target = torch.randn(2, v, n, 6, generator=g, dtype=torch.double)
    prediction.requires_grad_()
    return Predicted(z=target, h=target, target=target, index=torch.arange(n), prediction=prediction)


def views(n: int = 4) -> list[Tensor]:
    g = torch.Generator().manual_seed(9)
    return [torch.rand(n, 1, 16, 16, generator=g) for _ in range(2)]


@pytest.mark.parametrize("n", [1, 2, 9])
def test_align_is_lightlys_symmetric_cosine(n: int) -> None:
    objective, e = simsiam(), drawn(2, n)
    ours, theirs = objective.align(e), oracle(objective, e)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(v, e.prediction)[0] for v in (ours, theirs)))
    assert objective.constrain(e) is None


def test_three_views_are_the_mean_over_ordered_pairs() -> None:
    e = drawn(3, 5)
    cosine = torch.nn.functional.cosine_similarity
    pairs = [cosine(e.prediction[i], e.target[j], dim=-1) for i in range(3) for j in range(3) if i != j]
    torch.testing.assert_close(simsiam().align(e), -torch.stack(pairs).mean())


def test_the_gradient_stops_at_the_target() -> None:
    """The gradient of the projector is that of the prediction alone, with the targets as numbers."""
    objective = simsiam().double()
    pixels = [v.double() for v in views()]
    e = objective.embed(pixels, torch.arange(4))
    assert not e.target.requires_grad and torch.equal(e.target, e.z)
    weight = objective.projector[0].weight
    (got,) = torch.autograd.grad(objective.align(e), weight)
    constant = e.target.clone()

    z = objective.projector(objective.backbone(torch.cat(pixels)))
    prediction = objective.predictor(z).unflatten(0, (2, -1))
    unit = [x / x.norm(dim=-1, keepdim=True) for x in (prediction, constant)]
    loss = -((unit[0][0] * unit[1][1]).sum() + (unit[0][1] * unit[1][0]).sum()) / 8
    torch.testing.assert_close(got, torch.autograd.grad(loss, weight)[0])
    assert got.abs().max() > 0


def test_z_stands_before_the_predictor() -> None:
    objective = simsiam()
    e = objective.embed(views(), torch.arange(4))
    z = objective.projector(objective.backbone(torch.cat(views())))
    torch.testing.assert_close(e.z.flatten(0, 1), z)
    torch.testing.assert_close(e.prediction.flatten(0, 1), objective.predictor(z))
    assert e.z.shape == (2, 4, 12) and e.h.shape == (2, 4, 128) and e.z.requires_grad


def test_only_the_predictor_keeps_its_learning_rate() -> None:
    objective = simsiam()
    assert {id(p) for p in objective.constant_lr()} == {id(p) for p in objective.predictor.parameters()}
    assert len(objective.constant_lr()) == 5  # two weights, a bias, and the batch norm's scale and shift


def test_the_heads_are_as_published_for_the_backbones_width() -> None:
    torch.manual_seed(0)
    objective = SimSiam(backbones.build("narrow_resnet", image_size=16, in_chans=1))
    assert objective.dim == 128
    widths = [m.out_features for m in (*objective.projector, *objective.predictor) if isinstance(m, nn.Linear)]
    assert widths == [128, 128, 128, 32, 128]
    assert isinstance(objective.projector[-1], nn.BatchNorm1d) and not objective.projector[-1].affine
    assert isinstance(objective.predictor[-1], nn.Linear) and objective.predictor[-1].bias is not None
    own = simsiam(hidden=5, bottleneck=3)
    widths = [m.out_features for m in (*own.projector, *own.predictor) if isinstance(m, nn.Linear)]
    assert widths == [5, 5, 12, 3, 12]


def test_a_z_of_one_number_still_has_a_predictor() -> None:
    assert simsiam(dim=1).predictor[0].out_features == 1
