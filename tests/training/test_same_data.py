"""Processes that number other images than the first are refused; copies of the same files are not."""

import os
import shutil
from pathlib import Path

import pytest
import torch.distributed as dist
from forks import free_port, start_ranks
from photographs import write_jpegs

import sslkit
from sslkit.errors import UserError
from sslkit.training import same_data


def check_in_group(rank: int, port: int, sources: list[str], said: str | None) -> None:
    """One process: its own source, and the error that both must see."""
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=len(sources))
    images = sslkit.open_images(sources[rank], image_size=8)
    try:
        if said is None:
            same_data.check(images)
        else:
            with pytest.raises(UserError, match=said):
                same_data.check(images)
    finally:
        dist.destroy_process_group()


def write_tree(folder: Path) -> Path:
    for name in "ab":
        write_jpegs(folder / name, 3, (12, 9))
    return folder


def test_copies_agree_and_other_files_do_not(tmp_path: Path) -> None:
    here = write_tree(tmp_path / "here" / "photos")
    copied, fewer, renamed = (tmp_path / name / "photos" for name in ("copied", "fewer", "renamed"))
    for other in (copied, fewer, renamed):
        shutil.copytree(here, other)
    for file in copied.rglob("*.jpg"):
        os.utime(file, (1, 1))
    next(fewer.rglob("*.jpg")).unlink()
    first = sorted(renamed.rglob("*.jpg"))[0]
    first.rename(first.with_name("zz.jpg"))
    cases = {copied: None, fewer: "process 1 has 5 images, process 0 6; give", renamed: "6, with other names or labels"}
    for other, said in cases.items():
        start_ranks(check_in_group, free_port(), [str(here), str(other)], said)


def test_labels_and_pixels_count_too(tmp_path: Path) -> None:
    files = sslkit.open_images(write_tree(tmp_path / "photos"), image_size=8)
    before = same_data.fingerprint(files)
    files.labels = files.labels[::-1].copy()
    assert same_data.fingerprint(files) != before
    parts = [sslkit.open_images("digits").pixels[:5], sslkit.open_images("digits").pixels[5:10]]
    arrays = [sslkit.open_images("digits") for _ in parts]
    for images, pixels in zip(arrays, parts, strict=True):
        images.pixels, images.labels = pixels, images.labels[:5]
    assert same_data.fingerprint(arrays[0]) != same_data.fingerprint(arrays[1])


def test_one_process_reads_nothing(monkeypatch) -> None:
    monkeypatch.setattr(same_data, "fingerprint", lambda _: pytest.fail("it was read"))
    same_data.check(sslkit.open_images("digits"))
