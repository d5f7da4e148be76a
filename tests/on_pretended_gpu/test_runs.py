"""Whole runs on a pretended GPU with their logging, from arrays and files; on the CPU beside one; on two ranks."""

import traceback
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from contract import build
from forks import WORLD, start_ranks
from gpu_contract import check, clean, images_of, pinned, steps_watched
from photographs import write_jpegs
from pretended_device import Pretended

import sslkit
from sslkit.runtime import distributed
from sslkit.training.loading import to_device
from sslkit.training.step import Pretraining

pytestmark = pytest.mark.filterwarnings("ignore")


def test_a_run_with_its_logging(small_run: dict) -> None:
    with Pretended() as gpu, steps_watched(gpu):
        entry = sslkit.pretrain({**small_run, "method": "byol+dsa", "optimizer": {"clip": 1.0}})
    check(gpu)
    assert entry.card["computed"]["device"] == "a pretended GPU" and gpu.launches["host to device"] > 100


def test_a_run_from_files_that_goes_on_where_it_was_stopped(small_run: dict, tmp_path: Path, monkeypatch) -> None:
    data = {
        "data": {"source": str(write_jpegs(tmp_path / "files", count=8))},
        "batch_size": 4,
        "image_size": 16,
        "workers": 0,
    }
    config = {**small_run, "method": "mae+guide", **data}
    with Pretended() as gpu, steps_watched(gpu):
        with pytest.raises(KeyboardInterrupt), monkeypatch.context() as stopping:
            stopping.setattr(Pretraining, "check", _stop_in_the_second_epoch)
            sslkit.pretrain(config)
        sslkit.pretrain(config, resume=True)
    check(gpu)


def _stop_in_the_second_epoch(module: Pretraining, now: object = None) -> None:
    if module.method.epoch == 1:
        raise KeyboardInterrupt


def test_a_run_on_the_cpu_leaves_the_gpu_alone(small_run: dict) -> None:
    with Pretended() as gpu:
        sslkit.pretrain({**small_run, "device": "cpu", "method": "byol+guide"})
    assert not gpu.faults and not gpu.launches, gpu.report()


def rank_on_a_gpu(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=WORLD)
    said = "no report"
    try:
        said = _seen_on_a_rank(rank)
    except BaseException:
        said = traceback.format_exc()
    finally:
        (folder / str(rank)).write_text(said)
        dist.destroy_process_group()


def _seen_on_a_rank(rank: int) -> str:
    """Return what is not allowed in the second step of one of two ranks."""
    method = build("dino+dsa+guide+koleo+sigreg")
    method.prepare(clean())
    method.epoch = 2
    given = {key: part[rank::WORLD] for key, part in images_of(method, 8).items()}
    with Pretended(devices=WORLD) as gpu:
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
        module = Pretraining(distributed.synchronize_batch_norm(method, "cpu")).to(device)
        wrapped = torch.nn.parallel.DistributedDataParallel(module, device_ids=[rank], broadcast_buffers=False)
        for number in range(2):
            method.shares.steps = 1
            gpu.clear()
            wrapped(to_device(pinned(given), device), number)["loss"].backward()
    try:
        check(gpu)
    except AssertionError as error:
        return str(error)
    assert all(any(kind in name for name in gpu.launches) for kind in ("allgather", "allreduce", "reduce_scatter"))
    return ""


@pytest.mark.nightly
def test_two_ranks(tmp_path: Path) -> None:
    start_ranks(rank_on_a_gpu, tmp_path)
    assert [(tmp_path / str(rank)).read_text() for rank in range(WORLD)] == ["", ""]
