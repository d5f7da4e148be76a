"""What the tests of iBOT and DINOv2 share: small networks, bottlenecks with masks, steps, and refusals."""

import numpy as np
import pytest
import timm
import torch
from torch import Tensor, nn

import sslkit
from sslkit import backbones
from sslkit.data.views.recipe import ViewRecipe
from sslkit.errors import UserError
from sslkit.objectives.ibot import IBOT, MaskedCrops

SMALL = {"prototypes": 11, "dim": 6, "hidden": 16}
BAD = {
    "prototypes": [1],
    "temperature": [0.0],
    "warmup_teacher_temperature": [-0.1],
    "momentum": [1.5],
    "mask_share": [(0.5, 0.1), (0.1,), (0.1, 0.2, 0.3), (0.1, 1.0), (-0.1, 0.5), 0.3],
    "mask_probability": [1.5],
    "patch_weight": [-1.0],
}
BAD_OPTIONS = [(option, value) for option, values in BAD.items() for value in values]


def small_vit(**options) -> nn.Module:
    """4 x 4 patches of 4 pixels."""
    torch.manual_seed(0)
    sizes = {"img_size": 16, "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 2}
    return timm.create_model("vit_tiny_patch16_224", num_classes=0, in_chans=1, **(sizes | options))


def small(objective: type[IBOT], net: dict | None = None, **options) -> IBOT:
    """In fp64, with prototypes that are not the teacher's, centres and a mask token that are not zero."""
    network = small_vit(**(net or {}))
    size = network.patch_embed.img_size[0]
    made = objective(backbones.build(network, image_size=size, in_chans=1), **{**SMALL, **options})
    moved = [made.mask_token, *(p for name, p in made.named_parameters() if "prototypes" in name)]
    with torch.no_grad():
        for value in [*moved, *(b for b in (made.center, made.patch_center) if b is not None)]:
            value.add_(torch.randn_like(value) * 0.3)
    return made.double()


def last_layer(x: Tensor, weight: Tensor) -> Tensor:
    """Weight norm with a norm of one on the normalised bottleneck, one prototype at a time."""
    x = x / x.norm(dim=-1, keepdim=True)
    return torch.stack([x @ (row / row.norm()) for row in weight.to(x.dtype)], -1)


def temperature_of(objective: IBOT) -> float:
    """The teacher's, by the authors' schedule: a line over the warm-up epochs, then constant."""
    start, end = objective.temperatures
    rise = np.linspace(start, end, objective.warmup_epochs)
    return float(rise[objective.epoch]) if objective.epoch < len(rise) else end


def masked_crops(n: int = 5, n_local: int = 3, share: float = 0.4, seed: int = 1) -> MaskedCrops:
    """Bottlenecks at random; one image of the first view has no mask, and two of the second."""
    g = torch.Generator().manual_seed(seed)
    z, target, local, h = (torch.randn(v, n, 6, generator=g, dtype=torch.double) for v in (2, 2, n_local, 2))
    mask = torch.rand(2, n, 16, generator=g) < share
    mask[0, 1] = mask[1, 0] = mask[1, -1] = False
    tokens, token_target = (torch.randn(int(mask.sum()), 6, generator=g, dtype=torch.double) for _ in range(2))
    weight = [1 / (int(row.sum()) * 2 * n) for row in mask.flatten(0, 1) for _ in range(int(row.sum()))]
    for leaf in (z, local, tokens, h):
        leaf.requires_grad_()
    e = MaskedCrops(z, h, target, torch.arange(n), local=local if n_local else None, mask=mask)
    e.tokens, e.token_target, e.token_weight = tokens, token_target, torch.tensor(weight, dtype=torch.double)
    return e


def pictures(n: int = 4) -> list[Tensor]:
    """Two views for `small_vit`."""
    g = torch.Generator().manual_seed(3)
    return [torch.rand(n, 1, 16, 16, generator=g, dtype=torch.double) for _ in range(2)]


def embed(objective: IBOT, views: list[Tensor], seed: int = 0) -> MaskedCrops:
    return objective.embed(views, torch.arange(len(views[0])), torch.Generator().manual_seed(seed))


def one_step(objective: str, name: str, **options) -> tuple[sslkit.Method, MaskedCrops, dict]:
    """One step of four images of noise on a backbone; every trained parameter gets a finite gradient."""
    views = {"n_local": 2, "local_size": 16}
    m = sslkit.method(objective, backbone=name, image_size=32, in_chans=1, objective={**SMALL, **options}, views=views)
    m.epoch = 1
    pixels = torch.randint(0, 256, (4, 1, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    terms, e = m.step(pixels, torch.arange(4))
    terms["loss"].backward()
    trained = {k: p.grad for k, p in m.named_parameters() if p.requires_grad}
    assert terms["loss"].isfinite() and e.local.shape == (2, 4, 6)
    assert not [k for k, grad in trained.items() if grad is None or not grad.isfinite().all()]
    return m, e, terms


def check_large_embeddings(objective: IBOT) -> None:
    """Value and gradients are finite in fp32 for embeddings far from 1; give it small temperatures."""
    e = masked_crops()
    names = ("z", "h", "local", "tokens")
    for name in (*names, "target", "token_target", "token_weight"):
        value = getattr(e, name)
        setattr(e, name, (value.detach() * 1e4).float().requires_grad_(value.requires_grad))
    loss = objective.float().align(e) + (objective.constrain(e) or 0)
    grads = torch.autograd.grad(loss, [getattr(e, name) for name in names], allow_unused=True)
    assert loss.isfinite() and all(grad.isfinite().all() for grad in grads if grad is not None)


def check_recipe(recipe: ViewRecipe, scale: tuple[float, float], crops: list[tuple]) -> None:
    """BYOL's colours on both full-size views; local crops with these scales and sizes."""
    first, second, *local = recipe.at(224).each()
    assert (first.scale, first.blur, first.solarize, first.size) == (scale, 1.0, 0.0, None)
    assert (second.scale, second.blur, second.solarize, second.size) == (scale, 0.1, 0.2, None)
    assert [(v.scale, v.size) for v in local] == crops and {(v.blur, v.solarize) for v in local} == {(0.5, 0.0)}
    colours = {(v.brightness, v.contrast, v.saturation, v.hue, v.jitter) for v in (first, second, *local)}
    assert colours == {(0.4, 0.4, 0.2, 0.1, 0.8)}


def check_defaults(objective: IBOT) -> None:
    """The numbers that both papers share."""
    assert (objective.temperatures, objective.warmup_epochs, objective.temperature) == ((0.04, 0.07), 30, 0.1)
    assert (objective.mask_probability, objective.mask_share, objective.patch_weight) == (0.5, (0.1, 0.5), 1.0)


def refused(objective: str, words: str, backbone: str | nn.Module = "narrow_vit", **options) -> str:
    """The one line of the UserError, which has these words."""
    with pytest.raises(UserError, match=words) as error:
        sslkit.method(objective, backbone=backbone, image_size=16, in_chans=1, objective={**SMALL, **options})
    assert "\n" not in str(error.value)
    return str(error.value)
