"""U-MAE: MAE's reconstruction, and uniformity against loops over pairs."""

import pytest
import torch
from torch import Tensor

from sslkit import backbones
from sslkit.embeddings import Tokens
from sslkit.objectives.mae import MAE
from sslkit.objectives.u_mae import UMAE
from sslkit.options import members


def oracle(objective: UMAE, e: Tokens) -> Tensor:
    """Mean squared error of the hidden patches, and lambda E (f(x)^T f(x'))^2 over pairs of different images."""
    v, n, m, _ = e.token_target.shape
    errors = [(e.tokens[i, j, k] - e.token_target[i, j, k]) for i in range(v) for j in range(n) for k in range(m)]
    reconstruction = sum((d * d).sum() / d.numel() for d in errors) / len(errors)
    return reconstruction + objective.uniformity * mean_squared_cosine(e.z)


def mean_squared_cosine(z: Tensor) -> Tensor:
    v, n, _ = z.shape
    unit = z / z.norm(dim=-1, keepdim=True)
    pairs = [(a, i, j) for a in range(v) for i in range(n) for j in range(n) if i != j]
    return sum((unit[a, i] * unit[a, j]).sum() ** 2 for a, i, j in pairs) / len(pairs)


def u_mae(**options) -> UMAE:
    return UMAE(backbones.build("narrow_vit", image_size=16, in_chans=1), **options)


def drawn(z: Tensor) -> Tokens:
    return Tokens(z=z, h=z, target=None, index=torch.arange(z.shape[1]))


@pytest.mark.parametrize("shape", [(2, 7, 4), (2, 3, 9), (1, 2, 5), (3, 6, 6)])
@pytest.mark.parametrize("uniformity", [0.01, 1.0])
def test_constrain_is_the_mean_squared_cosine(shape: tuple, uniformity: float) -> None:
    g = torch.Generator().manual_seed(sum(shape))
    z = (3 * torch.randn(*shape, dtype=torch.float64, generator=g) + 1).requires_grad_()
    objective = u_mae(uniformity=uniformity)
    ours, theirs = objective.constrain(drawn(z)), uniformity * mean_squared_cosine(z)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(loss, z)[0] for loss in (ours, theirs)))


def test_one_point_is_worst_and_a_basis_is_best() -> None:
    objective = u_mae(uniformity=0.5)
    same = torch.ones(2, 4, 8) * torch.rand(2, 4, 1).add(0.1)
    assert objective.constrain(drawn(same)).item() == pytest.approx(0.5, rel=1e-5)
    basis = torch.eye(8)[:4].expand(2, 4, 8) * 7
    assert objective.constrain(drawn(basis)).item() == pytest.approx(0, abs=1e-6)


def test_the_rest_is_mae() -> None:
    x, index = torch.rand(4, 1, 16, 16), torch.arange(4)
    one, other = u_mae(sets=3, decoder_dim=32), MAE(u_mae().backbone, sets=3, decoder_dim=32)
    other.load_state_dict(one.state_dict())
    a, b = (o.embed([x], index, torch.Generator().manual_seed(0)) for o in (one, other))
    assert torch.equal(one.align(a), other.align(b)) and a.z.shape == (3, 4, 96)
    assert members.options(UMAE) == {"uniformity": 0.01} | members.options(MAE)
    assert UMAE.families == ("vit",) and UMAE.views is MAE.views


@pytest.mark.parametrize("option", [{"mask_ratio": 0.9}, {"decoder_depth": 3}, {"position": "learned"}])
def test_options_reach_mae(option: dict) -> None:
    objective = u_mae(**option)
    assert objective.visible == (6 if "mask_ratio" in option else 16)
    assert len(objective.decoder.blocks) == option.get("decoder_depth", 2)
    assert objective.backbone.net.pos_embed.requires_grad == ("position" in option)


def test_pixels_can_be_raw() -> None:
    x = torch.rand(2, 1, 16, 16)
    e = u_mae(normalize_pixels=False).embed([x], torch.arange(2), torch.Generator().manual_seed(0))
    assert e.token_target.min() >= 0 and e.token_target.max() <= 1
