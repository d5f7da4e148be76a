"""Data is known by its content: copies are the same, one changed byte is not; each file is read for it once."""

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from detectors import narrow, schedule
from photographs import photographs, write_jpegs

import evaluation
from evaluation.tasks.detection.datasets.sources import open_boxes
from evaluation.tasks.detection.training import Training
from evaluation.tasks.detection.trials import Bench
from sslkit.data import file_contents
from sslkit.data.file_contents import FileContents
from sslkit.data.path_list import PathList
from sslkit.data.sources.named import open_images
from sslkit.data.sources.shard_writer import write_shards


def folder(root: Path) -> str:
    for name in ("cats", "dogs"):
        write_jpegs(root / name, 4, (24, 20))
    return str(root)


def shards(root: Path) -> str:
    write_shards(Path(folder(root.parent / "files")), root)
    return f"shards:{root}"


def tables(root: Path) -> str:
    datasets = pytest.importorskip("datasets")
    cut = [photographs()[0].crop((k, 0, k + 24, 20)) for k in range(6)]
    datasets.Dataset.from_dict({"image": cut}, datasets.Features({"image": datasets.Image()})).save_to_disk(root)
    return f"hf:{root}"


def of_torchvision(root: Path) -> str:
    for name in ("Forest", "River"):
        write_jpegs(root / "eurosat" / "2750" / name, 3, (16, 16))
    return f"torchvision:EuroSAT:{root}"


def videos(root: Path) -> str:
    from films import write_film

    write_film(root / "a.avi", 20)
    write_film(root / "b.avi", 20)
    return f"video:{root}"


def digest(source: str, cache: Path | None = None) -> str:
    return open_images(source, image_size=8, cache=cache).digest


def copied(source: str, root: Path, to: Path) -> str:
    """The source in a copy of its folder, whose files have other times."""
    shutil.copytree(root, to, copy_function=shutil.copyfile)
    for path in to.rglob("*"):
        os.utime(path, (10**9, 10**9))
    return source.replace(str(root), str(to))


def change_a_byte(root: Path) -> None:
    """In an image or a video, the largest file there is; it keeps its size and time."""
    path = max((path for path in root.rglob("*") if path.is_file()), key=lambda path: (path.stat().st_size, path))
    kept, content = path.stat(), bytearray(path.read_bytes())
    begins = max(content.find(start) for start in (b"\xff\xd8\xff", b"\x89PNG"))  # in a tar or an Arrow file
    content[len(content) // 2 if begins < 0 else begins + 200] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(kept.st_atime_ns, kept.st_mtime_ns))


@pytest.mark.parametrize("write", [folder, shards, tables, of_torchvision, videos])
def test_a_copy_is_the_same_data_and_one_byte_more_is_not(write: Callable[[Path], str], tmp_path: Path) -> None:
    root = tmp_path / "one" / "set"
    root.mkdir(parents=True)
    source = write(root)
    known = digest(source, tmp_path / "cache")
    other = copied(source, root, tmp_path / "two" / "set")
    assert digest(other) == digest(other, tmp_path / "cache") == known
    with_other_options = (open_images(one, image_size=side, cache=None) for one, side in ((source, 8), (other, 16)))
    assert len({images.content_digest for images in with_other_options}) == 1
    listing = open_images(other, image_size=8, cache=None).listing
    assert listing == open_images(source, image_size=8, cache=None).listing
    change_a_byte(tmp_path / "two" / "set")
    assert digest(other) != known and digest(other, tmp_path / "cache") != known
    if not source.startswith("hf:"):  # whose rows have no names
        assert open_images(other, image_size=8, cache=None).listing == listing


def test_a_copy_of_a_detection_set_is_the_same(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_jpegs(tmp_path / "one" / "set", 1, (32, 24))
    (tmp_path / "one" / "set" / "train.json").write_text(
        '{"images": [{"id": 1, "file_name": "00.jpg", "width": 32, "height": 24}],'
        '"categories": [{"id": 1, "name": "a"}],'
        '"annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [2, 2, 9, 9], "area": 81, "iscrowd": 0}]}'
    )
    copied("", tmp_path / "one", tmp_path / "two")
    first, second = (open_boxes(f"coco:{tmp_path / name / 'set'}", "train") for name in ("one", "two"))
    training = Training(schedule(), "retinanet", False, 1, "float32", 0)
    keys = [Bench("detection", narrow(), one, one, None).key(training) for one in (first, second)]
    assert first.digest == second.digest and keys[0] == keys[1]
    change_a_byte(tmp_path / "two")
    assert open_boxes(f"coco:{tmp_path / 'two' / 'set'}", "train").digest != first.digest


def test_a_copy_of_a_labelled_folder_gives_the_keys_of_its_records(tmp_path: Path) -> None:
    for split in ("train", "test"):
        folder(tmp_path / "one" / "set" / split)
    copied("", tmp_path / "one", tmp_path / "two")
    one, two = (evaluation.open_split(str(tmp_path / name / "set"), "train") for name in ("one", "two"))
    assert one.digest == two.digest


def contents(root: Path, cache: Path | None) -> str:
    files = FileContents(root, PathList(sorted(path.name for path in root.iterdir())), cache)
    digest = hashlib.sha256()
    files.update_content(digest)
    return digest.hexdigest()


def test_files_are_read_once_and_again_when_they_change(tmp_path: Path, monkeypatch) -> None:
    root = write_jpegs(tmp_path / "images", 5)
    read, real = [], file_contents._digest
    monkeypatch.setattr(file_contents, "_digest", lambda path: read.append(path) or real(path))
    first = contents(root, tmp_path / "cache")
    assert len(read) == 5 and contents(root, tmp_path / "cache") == first and len(read) == 5
    os.utime(root / "03.jpg", (1, 1))
    assert contents(root, tmp_path / "cache") == first and len(read) == 6
    (root / "04.jpg").write_bytes(b"more")
    assert contents(root, tmp_path / "cache") != first and len(read) == 7
    (kept,) = (tmp_path / "cache").glob("contents-*.npz")
    content = bytearray(kept.read_bytes())
    content[len(content) // 2] ^= 1
    kept.write_bytes(content)
    again = contents(root, tmp_path / "cache")
    assert len(read) == 12 and again == contents(root, None)


def test_what_was_read_before_a_stop_is_kept(tmp_path: Path, monkeypatch) -> None:
    root, read, real = write_jpegs(tmp_path / "images", 6), [], file_contents._digest
    monkeypatch.setattr(file_contents, "_SAVE_EVERY", -1)

    def stops(path: bytes) -> bytes:
        if len(read) == 4:
            raise KeyboardInterrupt
        read.append(path)
        return real(path)

    monkeypatch.setattr(file_contents, "_digest", stops)
    with pytest.raises(KeyboardInterrupt):
        contents(root, tmp_path / "cache")
    monkeypatch.setattr(file_contents, "_digest", lambda path: read.append(path) or real(path))
    assert contents(root, tmp_path / "cache") == contents(root, None) and len(read) == 6 + 6


def test_files_that_cannot_be_read_count_by_name_and_size(tmp_path: Path) -> None:
    root = write_jpegs(tmp_path / "images", 2)
    os.mkfifo(root / "pipe.jpg")
    before = contents(root, None)
    os.rename(root / "pipe.jpg", root / "pipes.jpg")
    assert contents(root, None) != before


def test_a_path_list_takes_rows() -> None:
    paths = PathList(["a", "bé/c", "d"])
    assert list(paths.iter_bytes()) == [b"a", "bé/c".encode(), b"d"]
    assert [paths.take(np.array([2, 1]))[row] for row in range(2)] == ["d", "bé/c"]
