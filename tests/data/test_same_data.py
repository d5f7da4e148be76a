"""Processes, and resumed runs, that see other images are refused; those that see copies of the files are not."""

import os
import shutil
import signal
import threading
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from forks import exit_code, free_port, start_ranks
from photographs import write_jpegs

import sslkit
from sslkit.data import file_contents, same_data
from sslkit.errors import UserError
from sslkit.priors import _features
from sslkit.priors import build as build_prior
from sslkit.runtime.loop import Hook, Loop
from sslkit.training import pretrain
from sslkit.training.pretrain import Start


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


@pytest.fixture
def of_files(tmp_path: Path) -> dict:
    """A config of a run of 24 photographs in two classes, three steps an epoch."""
    for name in "ab":
        write_jpegs(tmp_path / "photos" / name, 12, (24, 20))
    return {
        "method": "simclr+dsa",
        "image_size": 16,
        "batch_size": 8,
        "workers": 0,
        "data": {"source": str(tmp_path / "photos")},
        "epochs": 2,
        "eval": {"k": 3, "tsne": 0},
        "progress": False,
        "precision": "float32",
        "out": str(tmp_path / "zoo"),
        "name": "run",
    }


class Killed(Hook):
    def batch_end(self, loop: Loop, *_: object) -> None:
        if loop.step == 5:
            os.kill(os.getpid(), signal.SIGKILL)


def killed(config: dict) -> None:
    make = pretrain.make_loop
    pretrain.make_loop = lambda *given: make(*given[:-1], [Killed(), *given[-1]])
    sslkit.pretrain(config)


def copied(config: dict, to: Path) -> dict:
    """The config for a copy of the images, whose files have other times and another place."""
    source = Path(config["data"]["source"])
    shutil.copytree(source, to, copy_function=shutil.copyfile)
    for path in to.rglob("*.jpg"):
        os.utime(path, (10**9, 10**9))
    return {**config, "data": {**config["data"], "source": str(to)}, "resume": True}


def test_a_killed_run_goes_on_with_a_copy_of_its_images(of_files, tmp_path: Path) -> None:
    whole = sslkit.pretrain({**of_files, "name": "whole"})
    assert exit_code(tmp_path / "said", killed, of_files) == -signal.SIGKILL, (tmp_path / "said").read_text()
    elsewhere = copied(of_files, tmp_path / "scratch" / "photos")
    other = copied(of_files, tmp_path / "other" / "photos")
    file = tmp_path / "other" / "photos" / "b" / "03.jpg"
    content = bytearray(file.read_bytes())
    content[-20] ^= 1
    file.write_bytes(content)
    shutil.rmtree(tmp_path / "photos")
    with pytest.raises(UserError, match="the images have changed since"):
        sslkit.pretrain(other)
    resumed = sslkit.pretrain(elsewhere)
    assert resumed.folder.name == "run" and resumed.card["data"]["digest"] == whole.card["data"]["digest"]
    for name, value in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value)
    assert sslkit.pretrain(elsewhere).folder == resumed.folder
    with pytest.raises(UserError, match="is finished, but the images have changed since"):
        sslkit.pretrain(other)


def test_a_resumed_run_does_not_wait_for_the_content_of_a_copy(of_files, tmp_path: Path, monkeypatch) -> None:
    """It is compared before anything is written, and the features of the prior are found meanwhile."""
    run = {**of_files, "cache": str(tmp_path / "cache")}
    assert exit_code(tmp_path / "said", killed, run) == -signal.SIGKILL, (tmp_path / "said").read_text()
    stepped, real, tables = threading.Event(), file_contents._digest, _features._batches
    monkeypatch.setattr(file_contents, "_digest", lambda path: stepped.wait(60) and real(path))
    monkeypatch.setattr(Start, "batch_end", lambda self, *_: stepped.set())
    monkeypatch.setattr(_features, "_batches", lambda *_: pytest.fail("the features of the prior are computed again"))
    last, other = tmp_path / "zoo" / "run" / "checkpoints" / "last.ckpt", copied(run, tmp_path / "other" / "photos")
    before, file = last.read_bytes(), tmp_path / "other" / "photos" / "b" / "03.jpg"
    content = bytearray(file.read_bytes())
    content[-20] ^= 1
    file.write_bytes(content)
    with pytest.raises(UserError, match="the images have changed since"):
        sslkit.pretrain(other)
    assert stepped.is_set() and last.read_bytes() == before, "found out at the end of the epoch"
    stepped.clear()
    assert sslkit.pretrain(copied(run, tmp_path / "scratch" / "photos")).card["epochs"] == 2 and stepped.is_set()
    monkeypatch.setattr(_features, "_batches", tables)


def test_features_of_other_images_are_not_kept_under_the_digest_of_a_checkpoint(of_files, tmp_path: Path) -> None:
    images = sslkit.open_images(of_files["data"]["source"], image_size=16, cache=None)
    begun = {"listing": images.listing, "digest": "of others"}
    content = same_data.Content(images, read=True)
    content.known = lambda: False  # it is not read yet
    content.check(begun, tmp_path)
    assert images.digest == "of others"
    del content.known
    with pytest.raises(UserError, match="have changed"):
        _features.tabulate(build_prior("hog", size=16), images, cache=tmp_path / "cache", device=torch.device("cpu"))
    assert not list((tmp_path / "cache").glob("prior-*.npy"))


def test_a_run_that_was_stopped_before_its_files_were_read_says_so(of_files, tmp_path: Path, capsys) -> None:
    images = sslkit.open_images(of_files["data"]["source"], image_size=16, cache=None)
    content = same_data.Content(images, read=False)
    unread = content.state()
    assert unread == {"listing": images.listing, "digest": None}
    content.check(unread, tmp_path)
    said = " ".join(capsys.readouterr().out.split())
    assert said.endswith("only names and sizes of its 24 images are known to be the same")
    with pytest.raises(UserError, match="have changed"):
        content.check({**unread, "listing": "another"}, tmp_path)
    reading = same_data.Content(sslkit.open_images(of_files["data"]["source"], image_size=16, cache=None), read=True)
    reading.wait()
    assert reading.state() == {"listing": images.listing, "digest": images.digest}


def test_a_file_that_has_gone_is_an_error_of_the_reader(of_files) -> None:
    images = sslkit.open_images(of_files["data"]["source"], image_size=16, cache=None)
    os.unlink(images.path(3))
    with pytest.raises(UserError, match=r"03\.jpg has gone"):
        same_data.Content(images, read=True).wait()
