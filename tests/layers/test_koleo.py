"""KoLeo's nearest neighbour where several are equally near: the same one on two processes as on one."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from forks import WORLD, start_ranks
from torch import Tensor

from sslkit.layers.koleo import koleo, nearest_distance
from sslkit.runtime import distributed


def embeddings() -> Tensor:
    """(2, 6, 3), of which 3 and 4 are equal, and 5 near both. Rank by rank, 0 2 4 1 3 5, the order of the two turns."""
    z = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    z[:, 4] = z[:, 3]
    z[:, 5] = z[:, 3] + 0.1 * z[:, 0]
    return z


def gradient(own: slice) -> Tensor:
    """(2, n, 3): of the loss of all ranks by the embeddings of one, averaged as DDP does."""
    z = embeddings()[:, own].requires_grad_()
    koleo(nearest_distance(distributed.gather(z, 1))).backward()
    return z.grad / distributed.world_size()


def work(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=WORLD)
    torch.save(gradient(slice(rank, None, WORLD)), folder / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.nightly
def test_of_equally_near_ones_the_first_of_the_batch_is_the_nearest_on_any_rank(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("ranks")
    start_ranks(work, folder)
    alone = gradient(slice(None))
    assert not torch.equal(alone[:, 3], alone[:, 4])
    for rank in range(WORLD):
        found = torch.load(folder / f"{rank}.pt", weights_only=True)
        torch.testing.assert_close(found, alone[:, rank::WORLD], rtol=1e-12, atol=1e-12)
