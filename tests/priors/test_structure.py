"""The identity of a prior's network: the same weights in another architecture are another prior."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sslkit import priors
from sslkit.data.sources.named import open_images
from sslkit.priors._features import tabulate
from sslkit.priors.base import NetworkPrior

NAME = "mixnet_s"  # tf_mixnet_s pads otherwise, and has another eps


class Own(nn.Module):
    def __init__(self, **settings: object) -> None:
        super().__init__()
        vars(self).update(settings)
        self.layer = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.flatten(1))


class Other(Own):
    pass


class Known(Own):
    """Prints itself as `Own`, of which the class of the module is then all that differs."""

    def _get_name(self) -> str:
        return "Own"


def identity_of(network: Callable[[], nn.Module]) -> str:
    torch.manual_seed(0)
    return NetworkPrior("net", nn.Sequential(network()), {"size": 2, "mean": (0.0,), "std": (1.0,)}).identity


def test_kept_features_are_not_those_of_another_architecture(tmp_path: Path) -> None:
    torch.manual_seed(0)
    file = tmp_path / "w.pth"
    torch.save(timm.create_model(NAME, num_classes=0).state_dict(), file)
    images = open_images(torch.randint(0, 256, (4, 3, 32, 32), generator=torch.Generator().manual_seed(1)).byte())

    def features(name: str, cache: Path | None) -> Tensor:
        prior = priors.build(f"timm:{name}:{file}", size=32)
        return tabulate(prior, images, cache=cache, device=torch.device("cpu")).all()

    first = features(NAME, tmp_path)
    assert torch.equal(first, features(NAME, tmp_path)) and len(list(tmp_path.glob("prior-*.npy"))) == 1
    second = features(f"tf_{NAME}", tmp_path)
    assert torch.equal(second, features(f"tf_{NAME}", None)) and not torch.allclose(second, first, rtol=0.1)


@pytest.mark.parametrize(
    "other",
    [
        lambda: Other(),
        lambda: Known(),
        lambda: Own(scale=2.0),
        lambda: Own(scale=1.0, sides=(1, 2)),
        lambda: Own(scale=1.0, sides=[2, 1]),
        lambda: Own(scale=1.0, act=F.gelu),
        lambda: Own(scale=1.0, act=partial(F.gelu, approximate="tanh")),
        lambda: Own(scale=1.0, kind=nn.GELU),
        lambda: Own(scale=1.0, mean=torch.tensor([0.5])),
    ],
)
def test_another_class_or_setting_is_another_prior(other: Callable[[], nn.Module]) -> None:
    assert identity_of(other) == identity_of(other) != identity_of(lambda: Own(scale=1.0))


def test_what_is_computed_once_and_objects_without_a_name_change_nothing() -> None:
    own = identity_of(lambda: Own(held=object(), cfg={"file": "a"}))
    assert own == identity_of(lambda: Own(held=object(), cfg={"file": "b"}, _seen=3))


def test_buffers_that_are_not_saved_are_part_of_it() -> None:
    def network(value: float) -> nn.Module:
        made = Own()
        made.register_buffer("scale", torch.tensor(value), persistent=False)
        return made

    assert identity_of(lambda: network(1.0)) != identity_of(lambda: network(2.0))


@pytest.mark.parametrize("made", [torch.tensor, np.array])
def test_plain_arrays_are_part_of_it_by_their_values(made: Callable[[list[float]], object]) -> None:
    first, again, other = (identity_of(lambda x=x: Own(mean=made([0.5, x]))) for x in (0.2, 0.2, 0.3))
    assert first == again != other
