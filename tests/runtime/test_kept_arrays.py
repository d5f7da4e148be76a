"""What DSA keeps in the cache: computed once, by several ranks in parts, whatever the group's time-out is."""

import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from forks import WORLD, free_port, set_timeout, start_ranks, started

import sslkit
from sslkit.data.items import IMAGE
from sslkit.errors import UserError
from sslkit.files.store import key_of
from sslkit.priors import _features
from sslkit.regularizers.dsa import DSA, scoring
from sslkit.runtime.kept_arrays import load_or_compute

TIMEOUT = 0.3  # seconds of the group's own barriers
ROWS, UNIT = 23, 4


class First:
    """The first rows of Fashion-MNIST."""

    decodes, item = False, IMAGE

    def __init__(self, count: int) -> None:
        self.images, self.count, self.name = sslkit.open_images("fashion_mnist"), count, "first"
        self.digest, self.channels = f"{self.images.digest} {count}", self.images.channels

    def __len__(self) -> int:
        return self.count

    def __getitems__(self, rows: list[int]) -> dict:
        return self.images.__getitems__(rows)


def counted(log: Path, pause: float, parts: Sequence[list[int]]) -> Iterator[np.ndarray]:
    """Blocks of the array whose rows are (i, i^2); each start is a line of the log."""
    time.sleep(pause)
    for rows in parts:
        with log.open("a") as file:
            file.write(f"{rows[0]}\n")
        values = np.array(rows, dtype=np.float32)
        yield np.stack([values, values**2], 1)


def join(rank: int, port: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD)
    set_timeout(TIMEOUT)


def whole() -> np.ndarray:
    values = np.arange(ROWS, dtype=np.float32)
    return np.stack([values, values**2], 1)


def in_parts(rank: int, port: int, folder: Path, own: bool) -> None:
    join(rank, port)
    cache = folder / str(rank) if own else folder
    pause = 3 * TIMEOUT if rank == 0 else 0.0
    found = load_or_compute(cache / "a.npy", ROWS, partial(counted, folder / f"log-{rank}", pause), what="a", unit=UNIT)
    assert isinstance(found, np.memmap) and np.array_equal(found, whole())
    once = load_or_compute(cache / "b.npy", ROWS, partial(counted, folder / f"once-{rank}", 0.0), what="b")
    assert np.array_equal(once, whole())
    dist.destroy_process_group()


def lines(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().split()] if log.exists() else []


def test_each_rank_computes_its_part_and_a_slow_one_is_waited_for(tmp_path: Path) -> None:
    start_ranks(in_parts, free_port(), tmp_path, False)
    assert [lines(tmp_path / f"log-{rank}") for rank in range(WORLD)] == [[0, 8, 16], [4, 12, 20]]
    assert [lines(tmp_path / f"once-{rank}") for rank in range(WORLD)] == [[0], []]
    assert {path.name for path in tmp_path.glob("*.npy")} == {"a.npy", "b.npy"}
    assert {path.suffix for path in tmp_path.glob(".*")} == {".lock"}


def test_ranks_that_see_different_disks_compute_all_for_themselves(tmp_path: Path) -> None:
    start_ranks(in_parts, free_port(), tmp_path, True)
    for rank in range(WORLD):
        assert lines(tmp_path / f"log-{rank}") == [0, 4, 8, 12, 16, 20] and lines(tmp_path / f"once-{rank}") == [0]


def failing(log: Path, rank: int, parts: Sequence[list[int]]) -> Iterator[np.ndarray]:
    for block in counted(log, 0.0, parts):
        if rank == 1 and block[0, 0] >= 12:
            time.sleep(3 * TIMEOUT)  # the other finishes its part meanwhile
            raise UserError("row 12 is damaged")
        yield block


def fails(rank: int, port: int, folder: Path) -> None:
    join(rank, port)
    try:
        load_or_compute(
            folder / "a.npy", ROWS, partial(failing, folder / f"log-{rank}", rank), what="the features", unit=UNIT
        )
    except UserError as error:
        print(error)


def test_a_rank_that_fails_ends_the_others_and_no_finished_part_is_lost(tmp_path: Path) -> None:
    port, logs = free_port(), [tmp_path / f"{rank}.txt" for rank in range(WORLD)]
    ranks = [started(log, fails, rank, port, tmp_path) for rank, log in enumerate(logs)]
    for process in ranks:
        process.join(60)
    assert not any(process.is_alive() for process in ranks)
    assert [log.read_text().splitlines() for log in logs] == [
        ["process 1 has stopped in the features: row 12 is damaged"],
        ["row 12 is damaged"],
    ]
    assert not (tmp_path / "a.npy").exists()
    parts = [set(np.load(file)["index"].tolist()) for file in (tmp_path / "a.npy.part").iterdir()]
    assert sorted(map(min, parts)) == [0, 4] and set.union(*parts) == {*range(12), *range(16, 20)}, "a file a rank"
    start_ranks(in_parts, free_port(), tmp_path, False)
    assert [lines(tmp_path / f"log-{rank}") for rank in range(WORLD)] == [[0, 8, 16, 12], [4, 12, 20]]


def test_one_process_computes_once(tmp_path: Path) -> None:
    for _ in range(2):
        found = load_or_compute(tmp_path / "a.npy", ROWS, partial(counted, tmp_path / "log", 0.0), what="a", unit=UNIT)
        assert np.array_equal(found, whole())
    assert lines(tmp_path / "log") == [0, 4, 8, 12, 16, 20]
    assert len({key_of(found, 1), key_of(found, 2), key_of(found + 1, 1), key_of(found[:22], 1)}) == 4


def test_a_cache_that_can_only_be_read_is_read(tmp_path: Path) -> None:
    load_or_compute(tmp_path / "a.npy", ROWS, partial(counted, tmp_path / "log", 0.0), what="a")
    for path in tmp_path.glob(".*"):
        path.unlink()
    found = load_or_compute(tmp_path / "a.npy", ROWS, partial(counted, tmp_path / "log", 0.0), what="a")
    assert np.array_equal(found, whole()) and not list(tmp_path.glob(".*"))  # it wrote nothing, not even a lock


def prepared(cache: Path, **options: object) -> DSA:
    torch.manual_seed(0)
    plugin = DSA(6, hidden=8, eta=4, **options)
    plugin.prepare(First(300), cache=cache)
    return plugin


def found_by(plugin: DSA) -> dict[str, torch.Tensor]:
    basis = {} if plugin.prior.name != "pca" else {"mean": plugin.prior.mean, "basis": plugin.prior.basis}
    return {"table": plugin.features.table.all(), "scores": plugin._scores, **basis}


def on_a_rank(rank: int, port: int, folder: Path) -> None:
    join(rank, port)
    score = scoring.connectivity_score
    calls: list[str] = []

    def slow(*arguments: object, **options: object) -> torch.Tensor:
        time.sleep(3 * TIMEOUT)
        calls.append("score")
        return score(*arguments, **options)

    scoring.connectivity_score = slow
    kept = {}
    for name, options in OPTIONS.items():
        kept |= {f"{name} {key}": value for key, value in found_by(prepared(folder / "cache", **options)).items()}
    torch.save({"calls": calls, "state": torch.random.get_rng_state(), **kept}, folder / f"{rank}.pt")
    dist.destroy_process_group()


OPTIONS = {"pca": {"prior": "pca", "mode": "view", "neighbours": "dataset"}, "hog": {"prior": "hog", "prior_size": 16}}


def test_two_processes_prepare_what_one_does(tmp_path: Path) -> None:
    start_ranks(on_a_rank, free_port(), tmp_path)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(WORLD))
    assert first.pop("calls") == ["score", "score"] and second.pop("calls") == []
    for name, options in OPTIONS.items():
        for key, value in found_by(prepared(tmp_path / "alone", **options)).items():
            assert torch.equal(first[f"{name} {key}"], value) and torch.equal(second[f"{name} {key}"], value)
    assert torch.equal(first["state"], second["state"])


def test_a_second_run_reads_fit_features_and_scores(tmp_path: Path, monkeypatch) -> None:
    first = [found_by(prepared(tmp_path, **options)) for options in OPTIONS.values()]
    plain = [found_by(prepared(None, **options)) for options in OPTIONS.values()]
    with monkeypatch.context() as patched:
        for place in (
            (_features, "batches_in_order"),
            (_features, "batches_of_parts"),
            (scoring, "connectivity_score"),
        ):
            patched.setattr(*place, None)
        again = [found_by(prepared(tmp_path, **options)) for options in OPTIONS.values()]
    for one, other, alone in zip(first, again, plain, strict=True):
        assert one.keys() == other.keys() == alone.keys()
        assert all(torch.equal(one[key], other[key]) and torch.equal(one[key], alone[key]) for key in one)
    names = [path.name.partition("-")[0] for path in tmp_path.glob("*.npy")]
    assert sorted(names) == ["fit", "prior", "prior", "scores", "scores"]
    assert not torch.equal(prepared(tmp_path, **OPTIONS["hog"], mu=2)._scores, first[1]["scores"])


def test_priors_read_the_clean_images_with_workers(tmp_path: Path, monkeypatch) -> None:
    from photographs import write_jpegs

    from sslkit.data import loader

    monkeypatch.setattr(loader, "FEWEST", 5)
    images = sslkit.open_images(write_jpegs(tmp_path / "images"), image_size=32, fit="crop")
    for prior in (DSA(6, prior="hog").prior, DSA(6, prior="pca").prior):
        tables = []
        for workers in (0, 2):
            images.workers = workers
            if prior.needs_fit:
                _features.fit(prior, images, cache=None)
            tables.append(_features.tabulate(prior, images, cache=None, device=torch.device("cpu")).all())
        assert torch.equal(*tables)
