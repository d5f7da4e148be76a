"""Files that are exchanged, rewritten, restored or copied, with every combination of equal size and time.

What the cache remembers gives the images, the labels and the identity that reading everything anew gives.
"""

import csv
import io
import os
import shutil
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from photographs import photographs

from sslkit.data.sources import tar_index
from sslkit.data.sources.named import open_images, splits

SIDE = 16


def bmp(number: int, width: int = SIDE) -> bytes:
    """A piece of a photograph; all of one width have one size."""
    content = io.BytesIO()
    left, top = 37 * number % 500, 23 * number % 300
    photographs()[number % 2].crop((left, top, left + width, top + SIDE)).save(content, "bmp")
    return content.getvalue()


@dataclass
class Case:
    """A source, and two files of which the first belongs to it; exchanging them changes images or labels."""

    source: str
    first: Path
    second: Path


def folder(root: Path, spare: Path, equal: bool) -> Case:
    for number in range(8):
        path = root / "ab"[number % 2] / f"{number}.bmp"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bmp(number, SIDE if equal or number != 1 else 2 * SIDE))
    return Case(str(root), root / "a" / "0.bmp", root / "b" / "1.bmp")


def files(root: Path, spare: Path, equal: bool) -> Case:
    case = folder(root, spare, equal)
    return Case(f"{root}/**/*.bmp", case.first, case.second)


def table(root: Path, spare: Path, equal: bool) -> Case:
    """A table of labels, beside another one of the same size."""
    folder(root, spare, equal)
    for path, names in ((root / "table.csv", "xy"), (spare, "yx" if equal else ("yy", "x"))):
        with path.open("w", newline="") as opened:
            rows = [[f"{'ab'[number % 2]}/{number}.bmp", names[number % 2]] for number in range(8)]
            csv.writer(opened).writerows([["path", "label"], *rows])
    return Case(str(root / "table.csv"), root / "table.csv", spare)


def tar(path: Path, label: int, members: int) -> None:
    with tarfile.open(path, "w") as opened:
        for number in range(members):
            for ending, content in (("bmp", bmp(number + 8 * label)), ("cls", str((label + number) % 3).encode())):
                about = tarfile.TarInfo(f"{number:03}.{ending}")
                about.size = len(content)
                opened.addfile(about, io.BytesIO(content))


def shards(root: Path, spare: Path, equal: bool) -> Case:
    tar(root / "0.tar", 0, 4)
    tar(root / "1.tar", 1, 4 if equal else 24)
    return Case(f"shards:{root}", root / "0.tar", root / "1.tar")


def one_shard(root: Path, spare: Path, equal: bool) -> Case:
    tar(root / "0.tar", 0, 4)
    tar(spare, 1, 4 if equal else 24)
    return Case(f"shards:{root}", root / "0.tar", spare)


def arrays(root: Path, spare: Path, equal: bool) -> Case:
    rng = np.random.default_rng(0)
    for path, count in ((root / "set.npz", 8), (spare, 8 if equal else 9)):
        with path.open("wb") as opened:
            pixels, labels = rng.integers(0, 256, (count, 8, 8), np.uint8), rng.permutation(np.arange(count) % 2)
            np.savez(opened, x_train=pixels, y_train=labels)
    return Case(str(root / "set.npz"), root / "set.npz", spare)


def hf_table(seed: int, rows: int):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])})
    images = [{"bytes": bmp(number + 8 * seed), "path": None} for number in range(rows)]
    return datasets.Dataset.from_dict(
        {"image": images, "label": [(number + seed) % 2 for number in range(rows)]}, features=features
    )


def parquet(root: Path, spare: Path, equal: bool) -> Case:
    pq = pytest.importorskip("pyarrow.parquet")
    for path, seed, rows in ((root / "train.parquet", 0, 8), (spare, 1, 8 if equal else 9)):
        written = hf_table(seed, rows)
        whole = written.data.table.cast(written.features.arrow_schema)
        pq.write_table(whole, path, compression="none", use_dictionary=False)
    return Case(f"hf:{root}", root / "train.parquet", spare)


def arrow(root: Path, spare: Path, equal: bool) -> Case:
    for path, seed, rows in ((root, 0, 8), (root.parent / "other", 1, 8 if equal else 9)):
        hf_table(seed, rows).save_to_disk(path)
    name = "data-00000-of-00001.arrow"
    return Case(f"hf:{root}", root / name, root.parent / "other" / name)


def hf_images(root: Path, spare: Path, equal: bool) -> Case:
    pytest.importorskip("datasets")
    case = folder(root / "train", spare, equal) if (root / "train").mkdir() is None else None
    return Case(f"hf:{root}", case.first, case.second)


def hf_metadata(root: Path, spare: Path, equal: bool) -> Case:
    """A table beside the images, of which the library keeps what it read."""
    pytest.importorskip("datasets")
    for number in range(8):
        (root / f"{number}.bmp").write_bytes(bmp(number))
    for path, names in ((root / "metadata.csv", "xy"), (spare, "yx" if equal else ("yy", "x"))):
        rows = [f"{number}.bmp,{names[number % 2]}" for number in range(8)]
        path.write_text("\n".join(["file_name,label", *rows]))
    return Case(f"hf:{root}", root / "metadata.csv", spare)


def of_torchvision(root: Path, spare: Path, equal: bool) -> Case:
    (root / "eurosat" / "2750").mkdir(parents=True)
    case = folder(root / "eurosat" / "2750", spare, equal)
    return Case(f"torchvision:EuroSAT:{root}", case.first, case.second)


def videos(root: Path, spare: Path, equal: bool) -> Case:
    from films import write_film

    paths = [root / name / "1.avi" for name in "ab"]
    for path, frames in zip(paths, (20, 25), strict=True):
        path.parent.mkdir()
        write_film(path, frames)
    if equal:
        size = max(path.stat().st_size for path in paths)
        for path in paths:
            path.write_bytes(path.read_bytes().ljust(size, b"\0"))
    return Case(f"video:{root}", *paths)


SOURCES = (
    folder, files, table, shards, one_shard, arrays, parquet, arrow, hf_images, hf_metadata, of_torchvision, videos,
)  # fmt: skip


@dataclass
class Seen:
    """What a source shows."""

    digest: str
    labels: list[int]
    images: np.ndarray

    def __eq__(self, other: object) -> bool:
        same = self.digest == other.digest and self.labels == other.labels
        return same and np.array_equal(self.images, other.images)


def seen(source: str, cache: Path | None) -> Seen:
    size = {} if source.startswith("video:") else {"image_size": 8}
    images = open_images(source, split=splits(source, cache)[0], cache=cache, **size)
    batch = images.__getitems__(list(range(len(images))))
    return Seen(images.digest, batch["label"].tolist(), np.asarray(batch["images"]))


def exchange(first: Path, second: Path) -> None:
    """As `mv` does: the files keep their times."""
    between = first.with_name("between")
    first.rename(between)
    second.rename(first)
    between.rename(second)


def rewrite(first: Path, second: Path) -> None:
    """The content of the second in the first, whose time is put back; the first is kept to be restored."""
    about, kept = first.stat(), first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(kept)
    os.utime(first, ns=(about.st_atime_ns, about.st_mtime_ns))


@pytest.mark.parametrize("change", [exchange, rewrite])
@pytest.mark.parametrize(
    ("equal_size", "equal_time"),
    [
        (True, True),
        *(pytest.param(*equal, marks=pytest.mark.slow) for equal in ((True, False), (False, True), (False,) * 2)),
    ],
)
@pytest.mark.parametrize("write", SOURCES)
def test_changed_files_are_read_anew_and_restored_ones_are_the_old_ones(
    write: Callable[[Path, Path, bool], Case], equal_size: bool, equal_time: bool, change: Callable, tmp_path: Path
) -> None:
    root, cache = tmp_path / "one" / "set", tmp_path / "cache"
    root.mkdir(parents=True)
    case = write(root, tmp_path / "one" / "spare", equal_size)
    assert (case.first.stat().st_size == case.second.stat().st_size) == equal_size
    for number, path in enumerate((case.first, case.second)):
        os.utime(path, ns=(10**18, 10**18 + (0 if equal_time else number)))
    before = seen(case.source, cache)
    change(case.first, case.second)
    changed = seen(case.source, cache)
    assert changed == seen(case.source, None) and changed.digest != before.digest
    change(case.first, case.second)
    assert seen(case.source, cache) == before


@pytest.mark.parametrize("copy", [shutil.copyfile, shutil.copy2])
@pytest.mark.parametrize("write", SOURCES)
def test_a_copy_with_or_without_its_times_is_the_same(write: Callable, copy: Callable, tmp_path: Path) -> None:
    root, to = tmp_path / "one" / "set", tmp_path / "two" / "set"
    root.mkdir(parents=True)
    case = write(root, tmp_path / "spare", True)
    before = seen(case.source, tmp_path / "cache")
    shutil.copytree(root, to, copy_function=copy)
    assert seen(case.source.replace(str(root), str(to)), tmp_path / "cache") == before
    for path in root.rglob("*"):
        path.touch()
    assert seen(case.source, tmp_path / "cache") == before


OPENED: list[str] | None = None


def _hook(event: str, given: tuple) -> None:
    if event == "open" and OPENED is not None and isinstance(given[0], (str, bytes)):
        OPENED.append(os.fsdecode(given[0]))


@contextmanager
def opened_files() -> Iterator[list[str]]:
    """The files that Python opens, each time."""
    global OPENED
    if not hasattr(sys, "_hook_of_test_changed_files"):
        sys.addaudithook(_hook)
        sys._hook_of_test_changed_files = True
    OPENED = []
    try:
        yield OPENED
    finally:
        OPENED = None


@pytest.mark.parametrize("write", SOURCES)
def test_the_second_time_no_file_is_read_for_its_identity(write: Callable, tmp_path: Path, monkeypatch) -> None:
    root, cache = tmp_path / "set", tmp_path / "cache"
    root.mkdir()
    case = write(root, tmp_path / "spare", True)
    size = {} if case.source.startswith("video:") else {"image_size": 8}
    first = open_images(case.source, split=splits(case.source, cache)[0], cache=cache, **size)
    assert first.digest
    monkeypatch.setattr(tar_index, "scan", lambda *_: pytest.fail("a shard was read again"))
    images = open_images(case.source, split=splits(case.source, cache)[0], cache=cache, **size)
    with opened_files() as opened:
        assert images.digest == first.digest and images.listing == first.listing
    assert not [path for path in opened if path.startswith(str(root))]
    assert {path.split(os.sep)[len(tmp_path.parts)] for path in map(str, tmp_path.rglob("*"))} <= {
        "set", "spare", "cache", "other",
    }  # fmt: skip


def test_shards_behind_a_url_are_known_by_their_tag_or_else_by_content(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    source, cache = "shards:memory://changed/0.tar", tmp_path / "cache"

    def put(label: int) -> None:
        tar(tmp_path / "0.tar", label, 4)
        with fsspec.open("memory://changed/0.tar", "wb") as opened:
            opened.write((tmp_path / "0.tar").read_bytes())

    put(0)
    before = seen(source, cache)
    put(0)
    assert seen(source, cache) == before, "another time, and the same content"
    put(1)
    assert seen(source, cache) == seen(source, None) != before
