"""Runs whose views are cut from image files, with all of their detail."""

import os
import signal
from pathlib import Path

import pytest
import torch
from forks import exit_code
from photographs import write_jpegs

import sslkit
from sslkit.data.views.cropped import CroppedImages
from sslkit.runtime.loop import Hook, Loop
from sslkit.training import pretrain
from sslkit.training.config import Config
from sslkit.training.data import open_data, rows_to_learn


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    return write_jpegs(tmp_path_factory.mktemp("files"))


@pytest.fixture
def run(files, small_run) -> dict:
    data = {"data": {"source": str(files)}, "batch_size": 4, "image_size": 16, "workers": 0}
    return {**small_run, "method": "simclr", **data, "epochs": 2, "eval": {"k": 1, "tsne": 0}}


def same_weights(one: sslkit.ZooEntry, other: sslkit.ZooEntry) -> bool:
    before, after = one.state_dict(), other.state_dict()
    return all(torch.equal(before[k], after[k]) for k in before)


def test_files_are_read_in_full_detail_whatever_the_workers(run) -> None:
    alone = sslkit.pretrain(run)
    together = sslkit.pretrain({**run, "workers": 2})
    assert same_weights(alone, together)


class Die(Hook):
    """In the middle of the second epoch."""

    def batch_end(self, loop: Loop, *_: object) -> None:
        if loop.step == 4:
            os.kill(os.getpid(), signal.SIGKILL)


def die(config: dict) -> None:
    make = pretrain.make_loop
    pretrain.make_loop = lambda *given: make(*given[:-1], [Die(), *given[-1]])
    sslkit.pretrain(config)


def killed(run: dict, tmp_path: Path) -> Path:
    assert exit_code(tmp_path / "said", die, run) == -signal.SIGKILL, (tmp_path / "said").read_text()[-2000:]
    return tmp_path / "zoo" / run["name"] / "config.yaml"


def test_killed_and_resumed_is_bitwise_the_unbroken_run(run, tmp_path) -> None:
    unbroken = sslkit.pretrain({**run, "method": "byol"})
    broken = {**run, "method": "byol", "name": "broken"}
    killed(broken, tmp_path)
    assert same_weights(unbroken, sslkit.pretrain({**broken, "resume": True}))


def test_arrays_have_all_of_their_detail(small_npz) -> None:
    config = Config.from_mapping({"batch_size": 32, "data": {"source": str(small_npz)}})
    data = open_data(config)
    method = sslkit.method("simclr", image_size=data.image_size, in_chans=1)
    assert rows_to_learn(config, data, method, whole=False) is data.train


def test_only_what_reads_whole_images_gets_them(run) -> None:
    data = open_data(config := Config.from_mapping(run))
    for name, options, wanted in (
        ("simclr", {}, False),
        ("simclr+koleo", {}, False),
        ("simclr+dsa", {}, False),
        ("simclr+dsa", {"mode": "view"}, True),
        ("simclr+dsa", {"mode": "view", "neighbours": "none"}, False),
    ):
        method = sslkit.method(name, image_size=16, **({"dsa": options} if options else {}))
        rows = rows_to_learn(config, data, method, whole=method.needs_images)
        assert isinstance(rows, CroppedImages)
        assert (rows.__getitems__([0])["images"].whole is not None) is wanted
