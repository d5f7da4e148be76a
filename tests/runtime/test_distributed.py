"""Two gloo processes equal one on the joined batch: loss, gradient and state, for every objective and regulariser."""

import itertools
import traceback
import warnings
from functools import cache
from pathlib import Path
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from contract import MEMBERS, build, step
from forks import WORLD, start_ranks
from torch.nn.parallel import DistributedDataParallel

import sslkit
from sslkit import objectives, regularizers
from sslkit.data.views import augmentation
from sslkit.runtime import distributed

WITH_PLUGINS = [
    f"{o}+{r} {objectives.find(o).families[0]}" for o, r in itertools.product(objectives.names(), regularizers.names())
]
FEW = ["byol+dsa resnet", "mae+guide vit"]
ALL_PLUGINS = f"distill+{'+'.join(regularizers.names())} resnet"
OF_ITSELF = "byol+adc+dsa+guide resnet self"  # the prior of each
FIRST = [f"{name} {objectives.find(name).families[0]}" for name in objectives.names()]
QUICK = [*FIRST, *FEW, ALL_PLUGINS, OF_ITSELF]
LONG = [one for one in (*(f"{name} {family}" for name, family in MEMBERS), *WITH_PLUGINS) if one not in QUICK]


@cache
def images_and_rows() -> tuple[torch.Tensor, torch.Tensor]:
    images = sslkit.open_images("clipart")
    rows = images.__getitems__(list(range(16)))
    return rows["images"], rows["index"]


def steps(method: sslkit.Method, images: torch.Tensor, index: torch.Tensor, call=None) -> dict:
    """Two steps, of which the second sees the queue and the centre of the first.

    Each image is rendered by itself: the last bits of a view (2e-7 on an AMD EPYC) depend on the images that are
    rendered with it, half as many on each of two ranks, and where they change an order, in VISReg, a gradient jumps.
    """
    trained = [p for p in method.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, 0.1)
    for i in range(2):
        method.epoch, method.batch = i, 0
        optimizer.zero_grad()
        with mock.patch.dict(augmentation.CHUNK_BYTES, cpu=1):
            terms = step(method, images, index, call)
        terms["loss"].backward()
        grads = {k: p.grad.clone() for k, p in method.named_parameters() if p.grad is not None}
        optimizer.step()
        method.after_step((i + 1) / 5)
    state = {k: v.clone() for k, v in method.state_dict().items()}
    return {"terms": {k: v.detach() for k, v in terms.items()}, "grads": grads, "state": state}


def unequal_maps() -> list[torch.Tensor]:
    """Of each rank, (N, 2, H, W) of another N, H and W."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(1 + rank, 2, 4 + rank, 3, generator=generator) + 5 * rank for rank in range(WORLD)]


def with_prior(name: str) -> bool:
    """Return whether features of a prior enter the loss."""
    return not {"guide", "distill"}.isdisjoint(name.split()[0].split("+"))


def with_resized_positions(name: str) -> bool:
    """Return whether a ViT sees views of two sizes."""
    objective, family, *_ = name.split()
    return family == "vit" and objectives.find(objective.split("+")[0]).views.n_local > 0


def made(name: str) -> sslkit.Method:
    """Build a method; all ranks fit the prior of guide and distill together."""
    name, family, *prior = name.split()
    own = {part: {"prior": prior[0]} for part in name.split("+")[1:]} if prior else {}
    method = build(name, family, image_size=16 if family == "vit" else 24, seed=1, **own).double()
    if with_prior(name):
        method.prepare(sslkit.open_images("clipart"))
    return method


def work(rank: int, folder: Path, names: list[str]) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=WORLD)
    images, index = images_and_rows()
    for name in names:
        method = distributed.synchronize_batch_norm(made(name), "cpu")
        try:
            done = steps(
                method,
                images[rank::WORLD],
                index[rank::WORLD],
                DistributedDataParallel(method, broadcast_buffers=False),
            )
        except Exception:
            done = {"error": traceback.format_exc()}  # of this objective: the others go on
        torch.save(done, folder / f"{name}-{rank}.pt")
    # Sums and gathers, as such.
    x = torch.arange(3.0).add(10 * rank).requires_grad_()
    everything = distributed.gather(x.view(3, 1), dim=1)
    (everything[:, 0] * everything[:, 1]).sum().div(WORLD).backward()
    total = distributed.sum_over_ranks(x)
    found = {"gathered": everything.detach(), "grad": x.grad, "sum": total.detach()}
    norm = distributed.SyncBatchNorm(2)
    found |= {"normal": norm(unequal_maps()[rank]).detach(), "mean": norm.running_mean, "var": norm.running_var}
    torch.save(found, folder / f"collective{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def together(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    start_ranks(work, folder, QUICK)
    return folder


@pytest.fixture(scope="module")
def together_with_plugins(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    start_ranks(work, folder, LONG)
    return folder


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", QUICK)
def test_two_processes_equal_one(name: str, together: Path) -> None:
    check_equal(name, together)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LONG)
def test_two_processes_equal_one_with_every_plugin(name: str, together_with_plugins: Path) -> None:
    check_equal(name, together_with_plugins)


def check_equal(name: str, together: Path) -> None:
    # The networks run in fp64; the priors of guide and distill in fp32, for half as many images on each rank, and timm
    # resizes the positions of a ViT to those of local crops in fp32.
    tolerance = 2e-6 if with_prior(name) else 1e-7 if with_resized_positions(name) else 1e-9
    alone = steps(made(name), *images_and_rows())
    for rank in range(WORLD):
        check_rank(alone, torch.load(together / f"{name}-{rank}.pt", weights_only=True), tolerance)


def check_rank(alone: dict, both: dict, tolerance: float) -> None:
    assert "error" not in both, both["error"]
    for k, v in alone["terms"].items():
        torch.testing.assert_close(both["terms"][k], v, rtol=tolerance, atol=1e-9, msg=lambda m, k=k: f"{k}: {m}")
    largest = max(g.abs().max() for g in alone["grads"].values()).item()
    assert both["grads"].keys() == alone["grads"].keys()
    for k, v in alone["grads"].items():
        torch.testing.assert_close(
            both["grads"][k], v, rtol=tolerance, atol=tolerance * largest, msg=lambda m, k=k: f"{k}: {m}"
        )
    for k, v in alone["state"].items():
        torch.testing.assert_close(both["state"][k], v, rtol=tolerance, atol=tolerance, msg=lambda m, k=k: f"{k}: {m}")


def test_collectives_and_their_gradients(together: Path) -> None:
    first, second = (torch.load(together / f"collective{r}.pt", weights_only=True) for r in range(WORLD))
    a, b = torch.arange(3.0), torch.arange(3.0) + 10
    for part in (first, second):
        torch.testing.assert_close(part["gathered"], torch.stack([a, b], 1))
        torch.testing.assert_close(part["sum"], a + b)
    # Each rank holds the whole loss over WORLD, so their sum is the loss, and its derivative is the other's value.
    torch.testing.assert_close(first["grad"], b)
    torch.testing.assert_close(second["grad"], a)


def test_batch_norm_counts_maps_of_another_size_on_each_rank(together: Path) -> None:
    maps = [part.flatten(2).transpose(0, 1).reshape(2, -1) for part in unequal_maps()]
    norm = torch.nn.BatchNorm1d(2)
    expected = norm(torch.cat(maps, 1).T).T.split([part.shape[1] for part in maps], 1)
    for rank in range(WORLD):
        part = torch.load(together / f"collective{rank}.pt", weights_only=True)
        found = part["normal"].flatten(2).transpose(0, 1).reshape(2, -1)
        torch.testing.assert_close(found, expected[rank].detach(), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close((part["mean"], part["var"]), (norm.running_mean, norm.running_var))


def test_one_process_is_the_identity() -> None:
    x = torch.ones(2, requires_grad=True)
    assert distributed.gather(x) is x and distributed.sum_over_ranks(x) is x and distributed.world_size() == 1


def test_our_batch_norm_alone_is_torchs() -> None:
    x = torch.randn(6, 5, 4, 4)
    theirs = torch.nn.BatchNorm2d(5)
    ours = distributed.synchronize_batch_norm(torch.nn.Sequential(torch.nn.BatchNorm2d(5)), "cpu")
    torch.testing.assert_close(ours(x), theirs(x))
    assert ours.state_dict().keys() == torch.nn.Sequential(theirs).state_dict().keys()
