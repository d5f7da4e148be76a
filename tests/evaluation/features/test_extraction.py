"""Extraction: the right features, once, whatever happens on the way."""

import fcntl
import os
import shutil
import signal
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp
from coins import write_coins
from forks import ended, exit_code, started
from odd_disks import lockless
from PIL import Image
from torch import Tensor, nn

import evaluation
import sslkit
from evaluation.features import cache, extraction
from sslkit.data import file_contents
from sslkit.data.decode import pixels as decoding
from sslkit.data.likeness import count_differences
from sslkit.data.manifest.survey import LIKENESS, measure
from sslkit.errors import UserError
from sslkit.files import blocks, writing
from sslkit.runtime.context import Runtime


class Counting(nn.Module):
    """A small network that counts the batches it has seen, not as an attribute of its own, which is in its digest."""

    seen: ClassVar[list[int]] = []

    def __init__(self, channels: int = 1) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.conv = nn.Conv2d(channels, 6, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(len(x))
        return self.conv(x).amax((2, 3))


def of_digits(net: nn.Module, **how) -> evaluation.Features:
    return evaluation.extract(sslkit.load(net, image_size=8, in_chans=1), "digits", "test", **how)


def test_hashes_of_near_copies_are_kept_with_the_features(tmp_path: Path, monkeypatch) -> None:
    """Of files nearly those of `look`, which decodes JPEG at a reduced scale."""
    folder = write_coins(tmp_path / "coins", objects=6, shots=4)
    model, how = sslkit.load(Counting(3), image_size=8, in_chans=3), {"cache": tmp_path / "cache", "workers": 0}
    found = evaluation.extract(model, str(folder), "train", **how)
    images = evaluation.open_split(str(folder), "train", cache=None).images
    surveyed = measure(images, Runtime(cache=None))[LIKENESS]
    differing = count_differences(found.likeness, surveyed)
    assert len(found.likeness) == len(images) and np.median(differing) <= 2 and differing.max() <= 10
    monkeypatch.setattr(decoding, "hash_picture", None)
    assert (evaluation.extract(model, str(folder), "train", **how).likeness == found.likeness).all()
    assert (found.take(np.arange(3)).likeness == found.likeness[:3]).all()


def test_features_are_those_of_a_plain_loop(tmp_path: Path) -> None:
    net = Counting()
    found = of_digits(net, cache=tmp_path, batch_size=100)
    images = sslkit.open_images("digits", split="test")
    pixels = images.__getitems__(list(range(len(images))))["images"].float() / 255
    with torch.no_grad():
        expected = net((pixels - 0.5) / 0.5).numpy()
    np.testing.assert_allclose(found.x, expected, atol=1e-6)
    assert found.x.dtype == np.float32 and isinstance(found.x, np.memmap)
    assert (found.y == images.labels).all() and list(found.classes) == images.classes
    assert len(set(found.ids.tolist())) == len(found) == 359
    assert (found.model, found.data, found.split, found.metric) == ("Counting", "digits", "test", "top1")


def test_a_second_call_costs_no_forward_pass(tmp_path: Path) -> None:
    net = Counting()
    first = of_digits(net, cache=tmp_path)
    net.seen.clear()
    second = of_digits(net, cache=tmp_path)
    assert net.seen == [2] and second.digest == first.digest  # the width is measured, nothing else
    assert (second.x == first.x).all() and (second.ids == first.ids).all()


def test_anything_that_changes_the_features_changes_the_key(tmp_path: Path) -> None:
    net, other = Counting(), Counting()
    with torch.no_grad():
        other.conv.bias[0] += 1e-3
    loaded = sslkit.load(net, image_size=8, in_chans=1)
    found = [
        of_digits(net, cache=tmp_path),
        of_digits(other, cache=tmp_path),
        of_digits(net, cache=tmp_path, precision="bfloat16"),
        of_digits(net, cache=tmp_path, resize=10),
        of_digits(net, cache=tmp_path, resize=10, interpolation="bilinear"),
        evaluation.extract(loaded, "digits", "train", cache=tmp_path),
        evaluation.extract(sslkit.load(net, image_size=12, in_chans=1), "digits", "test", cache=tmp_path),
    ]
    assert len({features.digest for features in found}) == len(found)
    assert of_digits(net, cache=tmp_path, batch_size=7).digest == found[0].digest


def test_without_a_cache_nothing_is_left(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = of_digits(Counting(), cache=None)
    assert not isinstance(found.x, np.memmap) and list(tmp_path.iterdir()) == []


def extract_logged(folder: Path, log: Path, last: int) -> None:
    """Extract slowly, write down each batch, and kill this process at batch `last`."""

    Counting.seen.clear()

    class Logged(Counting):
        def forward(self, x: Tensor) -> Tensor:
            with log.open("a") as file:
                file.write(f"{len(x)}\n")
            if len(self.seen) == last:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.02)
            return super().forward(x)

        def __repr__(self) -> str:
            return repr(Counting())

    blocks._FLUSH_SECONDS = 0.0
    print(of_digits(Logged(), cache=folder, batch_size=30).digest)


def forwards(log: Path) -> int:
    """Batches of images; the two-image ones measure the width."""
    return sum(line.strip() != "2" for line in log.read_text().splitlines())


def test_a_killed_extraction_goes_on_where_it_was(tmp_path: Path) -> None:
    folder, said = tmp_path / "cache", tmp_path / "said"
    assert exit_code(said, extract_logged, folder, tmp_path / "first", 5) == -signal.SIGKILL
    assert len(list((tmp_path / "cache").glob("*.part"))) == 1
    assert not list((tmp_path / "cache").glob("*/index.json"))
    assert exit_code(said, extract_logged, folder, tmp_path / "second", -1) == 0, said.read_text()
    digest = said.read_text().strip()
    assert forwards(tmp_path / "second") == 12 - 4, "of 12 batches the first process had finished four"
    whole = of_digits(Counting(), cache=tmp_path / "other", batch_size=30)
    assert (np.load(tmp_path / "cache" / digest / "features.npy") == whole.x).all()


def test_two_processes_extract_one_key_once(tmp_path: Path) -> None:
    logs = [tmp_path / "0", tmp_path / "1"]
    both = [started(log, extract_logged, tmp_path / "cache", tmp_path / "log", -1) for log in logs]
    assert [ended(process) for process in both] == [0, 0]
    assert len({log.read_text().split()[-1] for log in logs}) == 1
    assert forwards(tmp_path / "log") == 12


def extract_on_machine(name: str, folder: Path, log: Path) -> None:
    """On a disk that has no locks."""
    (folder.parent / name).mkdir(exist_ok=True)
    tempfile.tempdir = str(folder.parent / name)
    writing.MACHINE = blocks.MACHINE = name
    fcntl.flock = lockless(folder)
    extract_logged(folder, log, -1)


@pytest.mark.parametrize(("machines", "times"), [("aa", 1), ("ab", 2)])
def test_without_locks_each_machine_extracts_by_itself(machines: str, times: int, tmp_path: Path) -> None:
    logs = [tmp_path / "0", tmp_path / "1"]
    folder = tmp_path / "cache"
    both = [
        started(log, extract_on_machine, machine, folder, tmp_path / "log")
        for machine, log in zip(machines, logs, strict=True)
    ]
    assert [ended(process) for process in both] == [0, 0], [log.read_text() for log in logs]
    (digest,) = {log.read_text().split()[-1] for log in logs}
    assert forwards(tmp_path / "log") == 12 * times
    assert all("has no locks" in log.read_text() for log in logs)
    assert [path.name for path in folder.iterdir()] == [digest]
    assert cache.features_store(folder / digest).read()["features.npy"].shape == (359, 6)


def on_a_rank(rank: int, folder: str, cached: bool) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    found = of_digits(Counting(), cache=f"{folder}/cache" if cached else None, batch_size=50)
    np.savez(f"{folder}/rank{rank}.npz", x=found.x, y=found.y, ids=found.ids)
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("cached", [True, False])
def test_two_ranks_have_all_rows_exactly_once(tmp_path: Path, cached: bool) -> None:
    mp.start_processes(on_a_rank, (str(tmp_path), cached), nprocs=2, start_method="fork")
    alone = of_digits(Counting(), cache=None)
    for rank in range(2):
        found = np.load(tmp_path / f"rank{rank}.npz")
        assert (found["x"] == alone.x).all() and (found["y"] == alone.y).all()
        assert found["ids"].tolist() == alone.ids.tolist()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    images = sslkit.open_images("clipart", split="test")
    for row in range(12):
        path = tmp_path / "images" / ("cat" if row % 2 else "dog") / f"{row:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(images[row]["images"].permute(1, 2, 0).numpy()).save(path)
    (tmp_path / "images" / "cat" / "03.png").write_bytes(b"no image")
    return tmp_path / "images"


def test_an_unreadable_image_is_left_out_of_features_and_labels(folder: Path, capsys) -> None:
    loaded = sslkit.load(Counting(3), image_size=32)
    found = evaluation.extract(loaded, folder, "all", cache=None, batch_size=5, workers=0)
    assert "1 of 12 images of images cannot be read and are left out: cat/03.png" in capsys.readouterr().out
    assert len(found.x) == len(found.y) == len(found.ids) == 11 and "cat/03.png" not in found.ids.tolist()
    assert [i.startswith("dog") for i in found.ids] == (found.y == list(found.classes).index("dog")).tolist()
    for workers in (0, 1):
        with pytest.raises(UserError, match=r"^cannot read .*cat/03\.png"):
            evaluation.extract(loaded, folder, "all", cache=None, on_error="raise", workers=workers)


def test_a_cache_remembers_what_could_not_be_read(folder: Path, tmp_path: Path, capsys) -> None:
    loaded = sslkit.load(Counting(3), image_size=32)
    for _ in range(2):
        found = evaluation.extract(loaded, folder, "all", cache=tmp_path / "cache", workers=0)
        assert found.unreadable == ("cat/03.png",) and "1 of 12 images" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"cat/03\.png of images cannot be read"):
        evaluation.extract(loaded, folder, "all", cache=tmp_path / "cache", workers=0, on_error="raise")


def test_large_images_are_resized_and_cut_small_ones_are_not(folder: Path) -> None:
    loaded = sslkit.load(Counting(3), image_size=224)
    assert loaded.resizing.resize == 256
    with pytest.raises(UserError, match="resize=100 is less than the crop of 224 pixels"):
        evaluation.extract(loaded, folder, cache=None, resize=100)
    found = evaluation.extract(loaded, folder, cache=None, workers=0)
    picture = Image.open(folder / found.ids[0]).convert("RGB").resize((256, 256), Image.Resampling.BICUBIC)
    pixels = torch.from_numpy(np.array(picture)).permute(2, 0, 1)[None, :, 16:240, 16:240].float() / 255
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (loaded.mean, loaded.std))
    with torch.no_grad():
        expected = loaded.net((pixels - mean) / std)
    np.testing.assert_allclose(found.x[:1], expected.numpy(), atol=1e-5)


def test_bfloat16_is_near_and_stored_in_float32() -> None:
    full, half = of_digits(Counting(), cache=None), of_digits(Counting(), cache=None, precision="bfloat16")
    assert half.x.dtype == np.float32 and 0 < np.abs(full.x - half.x).max() < 0.05


def test_the_users_module_stays_as_it_was() -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    net.train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    of_digits(net, cache=None)
    assert net.training and all((value == before[name]).all() for name, value in net.state_dict().items())


class Broken(Counting):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / 0


def test_bad_input_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Broken gives features that are not finite"):
        of_digits(Broken(), cache=tmp_path)
    assert not list(tmp_path.glob("*.part"))
    with pytest.raises(UserError, match="precision must be float32 or bfloat16, got 'half'"):
        of_digits(Counting(), cache=None, precision="half")
    with pytest.raises(UserError, match="device=cuda, but torch sees no GPU"):
        of_digits(Counting(), cache=None, device="cuda")
    with pytest.raises(UserError, match="digits has no split 'tset'"):
        evaluation.extract(sslkit.load(Counting(), image_size=8, in_chans=1), "digits", "tset", cache=None)


def test_images_of_more_than_8_bits_are_read_by_the_range_that_is_given(tmp_path: Path) -> None:
    digits = sslkit.open_images("digits", split="test")
    for row, pixels in enumerate(digits.pixels[:12, 0]):
        for kind, values in (("plain", pixels), ("deep", pixels.astype(np.uint16) * 16)):
            path = tmp_path / kind / f"class{row % 2}" / f"{row:02}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(values).save(path)
    model = sslkit.load("random:narrow_resnet", image_size=8, in_chans=1)

    def features(kind: str, **how: object) -> np.ndarray:
        return evaluation.extract(model, tmp_path / kind, "all", cache=None, workers=0, progress=False, **how).x

    plain = features("plain")
    np.testing.assert_array_equal(features("deep", range=[0, 16 * 255]), plain)
    assert np.abs(features("deep", range=[0, 8191]) - plain).max() > 1e-3
    with pytest.raises(UserError, match="range"):
        features("deep", range=[9, 3])


def test_opacity_and_fill_are_read_as_given(tmp_path: Path) -> None:
    """Of deep pixels a value that stands for none; of four planes the last one as a channel that is not laid on white.

    A value of 16 bits that is given for none is black: as files that hold the least value there.
    """
    digits = sslkit.open_images("digits", split="test")
    rng = np.random.default_rng(0)
    for row, pixels in enumerate(digits.pixels[:12, 0]):
        holes, opacity = rng.random(pixels.shape) < 0.1, rng.integers(0, 2, pixels.shape, np.uint8) * 255
        for kind, values in (
            ("holes", np.where(holes, 9999, pixels.astype(np.uint16) * 16)),
            ("black", np.where(holes, 0, pixels.astype(np.uint16) * 16)),
            ("four", np.stack([pixels, pixels, pixels, opacity], 2)),
            ("three", np.stack([pixels, pixels, pixels], 2)),
        ):
            path = tmp_path / kind / f"class{row % 2}" / f"{row:02}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(values.astype(np.uint16 if kind in ("holes", "black") else np.uint8)).save(path)
    model = sslkit.load("random:narrow_resnet", image_size=8, in_chans=1)

    def features(kind: str, **how: object) -> np.ndarray:
        return evaluation.extract(model, tmp_path / kind, "all", cache=None, workers=0, progress=False, **how).x

    black = features("black", range=[0, 4095])
    np.testing.assert_array_equal(features("holes", range=[0, 4095], fill=9999), black)
    assert np.abs(features("holes", range=[0, 4095]) - black).max() > 1e-3
    three = features("three")
    np.testing.assert_array_equal(features("four", opacity=False), three)
    assert np.abs(features("four") - three).max() > 1e-3
    with pytest.raises(UserError, match=r"fill must be a number, or .*, got 'auot': did you mean 'auto'"):
        features("holes", fill="auot")
    with pytest.raises(UserError, match="opacity must be true or false or null, got 1"):
        features("four", opacity=1)


def test_ids_and_groups_are_those_of_this_split(tmp_path: Path) -> None:
    """They come from the cache, too."""
    net, split = sslkit.load(Counting(), image_size=8, in_chans=1), evaluation.open_split("digits", "test")
    plain = evaluation.extract(net, split, "test", cache=tmp_path)
    own = replace(split, groups=np.arange(len(split.y)) // 2, ids=np.char.add("own ", split.ids))
    found = evaluation.extract(net, own, "test", cache=tmp_path)
    assert plain.groups is None and (found.groups == own.groups).all() and (found.ids == own.ids).all()
    assert (found.x == plain.x).all()


def test_folders_exchanged_by_mv_have_features_of_their_own(tmp_path: Path, monkeypatch) -> None:
    """Bitmaps of one size and one time, as the usual repair of wrong labels leaves them."""
    rng, root = np.random.default_rng(0), tmp_path / "set"
    for number in range(80):
        path = root / ("test" if number % 8 < 2 else "train") / "ab"[number % 2] / f"{number // 2:02}.bmp"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8) // 2 + 100 * (number % 2)).save(path)
        os.utime(path, (10**9, 10**9))
    how = {"image_size": 8, "cache": tmp_path / "cache", "progress": False, "workers": 0}

    def extracted(source: Path, **more) -> list[evaluation.Features]:
        return [
            evaluation.extract("random:narrow_resnet", str(source), part, **how | more) for part in ("train", "test")
        ]

    before = extracted(root)
    classes = [root / "train" / name for name in "ab"]
    classes[0].rename(root / "between")
    classes[1].rename(classes[0])
    (root / "between").rename(classes[1])
    train, test = extracted(root)
    assert np.array_equal(train.x, extracted(root, cache=None)[0].x) and train.digest != before[0].digest
    half = len(train) // 2
    np.testing.assert_allclose(train.x, np.roll(before[0].x, half, axis=0), rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(extraction, "_run", lambda *_: pytest.fail("features were extracted again"))
    monkeypatch.setattr(file_contents, "_digest", lambda path: pytest.fail(f"{path} was read again"))
    assert [part.digest for part in extracted(root)] == [train.digest, test.digest]
    monkeypatch.undo()
    monkeypatch.setattr(extraction, "_run", lambda *_: pytest.fail("features were extracted again"))
    shutil.copytree(root, tmp_path / "copy" / "set", copy_function=shutil.copyfile)
    assert [part.digest for part in extracted(tmp_path / "copy" / "set")] == [train.digest, test.digest]
