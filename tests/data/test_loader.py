"""The order of the images, over epochs and ranks, and the loader that is timed."""

import multiprocessing
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from sslkit.data import loader as loader_module
from sslkit.data.images import Images
from sslkit.data.loader import EpochBatches, ResumableLoader, collate, make_loader, order_of, plain_errors
from sslkit.data.sources.named import open_images
from sslkit.errors import UserError


@pytest.fixture
def folder(tmp_path) -> Path:
    for i in range(12):
        Image.new("L", (4, 4), i).save(tmp_path / f"{i:02d}.png")
    return tmp_path


def epochs(batches: EpochBatches, count: int) -> list[list[list[int]]]:
    found = []
    for epoch in range(count):
        batches.set_epoch(epoch)
        found.append(list(batches))
    return found


def test_each_row_comes_once_an_epoch() -> None:
    for epoch in epochs(EpochBatches(20, 5, seed=0), 2):
        assert sorted(row for batch in epoch for row in batch) == list(range(20)) and {
            len(batch) for batch in epoch
        } == {5}
    assert sorted(order_of(7, 0, 0).tolist()) == list(range(7))


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    torch.manual_seed(1)
    first = epochs(EpochBatches(50, 10, seed=3), 3)
    torch.manual_seed(2)
    again = EpochBatches(50, 10, seed=3)
    again.set_epoch(2)
    assert list(again) == first[2] == list(again)  # straight to an epoch, and twice
    orders = [*first, *epochs(EpochBatches(50, 10, seed=4), 3)]
    assert len({str(order) for order in orders}) == 6


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_the_ranks_together_are_one(world_size: int, drop_last: bool) -> None:
    whole = epochs(EpochBatches(46, 8, 5, drop_last=drop_last), 2)
    ranks = [epochs(EpochBatches(46, 8, 5, rank, world_size, drop_last), 2) for rank in range(world_size)]
    for epoch, batches in enumerate(whole):
        for step, batch in enumerate(batches):
            parts = [ranks[rank][epoch][step] for rank in range(world_size)]
            assert len({len(part) for part in parts}) == 1
            joined = [row for rows in zip(*parts, strict=True) for row in rows]
            assert joined == batch[: len(joined)] and len(batch) - len(joined) < world_size
            assert len(joined) == len(batch) or step == len(batches) - 1


def test_a_remainder_that_the_ranks_cannot_share_is_left_out() -> None:
    assert len(EpochBatches(42, 8, 0, rank=0, world_size=4, drop_last=False)) == 5
    assert len(EpochBatches(44, 8, 0, rank=3, world_size=4, drop_last=False)) == 6


@pytest.mark.parametrize(("drop_last", "sizes"), [(True, [4, 4]), (False, [4, 4, 2])])
def test_the_last_batch(drop_last: bool, sizes: list[int]) -> None:
    batches = EpochBatches(10, 4, 0, drop_last=drop_last)
    assert [len(batch) for batch in batches] == sizes and len(batches) == len(sizes)


def test_batches_that_cannot_be() -> None:
    with pytest.raises(UserError, match=r"batch_size=9 must be a multiple of the number of processes, 2"):
        EpochBatches(100, 9, 0, 0, 2)
    with pytest.raises(UserError, match=r"batch_size=256 is more than the 100 images: lower batch_size"):
        EpochBatches(100, 256, 0)
    with pytest.raises(UserError, match=r"batch_size=0"):
        EpochBatches(100, 0, 0)
    assert len(EpochBatches(100, 256, 0, drop_last=False)) == 1


def test_lightning_reaches_the_sampler() -> None:
    from lightning_fabric.utilities.data import _set_sampler_epoch

    timed = make_loader(open_images("digits"), batch_size=64, seed=0)
    orders = []
    for epoch in (0, 1, 0):
        _set_sampler_epoch(timed, epoch)
        orders.append(torch.cat([batch["index"] for batch in timed]))
    assert torch.equal(orders[0], orders[2]) and not torch.equal(orders[0], orders[1])


def test_lightning_trains_on_it_and_shuffles_each_epoch() -> None:
    import pytorch_lightning as pl

    class Seen(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(()))
            self.order: list[list[int]] = []

        def training_step(self, batch: dict, step: int) -> torch.Tensor:
            self.order.append(batch["index"].tolist())
            return self.weight * batch["images"].float().mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    model = Seen()
    trainer = pl.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    trainer.fit(model, make_loader(open_images("digits", split="test"), batch_size=100, seed=7))
    expected = epochs(EpochBatches(359, 100, 7), 2)
    assert model.order == [*expected[0], *expected[1]]


def test_making_a_loader_and_iterating_leaves_the_global_generator_alone(folder) -> None:
    timed = make_loader(open_images(folder), batch_size=4, seed=0, workers=0)
    state = torch.get_rng_state()
    list(timed)
    assert torch.equal(torch.get_rng_state(), state)


def test_workers_and_none_give_the_same_batches(folder) -> None:
    images = open_images(folder, image_size=4)
    with_workers = make_loader(images, batch_size=4, seed=1, workers=2)
    without = make_loader(images, batch_size=4, seed=1, workers=0)
    for epoch in range(2):  # the workers persist
        with_workers.sampler.set_epoch(epoch)
        without.sampler.set_epoch(epoch)
        pairs = list(zip(with_workers, without, strict=True))
        assert len(pairs) == 3
        for ours, theirs in pairs:
            assert torch.equal(ours["images"], theirs["images"]) and torch.equal(ours["index"], theirs["index"])


@pytest.mark.parametrize("workers", [0, 1])
def test_a_workers_error_is_still_one_line(folder, workers: int) -> None:
    images = open_images(folder, on_error="raise")
    (folder / "05.png").write_bytes(b"broken")
    with pytest.raises(UserError) as caught:
        list(make_loader(images, batch_size=12, seed=0, workers=workers))
    assert str(caught.value).startswith(f"cannot read {folder / '05.png'}") and "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_automatic_workers(folder, monkeypatch) -> None:
    monkeypatch.setattr(loader_module, "cores", lambda: 16)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    files, arrays = open_images(folder), open_images("digits")

    def count(images: Images, world_size: int = 1, workers: int | str = "auto", device: str = "cpu") -> int:
        given = {"workers": workers, "world_size": world_size, "device": device}
        return make_loader(images, batch_size=world_size, seed=0, **given).loader.num_workers

    assert count(arrays) == 0 and count(files) == 8 and count(files, world_size=3) == 4
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)  # on two machines
    assert count(files, device="cuda") == 15 and count(files, world_size=4, device="cuda") == 7
    assert count(files, world_size=4) == 3, "on the CPU all ranks are here, whatever GPUs there are"
    monkeypatch.setattr(loader_module, "cores", lambda: 128)
    assert count(files, device="cuda") == 32 and count(files) == 8
    monkeypatch.setattr(loader_module, "cores", lambda: 2)
    assert count(files) == 1 and count(files, workers=0) == 0 and count(arrays, workers=3) == 3
    with pytest.raises(UserError, match=r"workers=many must be auto or a number"):
        count(files, workers="many")


def test_it_wraps_any_loader_with_batches() -> None:
    images = open_images("digits")
    batches = EpochBatches(len(images), 32, 0)
    timed = ResumableLoader(DataLoader(images, batch_sampler=batches, collate_fn=collate))
    assert timed.sampler is batches and timed.batch_sampler is batches and timed.dataset is images


class Damaged(Dataset):
    """One image, which cannot be read."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, row: int) -> int:
        raise UserError("cannot read flower.png: it breaks off")


@pytest.mark.slow
def test_what_a_worker_says_comes_without_its_traceback() -> None:
    loader = DataLoader(Damaged(), num_workers=1)
    with pytest.raises(UserError, match="Traceback"):
        list(loader)
    with pytest.raises(UserError) as caught:
        list(plain_errors(loader))
    assert str(caught.value) == "cannot read flower.png: it breaks off"


def test_a_data_set_that_cannot_be_sent_to_workers_is_one_line() -> None:
    loader = DataLoader(Damaged(), num_workers=1, collate_fn=lambda rows: rows, multiprocessing_context="spawn")
    with pytest.raises(UserError, match=r"worker processes cannot be sent this data set \(.*lambda.*workers=0"):
        list(plain_errors(loader))


def test_a_daemon_starts_no_workers(monkeypatch) -> None:
    images = open_images("digits")
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)
    assert (
        loader_module.workers_for(images, "auto", 1, device="cpu")
        == 0
        == loader_module.workers_for(images, 0, 1, device="cpu")
    )
    with pytest.raises(UserError, match=r"workers=2: this process is a daemon, which can start no workers"):
        loader_module.workers_for(images, 2, 1, device="cpu")


def test_a_temporary_folder_without_room_for_sockets_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """multiprocessing's feeder only prints its error, and the loader would wait for ever."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("t" * 100)))
    with pytest.raises(UserError, match=r"too long a name for the sockets .*: set TMPDIR to a shorter one"):
        next(plain_errors(DataLoader([0, 1], num_workers=1)))
    assert list(plain_errors(DataLoader([0, 1], num_workers=0))) == [0, 1]
