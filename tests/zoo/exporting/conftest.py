"""Entries with weights that differ everywhere, statistics of batch norm included, as a training leaves them."""

import dataclasses
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

from sslkit import backbones, zoo
from sslkit.zoo.exporting.base import Source


def make_entry(folder: Path, backbone, image_size: int, in_chans: int = 3) -> zoo.ZooEntry:
    torch.manual_seed(0)
    body = backbones.build(backbone, image_size=image_size, in_chans=in_chans)
    state = body.export()
    for name, value in state.items():
        if name.endswith("running_var"):
            value.uniform_(0.5, 2)
        elif value.is_floating_point() and value.dim() == 1:
            value.add_(0.1 * torch.randn_like(value))
    recipe = dataclasses.asdict(body.recipe) | {"width": body.width, "image_size": image_size, "in_chans": in_chans}
    card = {
        "format": 1,
        "method": "byol+dsa",
        "labels": False,
        "config": {},
        "backbone": recipe,
        "normalize": {"mean": [0.25, 0.5, 0.75][:in_chans], "std": [0.3, 0.4, 0.5][:in_chans]},
        "data": {"source": "fashion_mnist", "images": 8000, "licence": "MIT", "held_out": True},
        "epochs": 6,
        "seed": 0,
        "date": "2026-11-21T16:28:47+00:00",
        "before": {"knn": 0.481, "probe": 0.5215, "n": 2000},
        "after": {"knn": 0.75, "probe": 0.7845, "n": 2000},
        "diagnostics": {"rankme": 44.5},
    }
    return zoo.save(folder, state, card)


@pytest.fixture
def entry_of(tmp_path: Path) -> Callable[..., zoo.ZooEntry]:
    """Makes an entry: entry_of(backbone, image_size, in_chans=3)."""
    return lambda *network: make_entry(tmp_path / "byol-entry", *network)


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A network that every form can hold, resnet18 for 16 gray pixels, in one form; not to be changed."""
    entry = make_entry(tmp_path_factory.mktemp("zoo") / "byol-entry", "resnet18", 16, 1)
    return cache(lambda to: zoo.export(entry, to=to))


@pytest.fixture
def same_source(exported, monkeypatch) -> zoo.ZooEntry:
    """The entry behind `exported`, whose network is not built anew by each export."""
    source = _source(exported("timm").parents[1])
    monkeypatch.setattr(Source, "from_entry", lambda entry, trust=(): source)
    return source.entry


@cache
def _source(folder: Path) -> Source:
    return Source.from_entry(zoo.ZooEntry.load(folder))
