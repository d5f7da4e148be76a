"""Two gloo processes give the loss and the gradients of one on the joined batch."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from forks import start_ranks
from torch import Tensor

from sslkit.embeddings import Embeddings
from sslkit.regularizers.dsa import DSA

V, N, D = 2, 12, 6


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(V, N, D, generator=generator), torch.rand(N, 1, 8, 8, generator=generator)


def prior(images: Tensor) -> Tensor:
    return images.flatten(1) - 0.5


def coarse(images: Tensor) -> Tensor:
    """Four values for twelve images: many are equally near."""
    return prior(images)[:, :2].sign()


def wide(images: Tensor) -> Tensor:
    """1,536 features, as of a large network: fp32 products of so many round otherwise for half of the rows."""
    return prior(images).repeat(1, 24)


def run(options: dict, part: slice) -> dict[str, Tensor]:
    """One rank's terms, and the gradients of their sum by z and by the parameters."""
    torch.manual_seed(0)
    dsa = DSA(D, hidden=8, **{"prior": prior, "eta": 4, **options}).double()
    z, images = batch()
    z = z[:, part].double().requires_grad_()
    index = torch.arange(N)[part]
    views = [images[part], images[part].flip(2)]
    e = Embeddings(z=z, h=z.detach(), target=None, index=index, views=views).gather()
    terms = dsa.terms(e, images[part])
    sum(terms.values()).backward()
    grads = {name: p.grad for name, p in dsa.named_parameters()}
    return {**{k: v.detach() for k, v in terms.items()}, "z": z.grad, **grads}


def work(rank: int, folder: str, cases: list[dict]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    part = slice(rank, None, 2)  # as the loader splits a batch
    torch.save([run(options, part) for options in cases], f"{folder}/{rank}.pt")
    dist.destroy_process_group()


GATHERED = [
    {"neighbours": "batch", "alpha": "relative:2"},
    {"mode": "view", "tau": "auto"},
    {"arranger": "cosine", "neighbours": "batch"},
    {"neighbours": "batch", "mu": 100},  # every score is zero
    {"neighbours": "batch", "prior": coarse, "eta": 2, "mu": 0},
    {"neighbours": "batch", "prior": wide},
]
LOCAL = {"variant": "code", "neighbours": "batch"}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory) -> list[list[dict[str, Tensor]]]:
    folder: Path = tmp_path_factory.mktemp("gloo")
    start_ranks(work, str(folder), [*GATHERED, LOCAL])
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


def joined(first: dict[str, Tensor], second: dict[str, Tensor]) -> dict[str, Tensor]:
    """What one process sees after DDP: the mean of the parameters' gradients; z's belong to the sum of two losses."""
    both = {k: (first[k] + second[k]) / 2 for k in first if k != "z"}
    return {**both, "z": torch.stack([first["z"], second["z"]], 2).flatten(1, 2) / 2}


@pytest.mark.parametrize("case", range(len(GATHERED)))
def test_two_processes_equal_one(case: int, ranks) -> None:
    want = run(GATHERED[case], slice(None))
    first, second = ranks[0][case], ranks[1][case]
    for name in ("dsa/arrange", "dsa/consistency"):
        torch.testing.assert_close(first[name], second[name])
    for name, value in joined(first, second).items():
        # Neither is anything fp32: a ReLU of the arranging MLP would turn its rounding into a step of the gradient.
        torch.testing.assert_close(value, want[name], rtol=1e-10, atol=1e-12, msg=lambda m, n=name: f"{n}: {m}")
    assert want["z"].any()


def test_the_codes_form_is_the_mean_of_what_each_would_have_alone(ranks) -> None:
    alone = [run(LOCAL, slice(rank, None, 2)) for rank in range(2)]
    got, want = joined(ranks[0][-1], ranks[1][-1]), joined(*alone)
    for name, value in got.items():
        torch.testing.assert_close(value, want[name], rtol=1e-6, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}")
