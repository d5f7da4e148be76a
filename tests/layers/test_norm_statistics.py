"""Shuffled batch norm of maps, and of DenseCL's joined rows, in two processes; that of plain rows is in test_moco."""

from collections import OrderedDict
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from forks import WORLD, start_ranks
from torch import Tensor, nn

from sslkit.backbones.base import Backbone, Recipe
from sslkit.layers.norm_statistics import encode, would_leak
from sslkit.objectives.densecl import DenseCL
from sslkit.runtime import distributed

SIZE, EACH = 8, 3  # pixels, and images of a rank


class Small(nn.Sequential):
    """A network with a map of 3 x 3 places that is there at once in a new process."""

    def __init__(self) -> None:
        super().__init__(OrderedDict(conv=nn.Conv2d(1, 5, 3, 2), norm=nn.BatchNorm2d(5), act=nn.ReLU()))

    def forward_features(self, x: Tensor) -> Tensor:
        return super().forward(x)

    def forward_head(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))


def densecl() -> DenseCL:
    """The teacher has other weights than the student, so that it is seen who embeds what."""
    torch.manual_seed(0)
    objective = DenseCL(Backbone(Small(), Recipe("small"), image_size=SIZE, in_chans=1), dim=4, queue_size=20).double()
    with torch.no_grad():
        for p in objective.teacher.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return objective


def views() -> list[Tensor]:
    g = torch.Generator().manual_seed(9)
    return [torch.rand(WORLD * EACH, 1, SIZE, SIZE, generator=g, dtype=torch.double) for _ in range(2)]


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(7)


def work(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=WORLD)
    query, key = (v[rank::WORLD] for v in views())
    objective = densecl()
    found = {"maps": encode(nn.Sequential(*objective.teacher[0].net), key, generator()).detach()}
    e = objective.embed([query, key], torch.arange(EACH), generator())
    found |= {k: getattr(e, k).detach() for k in ("z", "target", "tokens", "token_target", "pooled")}
    found["leaks"] = [would_leak(objective.teacher), would_leak(objective.projector)]
    found["leaks"] += [would_leak(densecl().eval().teacher)]
    found["leaks"] += [would_leak(distributed.synchronize_batch_norm(objective.teacher, "cpu"))]
    torch.save(found, folder / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory) -> list[dict]:
    folder = tmp_path_factory.mktemp("ranks")
    start_ranks(work, folder)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(WORLD)]


@torch.no_grad()
def shares() -> list[tuple[Tensor, Tensor]]:
    """For each rank the numbers of the images that it encodes, counted rank by rank, and their maps by the teacher."""
    key = torch.cat([views()[1][rank::WORLD] for rank in range(WORLD)])
    order = torch.randperm(WORLD * EACH, generator=generator())
    return [(own, densecl().teacher[0].feature_map(key[own])[0]) for own in order.split(EACH)]


@torch.no_grad()
def maps() -> Tensor:
    """The teacher's maps of all keys, rank by rank."""
    found = torch.empty(WORLD * EACH, 5, 3, 3, dtype=torch.double)
    for own, part in shares():
        found[own] = part
    return found


def test_the_drawn_order_mixes_the_ranks() -> None:
    assert all(own.min() < EACH <= own.max() for own, _ in shares())


def test_maps_return_in_their_own_order_with_statistics_of_other_neighbours(ranks: list[dict]) -> None:
    for rank, found in enumerate(ranks):
        torch.testing.assert_close(found["maps"], maps()[EACH * rank : EACH * (rank + 1)])
        unshuffled = densecl().teacher[0].feature_map(views()[1][rank::WORLD])[0]
        assert (found["maps"] - unshuffled).abs().max() > 1e-3


@torch.no_grad()
def test_densecls_keys_and_places_return_in_their_own_order(ranks: list[dict]) -> None:
    for rank, found in enumerate(ranks):
        objective = densecl()
        own = maps()[EACH * rank : EACH * (rank + 1)]
        torch.testing.assert_close(found["target"][0], objective.teacher[1](own.mean((2, 3))))
        places = objective.teacher[2](own.flatten(2).mT)
        torch.testing.assert_close(found["pooled"][0], places.mean(1))
        query = objective.backbone.feature_map(views()[0][rank::WORLD])[0].flatten(2).mT
        torch.testing.assert_close(found["z"][0], objective.projector(query.mean(1)))
        torch.testing.assert_close(found["tokens"][0], objective.dense_projector(query))
        for n, features in enumerate(own.flatten(2).mT):
            for s, place in enumerate(query[n]):
                cosines = [(place @ other / place.norm() / other.norm()).item() for other in features]
                match = max(range(9), key=cosines.__getitem__)
                torch.testing.assert_close(found["token_target"][0, n, s], places[n, match])


def test_only_local_batch_norm_in_training_on_several_ranks_would_leak(ranks: list[dict]) -> None:
    """Local batch norm, a projector without any, evaluated batch norm, and one over all ranks."""
    assert all(found["leaks"] == [True, False, False, False] for found in ranks)
    assert not would_leak(densecl().teacher)


def test_one_process_encodes_the_images_as_they_are_and_draws_nothing() -> None:
    g = generator()
    key = views()[1]
    torch.testing.assert_close(encode(densecl().teacher[0], key, g), densecl().teacher[0](key))
    assert torch.equal(g.get_state(), generator().get_state())
