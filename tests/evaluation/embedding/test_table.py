"""Features of every image: names, labels, order, unreadable images, resumption."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

import evaluation
from evaluation.embedding import file as files
from evaluation.embedding.sources import open_parts
from evaluation.features import cache, extraction
from sslkit.data.sources.named import open_images
from sslkit.errors import RunFailed, UserError
from sslkit.files import blocks


def embedded(net, source, folder: Path, **how):
    return evaluation.embed(net, source, image_size=16, cache=folder / "cache", workers=0, progress=False, **how)


def test_rows_are_the_files_in_the_order_of_their_paths(clipart, net, tmp_path) -> None:
    found = embedded(net, clipart, tmp_path)
    assert found.paths.tolist() == sorted(path.relative_to(clipart).as_posix() for path in clipart.rglob("*.png"))
    assert [found.classes[label] for label in found.y] == [path.partition("/")[0] for path in found.paths]
    assert set(found.splits) == {"all"} and found.unreadable == () and found.x.dtype == np.float32


def test_a_row_is_what_the_network_says_of_the_file(clipart, net, tmp_path) -> None:
    found, row = embedded(net, clipart, tmp_path), 20
    with Image.open(clipart / found.paths[row]) as image:
        pixels = np.asarray(image.convert("RGB").resize((16, 16), Image.Resampling.BICUBIC), np.float32) / 255
    mean, std = (np.array(found.about[name], np.float32) for name in ("mean", "std"))
    with torch.inference_mode():
        expected = net.eval()(torch.from_numpy(((pixels - mean) / std).transpose(2, 0, 1)[None]))[0].numpy()
    np.testing.assert_allclose(found.x[row], expected, atol=1e-5)


def test_all_splits_by_default_and_no_labels_are_needed(clipart, net, tmp_path) -> None:
    for split, name in (("train", "animals"), ("validation", "food")):
        shutil.copytree(clipart / name, tmp_path / "mine" / split)
    found = embedded(net, tmp_path / "mine", tmp_path)
    assert found.paths[0] == "train/00.png" and found.paths[-1] == "validation/11.png"
    assert found.splits.tolist() == ["train"] * 12 + ["test"] * 12
    assert (found.y == -1).all() and len(found) == 24
    alone = embedded(net, tmp_path / "mine", tmp_path, split="test")
    assert alone.paths.tolist() == found.paths[12:].tolist()
    np.testing.assert_array_equal(alone.x, found.x[12:])


def test_splits_with_other_classes_keep_their_names(net, tmp_path) -> None:
    parts = open_parts("glyphs", None)
    assert {part.split.split for part in parts} > {"train", "novel_test"}
    classes, labels = evaluation.embedding.sources.merge_classes([part.split for part in parts])
    for part, y in zip(parts, labels, strict=True):
        own = np.array(part.split.classes)[part.split.y]
        assert (np.array(classes)[y] == own).all()


def test_arrays_are_named_by_split_and_content(net, tmp_path) -> None:
    images = open_images("digits", split="test")
    np.savez(tmp_path / "two.npz", x_train=images.pixels[:9, 0], x_test=images.pixels[9:14, 0])
    found = embedded(net, tmp_path / "two.npz", tmp_path)
    assert len(found) == 14 == len(set(found.paths))
    assert [path.partition("/")[0] for path in found.paths] == ["train"] * 9 + ["test"] * 5


def test_unreadable_images_are_left_out_and_named(clipart, net, tmp_path) -> None:
    shutil.copytree(clipart, tmp_path / "mine")
    whole = embedded(net, tmp_path / "mine", tmp_path)
    for name in ("animals/03.png", "tools/11.png"):
        path = tmp_path / "mine" / name
        path.write_bytes(path.read_bytes()[:200])
    found = embedded(net, tmp_path / "mine", tmp_path)
    assert found.unreadable == ("animals/03.png", "tools/11.png")
    kept = ~np.isin(whole.paths, found.unreadable)
    assert found.paths.tolist() == whole.paths[kept].tolist()
    np.testing.assert_array_equal(found.y, whole.y[kept])
    np.testing.assert_allclose(found.x, whole.x[kept], atol=1e-6)


def test_a_stopped_run_goes_on_to_the_same_bytes(clipart, net, tmp_path, monkeypatch) -> None:
    files.write(embedded(net, clipart, tmp_path / "unbroken", batch_size=5), tmp_path / "unbroken.npz")
    monkeypatch.setattr(blocks, "_FLUSH_SECONDS", -1.0)  # every block is written at once
    calls, apply = [], extraction.apply

    def stopped(net, name, pixels, precision):
        if len(calls) == 3:
            raise KeyboardInterrupt
        calls.append(len(pixels))
        return apply(net, name, pixels, precision)

    def counted(net, name, pixels, precision):
        calls.append(len(pixels))
        return apply(net, name, pixels, precision)

    monkeypatch.setattr(extraction, "apply", stopped)
    with pytest.raises(KeyboardInterrupt):
        embedded(net, clipart, tmp_path / "broken", batch_size=5)
    calls.clear()
    monkeypatch.setattr(extraction, "apply", counted)
    files.write(embedded(net, clipart, tmp_path / "broken", batch_size=5), tmp_path / "broken.npz")
    assert sum(calls) == 36 - 3 * 5
    assert (tmp_path / "broken.npz").read_bytes() == (tmp_path / "unbroken.npz").read_bytes()


def test_a_full_disk_is_one_line(clipart, net, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=36 * 24 * 4))
    with pytest.raises(UserError, match=r"cannot write the features in .*No space left on device") as told:
        embedded(net, clipart, tmp_path)
    assert "\n" not in str(told.value)
    assert not [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]


def test_blocks_stay_when_the_disk_is_full_in_between(clipart, net, tmp_path, monkeypatch) -> None:
    flush, flushed = blocks.Blocks.flush, []

    def full_at_the_second(self: blocks.Blocks) -> None:
        if flushed:
            raise RunFailed("the disk is full")
        flushed.append(flush(self))

    monkeypatch.setattr(blocks, "_FLUSH_SECONDS", -1.0)
    monkeypatch.setattr(blocks.Blocks, "flush", full_at_the_second)
    with pytest.raises(RunFailed, match="the disk is full"):
        embedded(net, clipart, tmp_path, batch_size=5)
    assert len(list((tmp_path / "cache").glob("*.part/*.npz"))) == 1


def test_blocks_stay_when_the_disk_is_full_at_the_end(clipart, net, tmp_path, monkeypatch) -> None:
    save = cache.create_npy

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "create_npy", full)
    with pytest.raises(UserError, match="finished blocks are kept"):
        embedded(net, clipart, tmp_path)
    monkeypatch.setattr(cache, "create_npy", save)
    monkeypatch.setattr(extraction, "apply", None)  # nothing is computed again
    assert len(embedded(net, clipart, tmp_path)) == 36
