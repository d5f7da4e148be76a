"""The loop of all fine-tuning on two processes: the weights, results, notes and refusals of one."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from forks import WORLD, free_port, start_ranks
from torch import Tensor, nn
from tuning_steps import CPU, STEPS, batches, network, training

from evaluation.datasets import open_split
from evaluation.protocols.fine_tune import fine_tune
from evaluation.protocols.linear_aug import linear_on_views
from evaluation.results.records import read_records
from evaluation.tuning.checkpoint import Checkpoint
from evaluation.tuning.classifier import Setting, predict, train_classifier
from evaluation.tuning.loop import State, fit
from evaluation.tuning.pixels import Pixels, Pool
from evaluation.tuning.processes import process_group
from sslkit import open_images
from sslkit.errors import UserError
from sslkit.models.loading import load
from sslkit.models.model import Model
from sslkit.runtime.context import Runtime
from sslkit.runtime.distributed import SyncBatchNorm, gather_objects, rank


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def convolution() -> Model:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = [nn.Conv2d(1, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()]
        return load(nn.Sequential(*layers), image_size=8, in_chans=1)


def tuned(labels: np.ndarray, checkpoint: Checkpoint | None = None) -> tuple[dict[str, Tensor], Tensor, int]:
    """The weights after 10 steps, scores of 7 other images, and the number of synchronised layers."""
    digits, setting = open_images("digits"), Setting(lr=0.2, head_lr=0.4, weight_decay=1e-3, steps=10, batch_size=16)
    pixels, tested = (Pixels(Pool([digits]), rows, CPU) for rows in (np.arange(50), np.arange(60, 67)))
    y = torch.from_numpy(labels[:50])
    classes = 10 if labels.ndim == 1 else labels.shape[1]
    given = {"classes": classes, "checkpoint": checkpoint, "progress": False}
    net = train_classifier(convolution(), pixels, y, setting, **given)
    synchronised = sum(isinstance(layer, SyncBatchNorm) for layer in net.modules())
    return net.state_dict(), predict(net, convolution(), tested, precision="float32"), synchronised


def several_labels() -> np.ndarray:
    """(N, 3) int8 of 1, -1 and 0, which differ in number between the halves of a batch."""
    return np.random.default_rng(0).choice([-1, 0, 0, 1], (200, 3)).astype(np.int8)


def as_a_rank(number: int, work: str, port: int, folder: Path) -> None:
    torch.set_num_threads(1)
    ranks = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": WORLD, "LOCAL_WORLD_SIZE": WORLD}
    os.environ.update(
        {name: str(value) for name, value in ranks.items()}, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
    )
    torch.save(globals()[work](folder), folder / f"{work}-{number}.pt")


def on_two(work: str, folder: Path) -> list:
    start_ranks(as_a_rank, work, free_port(), folder)
    return [torch.load(folder / f"{work}-{number}.pt", weights_only=False) for number in range(WORLD)]


def one_label(folder: Path) -> tuple:
    with process_group(Runtime(device="cpu")):
        return tuned(open_images("digits").labels)


def labels_that_do_not_count(folder: Path) -> tuple:
    with process_group(Runtime(device="cpu")):
        return tuned(several_labels())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "labels"),
    [("one_label", open_images("digits").labels), ("labels_that_do_not_count", several_labels())],
)
def test_two_processes_end_with_the_weights_of_one(work: str, labels: np.ndarray, tmp_path: Path) -> None:
    weights, scores, _ = tuned(labels)
    first, second = on_two(work, tmp_path)
    assert first[2] == second[2] == 1 and same(first[0], second[0])
    for name, value in weights.items():
        torch.testing.assert_close(first[0][name], value, rtol=2e-4, atol=2e-5, msg=name)
    for _, found, _ in (first, second):
        torch.testing.assert_close(found, scores, rtol=2e-4, atol=2e-4)


def whole_protocols(folder: Path) -> list[float]:
    digits = {split: open_split("digits", split) for split in ("train", "test")}
    how = {"steps": 6, "batch_size": 32, "crop": (0.6, 1.0), "mirror": False, "progress": False, "device": "cpu"}
    grid = {"lr": [0.3, 0.03]}
    found = fine_tune(convolution(), digits, grid=grid, seeds=[0, 1], out=folder / "shared", **how)
    again = fine_tune(convolution(), digits, grid=grid, seeds=[0, 1], out=folder / "shared", **how)
    assert found.value == again.value, "it is on record"
    alone = fine_tune(convolution(), digits, grid=grid, **how)
    on_views = linear_on_views(convolution(), *digits.values(), epochs=1, batch_size=64, device="cpu", progress=False)
    return [found.value, alone.value, on_views.value]


@pytest.mark.slow
def test_protocols_give_the_result_of_one_process_on_every_rank(tmp_path: Path) -> None:
    first, second = on_two("whole_protocols", tmp_path)
    assert first == second
    (tmp_path / "one").mkdir()
    assert first == pytest.approx(whole_protocols(tmp_path / "one"), abs=0.02)
    records = read_records(tmp_path / "shared" / "fine_tune.jsonl").values()
    assert len(records) == 4 and all(record["ranks"] == WORLD for record in records)
    assert not list((tmp_path / "shared").glob("*.ckpt"))


def other_checkpoints(folder: Path) -> str:
    with process_group(Runtime(device="cpu")):
        path = folder / f"{rank()}.ckpt"
        if rank() == 0:
            Checkpoint(path, "run").save({"step": 3})
        try:
            tuned(open_images("digits").labels, Checkpoint(path, "run"))
        except UserError as error:
            return str(error)
    return ""


@pytest.mark.slow
def test_different_checkpoints_stop_every_process(tmp_path: Path) -> None:
    for said in on_two("other_checkpoints", tmp_path):
        assert "the processes found different checkpoints" in said and "must share that folder" in said


class Killed(Exception):
    pass


def notes_of_both(folder: Path) -> tuple[list[str], list]:
    """A training on two ranks that is stopped after step 4 and resumed: its notes, and its mean losses."""
    with process_group(Runtime(device="cpu")):
        for stop in (4, STEPS):
            file, state = Checkpoint(folder / "a.ckpt", seconds=0), State()

            def loss(net: nn.Module, batch: tuple[Tensor, Tensor], step: int, state: State = state) -> Tensor:
                state.notes += [f"rank {rank()} step {step}"]
                return net(batch[0][rank() :: WORLD]).square().mean()

            def some(first: int, stop: int = stop) -> Iterator[tuple[Tensor, Tensor]]:
                for step, batch in enumerate(batches(first), first):
                    if step == stop:
                        raise Killed
                    yield batch

            try:
                plan = training(network(0.0), loss=loss, batches=some)
                fit(plan, state=state, checkpoint=file, progress=False)
            except Killed:
                assert gather_objects(stop) == [stop] * WORLD and file.load()["step"] == 4  # rank 0 has written it
        whole = fit(training(network(0.0), loss=loss), progress=False, checkpoint=None)
        return sorted(set(state.notes)), [state.losses, whole.losses]


@pytest.mark.slow
def test_what_every_rank_noted_is_kept_over_a_stop(tmp_path: Path) -> None:
    for notes, (resumed, whole) in on_two("notes_of_both", tmp_path):
        assert notes == sorted(f"rank {number} step {step}" for number in range(WORLD) for step in range(STEPS))
        assert [step for step, _ in resumed] == [3, 6, 7]
        assert [loss for _, loss in resumed] == pytest.approx([loss for _, loss in whole], rel=1e-5)


def uneven_batches(folder: Path) -> str:
    with process_group(Runtime(device="cpu")):
        digits, setting = open_images("digits"), Setting(lr=0.2, steps=2, batch_size=15)
        y = torch.from_numpy(digits.labels[:50])
        with pytest.raises(UserError) as raised:
            train_classifier(
                convolution(),
                Pixels(Pool([digits]), np.arange(50), CPU),
                y,
                setting,
                classes=10,
                checkpoint=None,
                progress=True,
            )
        return str(raised.value)


@pytest.mark.slow
def test_a_batch_that_two_processes_cannot_share_is_refused(tmp_path: Path) -> None:
    expected = "a batch of 15 images cannot be shared by 2 processes: change batch_size"
    assert on_two("uneven_batches", tmp_path) == [expected, expected]
