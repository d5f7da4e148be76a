"""Sinkhorn over the rows of several ranks against Sinkhorn of all rows at once."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from forks import WORLD, start_ranks
from torch import Tensor

from sslkit.layers.prototypes import sinkhorn, sinkhorn_of_cosines, sinkhorn_of_ranks

OWN = [slice(0, 3), slice(3, 10)]  # the ranks' rows: they need not be as many


def scores() -> Tensor:
    return 20 * torch.randn(10, 6, generator=torch.Generator().manual_seed(0), dtype=torch.double)


def work(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=WORLD)
    found = [sinkhorn_of_ranks(scores()[OWN[rank]], 0.3, iterations) for iterations in (0, 1, 4)]
    found += [sinkhorn_of_cosines(scores()[OWN[rank]].tanh() / 0.04, 0.04, iterations) for iterations in (0, 1, 4)]
    torch.save(found, folder / f"{rank}.pt")
    dist.destroy_process_group()


def test_rows_of_two_ranks_get_the_codes_that_all_rows_get_together(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("ranks")
    start_ranks(work, folder)
    for rank in range(WORLD):
        found = torch.load(folder / f"{rank}.pt", weights_only=True)
        for place, iterations in enumerate((0, 1, 4)):
            torch.testing.assert_close(found[place], sinkhorn(scores(), 0.3, iterations)[OWN[rank]])
            torch.testing.assert_close(found[3 + place], sinkhorn(scores().tanh(), 0.04, iterations)[OWN[rank]])


@pytest.mark.parametrize("iterations", [0, 1, 4])
def test_one_process_gives_sinkhorn_and_leaves_the_scores(iterations: int) -> None:
    given = scores()
    torch.testing.assert_close(sinkhorn_of_ranks(given, 0.3, iterations), sinkhorn(scores(), 0.3, iterations))
    assert torch.equal(given, scores())


@pytest.mark.parametrize("epsilon", [1e-4, 0.025, 1 / 30, 0.04, 0.07])
def test_scaled_cosines_are_finite_and_sinkhorns_in_fp32(epsilon: float) -> None:
    cosines = scores().tanh()  # most of them are -1 or 1
    cosines[0], cosines[1:] = -1, cosines[1:].abs()  # the worst: one row is far from all that the others are near to
    found = sinkhorn_of_cosines(cosines.float() / epsilon, epsilon, 3)
    torch.testing.assert_close(found.double(), sinkhorn(cosines, epsilon, 3), rtol=2e-3, atol=1e-6)
    assert sinkhorn_of_cosines(torch.zeros(0, 4), epsilon, 3).shape == (0, 4)
