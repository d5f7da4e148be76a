"""Weights in shares on two gloo processes: steps, state and features are those of one process."""

import copy
import traceback
import warnings
from pathlib import Path
from unittest import mock

import contract
import pytest
import torch
import torch.distributed as dist
from forks import WORLD, start_ranks
from torch.distributed.device_mesh import init_device_mesh

import sslkit
from sslkit import objectives, regularizers
from sslkit.backbones.base import Origin
from sslkit.backbones.tune import parse
from sslkit.backbones.tuning import train_part
from sslkit.errors import UserError
from sslkit.runtime import distributed
from sslkit.runtime.hardware import recompute
from sslkit.training.build import check_shares
from sslkit.training.config import Config, OptimizerConfig
from sslkit.training.optimizers import make_optimizer
from sslkit.training.step import Pretraining

EVERY_PLUGIN = "+".join(regularizers.names())
QUICK = ["byol+koleo"]
TUNED = ["simclr last:1", "simclr norms"]
VITS = [name for name in objectives.names() if "vit" in objectives.find(name).families]
LONG = [
    name
    for name in (*VITS, f"byol+{EVERY_PLUGIN}", f"mae+{EVERY_PLUGIN}", "mae+guide", "byol again", *TUNED)
    if name not in QUICK
]
DEEPER = {"narrow_vit": (contract.NARROWER_VIT["narrow_vit"][0], contract.NARROWER_VIT["narrow_vit"][1] | {"depth": 4})}


def made(name: str) -> tuple[Pretraining, torch.optim.Optimizer]:
    """In float64, with four blocks, of which two are in shares of their own. "NAME again": recomputes activations.

    "NAME TUNE" is a run from given weights with tune=TUNE.
    """
    name, *more = name.split()
    with mock.patch.object(contract, "NARROWER_VIT", DEEPER):
        method = contract.build(name, "vit", seed=1)
    for word in set(more) - {"again"}:
        method.backbone.recipe.origin = Origin("given", "", ((0.0,) * 3, (1.0,) * 3))
        train_part(method.backbone, parse(word))
    method.double()
    if {"guide", "distill"} & set(name.split("+")):
        method.prepare(sslkit.open_images("clipart"))
    if "again" in more:
        recompute(method.backbone.net, "narrow_vit")
    return Pretraining(method), make_optimizer(method, OptimizerConfig(), 1e-3)


def stepped(module: Pretraining, optimizer: torch.optim.Optimizer, steps: range, rank: int = 0, world: int = 1) -> None:
    method = module.method
    images, index = contract.batch(16)
    for number in steps:
        method.epoch, method.batch = number, 0
        rows = slice(rank, None, world)
        aspect = torch.ones(len(index[rows]))
        batch = {"images": images[rows], "index": index[rows], "aspect": aspect, "label": index[rows] % 5}
        loss = module(batch, number)["loss"]
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], 1.0)
        optimizer.step()
        method.after_step((number + 1) / 5)


def state_of(module: Pretraining, optimizer: dict) -> dict:
    """What a checkpoint has, and features."""
    with torch.no_grad():
        features = module.method.eval().backbone(torch.ones(2, 3, 16, 16).double())
    module.method.train()
    return copy.deepcopy({"module": module.state_dict(), "optimizer": optimizer, "h": features})


def in_shares(name: str, rank: int) -> dict:
    """The states after two steps and after a third, and after that third one as resumed from the two."""
    from sslkit.runtime.sharded import Sharded, share

    strategy, mesh = mock.Mock(spec=Sharded, is_global_zero=rank == 0), init_device_mesh("cpu", (WORLD,))
    module, optimizer = made(name)
    distributed.synchronize_batch_norm(module, "cpu")
    share(module, [optimizer], mesh)
    found = {}
    for steps in (range(2), range(2, 3)):
        stepped(module, optimizer, steps, rank, WORLD)
        with Sharded.whole(strategy, module, optimizer) as whole:
            found[steps.stop] = state_of(module, whole)
    held = sum(distributed.local(p).numel() for p in module.parameters())
    found["held"] = held / sum(p.numel() for p in module.parameters())
    kept = [copy.deepcopy(found[2])]
    dist.broadcast_object_list(kept)
    module, optimizer = made(name)
    module.load_state_dict(kept[0]["module"])
    distributed.synchronize_batch_norm(module, "cpu")
    share(module, [optimizer], mesh)
    optimizer.load_state_dict(kept[0]["optimizer"])
    Sharded.share_state(strategy, optimizer)
    stepped(module, optimizer, range(2, 3), rank, WORLD)
    with Sharded.whole(strategy, module, optimizer) as whole:
        found["resumed"] = state_of(module, whole)
    return found


def work(rank: int, folder: Path, names: list[str]) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=WORLD)
    for name in names:
        try:
            found = in_shares(name, rank)
        except Exception:
            found = {"error": traceback.format_exc()}  # of this objective: the others go on
        torch.save(found, folder / f"{name}-{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def together(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("shares")
    start_ranks(work, folder, QUICK)
    return folder


@pytest.fixture(scope="module")
def all_together(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("shares")
    start_ranks(work, folder, LONG)
    return folder


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", QUICK)
def test_two_processes_with_shares_equal_one(name: str, together: Path) -> None:
    check_equal(name, together)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LONG)
def test_two_processes_with_shares_equal_one_with_every_member(name: str, all_together: Path) -> None:
    check_equal(name, all_together)


def check_equal(name: str, folder: Path) -> None:
    found, other = (torch.load(folder / f"{name}-{rank}.pt", weights_only=False) for rank in range(WORLD))
    assert "error" not in found, found["error"]
    assert found["held"] + other["held"] == pytest.approx(1) and abs(found["held"] - other["held"]) < 0.1  # of one row
    assert all(torch.equal(x, other[3]["module"][k]) for k, x in found[3]["module"].items() if "extra" not in k)
    same(found["resumed"], found[3])
    module, optimizer = made(name)
    stepped(module, optimizer, range(2))
    same(found[2], state_of(module, optimizer.state_dict()))
    module, optimizer = made(name)  # one process goes on with what two have saved
    module.load_state_dict(found[2]["module"])
    optimizer.load_state_dict(found[2]["optimizer"])
    stepped(module, optimizer, range(2, 3))
    same(found[3], state_of(module, optimizer.state_dict()))


def same(found: dict, known: dict) -> None:
    """Equal but for the order of sums, to a thousandth of AdamW's step; some buffers and centres are float32."""
    assert found["module"].keys() == known["module"].keys()
    close(found["h"], known["h"], "h")
    for key, x in known["module"].items():
        close(found["module"][key], x, key)
    for number, state in known["optimizer"]["state"].items():
        for key, x in state.items():
            close(found["optimizer"]["state"][number][key], x, f"{number}.{key}")


def close(found: torch.Tensor, known: torch.Tensor, what: str) -> None:
    torch.testing.assert_close(found, known, rtol=1e-5, atol=1e-6, msg=lambda text: f"{what}: {text}")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"backbone": "narrow_resnet"}, "is no ViT"),
        ({"optimizer.name": "lars", "optimizer.lr": 0.3}, "norm of each whole weight"),
        ({"precision": "float16"}, "take bfloat16"),
        ({"trainer.compile": True}, "trainer.compile=true"),
        ({"init": "efficientnet_lite0", "tune": "lora(4)"}, r"tune=lora\(4\) computes each weight"),
    ],
)
def test_what_has_no_shares_is_refused(settings: dict, reason: str) -> None:
    config = Config.from_mapping({"method": "byol", "backbone": "narrow_vit", "trainer.strategy": "fsdp", **settings})
    built = sslkit.method("byol", backbone=config.backbone, image_size=16)
    with pytest.raises(UserError, match=reason):
        check_shares(config, built)
