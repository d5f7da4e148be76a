"""Files of the same size with other pixels are told by the digests of their manifest, as soon as they are known."""

import os
import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from manifests import look, opened, rewrite, write_folder
from PIL import Image

import evaluation
import sslkit
from sslkit.data import same_data
from sslkit.errors import UserError


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """Of twelve pictures that all have the same size in bytes."""
    folder = write_folder(tmp_path / "set")
    rng = np.random.default_rng(1)
    for path in sorted(folder.rglob("*.png")):
        path.unlink()
        Image.fromarray(rng.integers(0, 255, (16, 16, 3), np.uint8)).save(path.with_suffix(".bmp"))
    look(folder)
    return tmp_path / "manifest.csv"


def pictures(manifest: Path) -> list[Path]:
    return sorted((manifest.parent / "set" / "train").rglob("*.bmp"))


def rewritten(manifest: Path) -> None:
    for path in pictures(manifest)[:4]:
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def with_the_old_time(manifest: Path) -> None:
    path = pictures(manifest)[0]
    stat = path.stat()
    rewritten(manifest)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def exchanged(manifest: Path) -> None:
    """The usual repair of two wrong labels."""
    first, *_, last = pictures(manifest)
    first.rename(first.with_name("other"))
    last.rename(first)
    first.with_name("other").rename(last)


CHANGES = [(rewritten, "4 of 8 files have"), (with_the_old_time, "4 of 8 files have"), (exchanged, "2 of 8 files have")]


@pytest.mark.parametrize(("change", "message"), CHANGES)
@pytest.mark.parametrize("is_known", [False, True])
def test_other_content_is_told_when_it_is_read_and_from_then_on_when_it_is_opened(
    manifest: Path, change: Callable[[Path], None], message: str, is_known: bool
) -> None:
    cache = manifest.parent / "store"
    if is_known:
        assert opened(manifest, cache=cache).digest
    change(manifest)
    name = re.escape(pictures(manifest)[0].relative_to(manifest.parent / "set").as_posix())
    told = rf"manifest.csv: {message} another content than when it was written: .*{name}.*Write it anew, python "
    images = opened(manifest, cache=cache)
    with pytest.raises(UserError, match=told + r"recipes/look.py .*data=.*set.*, or remove its column digest"):
        _ = images.digest
    with pytest.raises(UserError, match=told):
        opened(manifest, cache=cache)


def test_only_the_first_three_are_named(manifest: Path) -> None:
    rewritten(manifest)
    with pytest.raises(UserError, match=r"written: [^,]*, [^,]*, [^,]* and 1 more\. Write"):
        _ = opened(manifest).digest


@pytest.mark.parametrize("rows", ["cells", "column"])
def test_nothing_is_compared_without_digests(manifest: Path, rows: str) -> None:
    changed = {path.name for path in pictures(manifest)[:4]}
    rewritten(manifest)

    def change(table: list[dict[str, str]]) -> None:
        for row in table:
            if rows == "column":
                del row["digest"]
            elif Path(row["path"]).name in changed:
                row["digest"] = ""

    rewrite(manifest, change)
    assert opened(manifest).digest


@pytest.mark.parametrize("split_is_a_pattern", [False, True])
def test_the_same_files_under_another_root(manifest: Path, tmp_path: Path, split_is_a_pattern: bool) -> None:
    """Relative paths move along with the folder; a part, and columns by patterns, keep what is expected."""
    moved = tmp_path / "elsewhere" / "deep"
    shutil.copytree(manifest.parent / "set", moved / "set")
    shutil.copy(manifest, moved)
    columns = {"columns": {"split": "(train|test)/", "group": "(p[0-9])_"}} if split_is_a_pattern else {}
    assert opened(moved / "manifest.csv", **columns).digest
    assert opened(moved / "manifest.csv").digest == opened(manifest).digest
    exchanged(moved / "manifest.csv")
    images = opened(moved / "manifest.csv", **columns)
    with pytest.raises(UserError, match="2 of 8 files have another content"):
        _ = images.digest
    assert images.part(np.arange(1, 7), "middle").digest, "the first and the last are the exchanged ones"


def test_every_command_tells_it(manifest: Path, tmp_path: Path) -> None:
    """Extraction by its key, a training by the thread that reads the content, and look."""
    exchanged(manifest)
    told = "2 of .* files have another content"
    model = sslkit.load("random:narrow_resnet", image_size=16)
    with pytest.raises(UserError, match=told):
        evaluation.extract(model, str(manifest), split="train", cache=tmp_path / "store", progress=False)
    content = same_data.Content(opened(manifest), read=True)
    content._reader.join()
    with pytest.raises(UserError, match=told):
        content.known()
    with pytest.raises(UserError, match=told):
        look(manifest, out=str(tmp_path / "again.csv"))


def test_a_training_ends_in_the_line(manifest: Path, tmp_path: Path) -> None:
    exchanged(manifest)
    settings = {"image_size": 16, "batch_size": 4, "epochs": 1, "eval.k": 2, "progress": False, "eval.tsne": 0}
    with pytest.raises(UserError, match="2 of 8 files have another content"):
        sslkit.pretrain("simclr", data=str(manifest), out=str(tmp_path / "zoo"), cache=str(tmp_path / "c"), **settings)
    assert threading.active_count() < 50


@pytest.mark.parametrize("cell", ["1.23E+15", "0123456789abcdef", "sha256:0123", "sha256:0123456789abcdeg"])
def test_a_cell_that_is_no_digest(manifest: Path, cell: str) -> None:
    rewrite(manifest, lambda rows: rows[1].update(digest=cell))
    with pytest.raises(UserError, match=re.escape(f"line 14: {cell!r} in the column 'digest' is no sha256: with 16")):
        opened(manifest)
