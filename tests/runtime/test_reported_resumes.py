"""Public reports about resumed training in other libraries: a run that is stopped and goes on is the unbroken one."""

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning_fabric import Fabric
from photographs import write_jpegs
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

import sslkit
from sslkit.errors import UserError
from sslkit.files.writing import MACHINE
from sslkit.runtime.loop import Hook, Loop
from sslkit.training import pretrain

EPOCHS, BATCHES = 3, 4


class Batches:
    """The same batches in every process, other ones in every epoch."""

    def __init__(self) -> None:
        self.sampler, self.epoch = self, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return BATCHES

    def __iter__(self) -> Any:
        return iter(torch.randn(BATCHES, 8, 6, generator=torch.Generator().manual_seed(self.epoch)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, batch: Tensor, number: int) -> dict[str, Tensor]:
        return {"loss": (self.last(self.first(batch).relu()) - batch.roll(1, 1)).square().mean()}


class CountsOutsideOfTheState(Net):
    """A schedule in a buffer that PyTorch leaves out of the state dict."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()), persistent=False)

    def forward(self, batch: Tensor, number: int) -> dict[str, Tensor]:
        self.count += 1
        return {"loss": super().forward(batch, number)["loss"] / self.count}


class Tied(Net):
    def __init__(self) -> None:
        super().__init__()
        self.last.weight = self.first.weight


class CumulativeNorm(Net):
    """Its running mean is over all batches so far, which it counts."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(self.first, nn.BatchNorm1d(6, momentum=None))


class SpectralNorm(Net):
    """One power iteration for each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.first = spectral_norm(self.first)


class Frozen(Net):
    def __init__(self) -> None:
        super().__init__()
        self.first.requires_grad_(False)


class Watched(Hook):
    """States after each epoch, and the rate of every step."""

    def __init__(self) -> None:
        self.states: list[dict[str, Any]] = []
        self.rates: list[float] = []

    def before_step(self, loop: Loop) -> None:
        self.rates.append(loop.optimizer.param_groups[0]["lr"])

    def epoch_end(self, loop: Loop) -> None:
        self.states.append(copy.deepcopy(loop.state()))


def made(kind: Callable[[], nn.Module], optimizer: str = "AdamW") -> tuple[Loop, Watched]:
    module, watched = kind(), Watched()
    learnt = [weight for weight in module.parameters() if weight.requires_grad]
    more = {"SGD": {"momentum": 0.9}, "Adam": {"amsgrad": True}}.get(optimizer, {})
    made_of = getattr(torch.optim, optimizer)(learnt, lr=0.05, **more)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(made_of, EPOCHS * BATCHES)
    fabric = Fabric(accelerator="cpu", devices=1)
    how = {"move": lambda batch, device: batch, "epochs": EPOCHS, "accumulate": 1, "clip": None, "hooks": [watched]}
    return Loop(fabric, module, made_of, schedule, lambda _: Batches(), **how), watched


def equal(one: nn.Module, other: nn.Module) -> bool:
    theirs = dict([*other.named_parameters(), *other.named_buffers()])
    return all(torch.equal(value, theirs[name]) for name, value in [*one.named_parameters(), *one.named_buffers()])


@pytest.mark.parametrize(
    ("kind", "optimizer"),
    [
        (CountsOutsideOfTheState, "AdamW"),
        (Tied, "SGD"),
        (CumulativeNorm, "SGD"),
        (SpectralNorm, "Adam"),
        (Frozen, "AdamW"),
        (Net, "NAdam"),  # has a product of momenta in its state
    ],
)
def test_what_networks_and_optimisers_remember_goes_on(kind: Callable[[], nn.Module], optimizer: str) -> None:
    """Counters, estimates and products that were lost or started anew: a step in the loss where a run was resumed."""
    whole, seen = made(kind, optimizer)
    whole.run(None)
    for state in seen.states[:2]:
        resumed, watched = made(kind, optimizer)
        resumed.run(lambda state=state: copy.deepcopy(state))
        assert equal(resumed.module, whole.module)
        assert watched.rates == seen.rates[state["step"] :], "no rate of the schedule jumps or comes twice"


def test_a_finished_run_is_not_trained_further() -> None:
    """The last checkpoint was resumed, one more step was taken, and a checkpoint of another epoch written."""
    whole, seen = made(Net)
    whole.run(None)
    resumed, watched = made(Net)
    resumed.run(lambda: seen.states[-1])
    assert equal(resumed.module, whole.module) and not watched.states and not watched.rates


def test_layers_that_are_frozen_in_one_part_of_the_run_only_are_refused() -> None:
    """The optimiser's state went to other weights."""
    whole, seen = made(Frozen)
    whole.run(None)
    with pytest.raises(UserError, match="the checkpoint is of another optimiser"):
        made(Net)[0].run(lambda: seen.states[0])


class Dropping(nn.Module):
    """A network of one's own that draws random numbers in each step."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.drop = nn.Conv2d(1, 8, 3, 2), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.conv(x).relu().mean((2, 3)))


class Stop(Hook):
    def batch_end(self, loop: Loop, *_: object) -> None:
        if loop.step == 4:
            raise RuntimeError("stopped")


def test_a_run_with_dropout_goes_on_in_a_folder_that_was_moved(small_run, tmp_path, monkeypatch) -> None:
    """Other random numbers after a resume; checkpoints that hold the path of the machine where they were written."""
    run = {**small_run, "method": "byol", "name": "x"}
    unbroken = sslkit.pretrain({**run, "out": str(tmp_path / "unbroken")}, backbone=Dropping())
    with monkeypatch.context() as patch:
        make = pretrain.make_loop
        patch.setattr(pretrain, "make_loop", lambda *given: make(*given[:-1], [*given[-1], Stop()]))
        with pytest.raises(RuntimeError, match="stopped"):
            sslkit.pretrain(run, backbone=Dropping())
    (tmp_path / "zoo").rename(tmp_path / "elsewhere")
    torch.rand(7)
    entry = sslkit.pretrain({**run, "out": str(tmp_path / "elsewhere"), "resume": True}, backbone=Dropping())
    before, after = unbroken.state_dict(), entry.state_dict()
    assert entry.folder == tmp_path / "elsewhere" / "x" and all(
        torch.equal(before[name], after[name]) for name in before
    )
    assert str(tmp_path / "zoo") not in (entry.folder / "card.json").read_text()


def test_a_state_that_no_file_of_weights_holds_is_refused_at_once(small_run, tmp_path) -> None:
    """`get_extra_state` with a dictionary: the export failed when all epochs were done."""

    class Counting(Dropping):
        def get_extra_state(self) -> dict[str, int]:
            return {"calls": 1}

        def set_extra_state(self, state: dict[str, int]) -> None: ...

    with pytest.raises(UserError, match="Counting has _extra_state in its state, which is no tensor"):
        sslkit.pretrain(small_run, backbone=Counting())
    assert not (tmp_path / "zoo").exists()


def stopped(run: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run that ended in its second epoch, with two checkpoints."""
    with monkeypatch.context() as patch:
        make = pretrain.make_loop
        patch.setattr(pretrain, "make_loop", lambda *given: make(*given[:-1], [*given[-1], Stop()]))
        with pytest.raises(RuntimeError, match="stopped"):
            sslkit.pretrain(run)
    return Path(run["out"]) / run["name"]


def equal_runs(one: sslkit.ZooEntry, other: sslkit.ZooEntry) -> bool:
    before, after = one.state_dict(), other.state_dict()
    return before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


def edited_on_windows(folder: Path) -> None:
    """With a mark of the order of bytes, and two letters for the end of a line."""
    path = folder / "config.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))


def older_checkpoint_touched(folder: Path) -> None:
    """Copied in another order: the newest by its time was taken, which was the older one."""
    for name, seconds in (("last.ckpt", 1e9), ("previous.ckpt", 2e9)):
        os.utime(folder / "checkpoints" / name, (seconds, seconds))


def left_behind(folder: Path) -> None:
    """Half a checkpoint of a process that was killed while it wrote, and an empty file of a full disk."""
    (folder / "checkpoints" / "last.ckpt").rename(folder / "checkpoints" / "kept")
    (folder / "checkpoints" / "last.ckpt").touch()


def lease_of_a_dead_process(folder: Path) -> None:
    """A machine lost its power: what said who was at work there stayed."""
    about = {"machine": MACHINE, "host": "here", "pid": 2**22 + 1, "token": "t", "work": "trains in it", "began": 1.0}
    (folder / ".owner").write_text(json.dumps(about))


@pytest.mark.parametrize("change", [edited_on_windows, older_checkpoint_touched, left_behind, lease_of_a_dead_process])
def test_what_happens_to_a_folder_between_two_starts(
    change: Callable[[Path], None], small_run: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = {**small_run, "method": "byol", "name": "a [1] 50%", "save_seconds": 0}
    unbroken = sslkit.pretrain({**run, "out": str(tmp_path / "unbroken")})
    change(folder := stopped(run, monkeypatch))
    resumed = sslkit.pretrain({**run, "resume": True})
    assert resumed.folder == folder and equal_runs(unbroken, resumed)


def test_other_processes_that_decode_and_other_rows_of_the_log_are_the_same_run(
    small_run: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Augmentations that each worker drew by itself were others after a resume on a machine with fewer cores."""
    for name in "ab":
        write_jpegs(tmp_path / "photos" / name, 48, (20, 18))
    data = {"data": {"source": str(tmp_path / "photos")}, "image_size": 16, "batch_size": 32, "workers": 2}
    run = {**small_run, "method": "simclr", "name": "x", **data}
    run["save_seconds"] = 0
    unbroken = sslkit.pretrain({**run, "out": str(tmp_path / "unbroken")})
    stopped(run, monkeypatch)
    other = {**data, "workers": 0, "trainer": {**run["trainer"], "log_every": 3}}
    assert equal_runs(unbroken, sslkit.pretrain({**run, **other, "resume": True}))
