"""How the contract tests make every objective small, whichever files there are."""

import importlib.util
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

import sslkit
from sslkit import backbones, objectives, regularizers
from sslkit.embeddings import Maps
from sslkit.options.members import signature

PLUGINS = [*regularizers.names(), "+".join(regularizers.names())]
# Of maps: at 16 pixels that of narrow_resnet has one position, and they compare several.
ANCHORS = [name for name in regularizers.names() if regularizers.find(name).reads == "map"]
EMBEDDED = [name for name in regularizers.names() if name not in ANCHORS]
MEMBERS = [(name, family) for name in objectives.names() for family in objectives.find(name).families]

# What the names that options share mean in a test; an objective takes those that its signature has.
SMALL = {"dim": 8, "hidden": 16, "queue_size": 10, "prototypes": 12, "classes": 5, "queue_start": 1}

# A quarter of narrow_vit's width and half its depth: in half precision, without oneDNN, its steps are most of the time.
NARROWER_VIT = {
    "narrow_vit": ("vit_tiny_patch16_224", {"embed_dim": 24, "depth": 2, "num_heads": 2, "global_pool": "avg"})
}


def build(name: str, family: str | None = None, *, image_size: int | None = None, **options: Any) -> sslkit.Method:
    """`objective+...` on a small network of a family (the objective's first, if none is given), for 16 pixels or 32."""
    objective, *plugins = name.split("+")
    image_size = image_size or (32 if set(plugins) & set(ANCHORS) else 16)
    known = signature(objective)
    small = {k: v for k, v in SMALL.items() if k in known["objective"]}
    views = {"n_local": 2} if "n_local" in known["views"] else {}
    backbone = f"narrow_{family or objectives.find(objective).families[0]}"
    with mock.patch.dict(backbones.NARROW, NARROWER_VIT):
        return sslkit.method(name, backbone=backbone, image_size=image_size, objective=small, views=views, **options)


def batch(n: int = 6, in_chans: int = 3) -> tuple[Tensor, Tensor]:
    """Real images, 16 pixels square, as uint8, and their rows."""
    pixels = _pixels(n)
    return pixels[:, :in_chans].clone(), torch.arange(n)


def step(m: sslkit.Method, images: Tensor, index: Tensor, call: Callable[..., dict] | None = None) -> dict[str, Tensor]:
    """The terms of one step; labels are made up for whoever asks. call: what to call instead of m, DDP say."""
    labels = {"labels": index % SMALL["classes"]} if m.objective.needs_labels else {}
    return (call or m)(images, index, **labels)


def enough(m: sslkit.Method, n: int) -> int:
    """n images, or as many as the objective needs at least."""
    return max(n, m.objective.least_images)


@cache
def _pixels(n: int) -> Tensor:
    images = sslkit.open_images("clipart").__getitems__(list(range(n)))["images"].float()
    return torch.nn.functional.interpolate(images, (16, 16), mode="bilinear", antialias=True).round().byte()


@cache
def own_tests(name: str) -> ModuleType:
    """tests/objectives/test_<name>.py, in which every objective has its `oracle`."""
    path = Path(__file__).parent / "objectives" / f"test_{name}.py"
    if not path.is_file():
        pytest.fail(f"the objective {name} has no test: add tests/objectives/{path.name} with a function oracle(m, e)")
    spec = importlib.util.spec_from_file_location(f"oracle_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def maps(n: int = 2, f: int = 5, side: int = 3, seed: int = 0) -> Maps:
    """Drawn maps of a view in float64, for regularisers that compare networks."""
    g = torch.Generator().manual_seed(seed)
    return Maps(torch.randn(n, f, side, side, generator=g).double(), torch.randn(n, f, generator=g).double())
