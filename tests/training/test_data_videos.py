"""From a folder of videos to a zoo entry: `data=video:FOLDER` in one run, its pictures, its card, its resumption."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from unfolded import unfolded

import sslkit
from sslkit.data.video.clips import open_videos
from sslkit.errors import UserError
from sslkit.training import run as runs
from sslkit.training.build import build_method
from sslkit.training.config import Config, parse_settings
from sslkit.training.data import open_data
from sslkit.training.estimate import announce_cost

pytest.importorskip("av")
from moving_films import write_folder, write_pieces

KILLED = (
    "import json, os, sys, torch\n"
    "torch.set_num_threads(1)\n"
    "import sslkit\n"
    "from sslkit.runtime.loop import Hook\n"
    "from sslkit.training import pretrain\n"
    "class Die(Hook):\n"
    "    def batch_end(self, loop, *_):\n"
    "        if loop.step == 5: os.kill(os.getpid(), 9)\n"
    "make = pretrain.make_loop\n"
    "pretrain.make_loop = lambda *given: make(*given[:-1], [Die(), *given[-1]])\n"
    "sslkit.pretrain(json.loads(sys.argv[1]))\n"
)
pytestmark = pytest.mark.filterwarnings("ignore:.*videos cannot be read.*", "ignore:.*eta.*", "ignore:.*dead.*")


@pytest.fixture(scope="session")
def films(tmp_path_factory) -> Path:
    """Six training films and three test films of each of four motifs, 20 frames of 48 pixels."""
    root = write_folder(tmp_path_factory.mktemp("films") / "clips", 6, split="train")
    return write_folder(root, 3, split="test")


@pytest.fixture
def config(films, tmp_path) -> dict:
    """A run of six steps."""
    return {
        "method": {"name": "byol+dsa", "dsa": {"eta": 3, "hidden": 8}},
        "batch_size": 8,
        "image_size": 16,
        "workers": 0,
        "data": {"source": f"video:{films}", "frames": 4, "stride": 3},
        "epochs": 2,
        "out": str(tmp_path / "zoo"),
        "cache": str(tmp_path / "cache"),
        "eval": {"k": 3, "tsne": 12},
        "progress": False,
        "precision": "float32",
        "trainer": {"log_every": 1},
    }


def test_a_run_leaves_an_entry_of_clips(config, films, capsys) -> None:
    entry = sslkit.pretrain(config)
    said = unfolded(capsys.readouterr().out)
    assert entry.folder.name == "byol+dsa-clips-narrow_slow-e2-s0"
    for words in (
        f"data      video:{films}: 24 videos, 16 px, 3 channels, 4 classes (only to evaluate)",
        "clips     2 of each video in a step, 4 frames, stride 3, decoded by pyav",
        "backbone  narrow_slow (for byol at 16 px): 0.49 M parameters",
        "2 epochs of 3 steps x 8 videos",
        "videos/s",
        "on 12 held-out videos",
        "recipes/action_eval.py",
        f"python recipes/train.py method=byol+dsa data=video:{films}",
    ):
        assert words in said, words
    body = entry.card["backbone"]
    assert (body["frames"], body["stride"], body["image_size"]) == (4, 3, 16)
    assert entry.card["data"]["images"] == 24 and entry.card["after"]["n"] == 12
    assert entry.card["features"]["images"] == 24
    for picture in ("views.png", "loss.png", "embedding.png"):
        assert np.asarray(Image.open(entry.folder / picture).convert("L")).std() > 5, f"{picture} is blank"
    assert list(Path(config["cache"]).glob("prior-*.npy"))


def test_the_time_of_a_run_on_clips_is_said_on_a_cpu(config, monkeypatch, caplog) -> None:
    settings = Config.from_mapping({**config, "device": "cpu"})
    data = open_data(settings)
    monkeypatch.setattr("sslkit.training.estimate.FEW", 0)
    monkeypatch.setattr("sslkit.training.estimate.LONG", 0)
    with caplog.at_level("INFO", "sslkit.say"):
        announce_cost(settings, data, build_method(settings, data))
    said = "\n".join(record.getMessage() for record in caplog.records)
    assert "an epoch" in said and "image_size=" not in said, "no smaller size or network was tried for clips"


def test_videos_of_a_program_keep_their_own_clips(films) -> None:
    videos = open_videos(films, frames=5, stride=1, image_size=32, cache=None)
    settings, own = parse_settings({"method": "byol", "data": videos, "batch_size": 8, "cache": None}, {})
    data = open_data(settings, own)
    assert data.train.item.frames == 5 and data.train.options.stride == 1 and data.image_size == 32
    assert data.train.image_size == 37 and data.query.images.image_size == 32, "a little larger than the views"


def test_the_entry_gives_the_features_of_its_card(config, films) -> None:
    entry = sslkit.pretrain({**config, "method": "simclr", "epochs": 1, "eval": {"k": 3, "tsne": 0}})
    frozen = sslkit.load(entry.folder)
    options = {"frames": frozen.item.frames, "stride": frozen.stride, "image_size": frozen.image_size, "cache": None}
    clean = open_videos(films, sampling="center", fit="crop", **options)
    clips = clean.__getitems__(list(range(24)))["images"][:, 0]
    x = frozen(clips)
    with torch.no_grad():
        again = sslkit.ZooEntry.load(entry.folder).backbone()(frozen.normalize(clips))
    torch.testing.assert_close(again, x)
    torch.testing.assert_close(x.mean(0), torch.tensor(entry.card["features"]["mean"]), atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(x.std(0), torch.tensor(entry.card["features"]["std"]), atol=1e-4, rtol=1e-3)


@pytest.mark.slow
def test_killed_and_resumed_is_bitwise_the_unbroken_run(config, tmp_path) -> None:
    config |= {"epochs": 3, "eval": {"k": 3, "tsne": 0}}
    unbroken = sslkit.pretrain({**config, "name": "unbroken"})
    broken = {**config, "name": "broken"}
    killed = subprocess.run([sys.executable, "-c", KILLED, json.dumps(broken)], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    resumed = sslkit.pretrain({**broken, "resume": True, "workers": 2})
    before, after = unbroken.state_dict(), resumed.state_dict()
    assert all(torch.equal(before[k], after[k]) for k in before)
    assert resumed.card["after"] == unbroken.card["after"]


def test_damaged_videos_are_left_out_and_named(config, films, tmp_path) -> None:
    root = tmp_path / "some"
    shutil.copytree(films, root)
    damaged = root / "train" / "motif0" / "000.mp4"
    damaged.write_bytes(b"no video")
    quick = {**config, "method": "simclr", "epochs": 1, "eval": {"k": 3, "tsne": 0}}
    entry = sslkit.pretrain({**quick, "data": {**config["data"], "source": f"video:{root}"}})
    assert entry.card["unreadable"] == [str(damaged)] and entry.card["data"]["images"] == 23
    with pytest.raises(UserError, match=r"cannot read .*000\.mp4"):
        open_data(Config.from_mapping({**config, "on_error": "raise", "data": {"source": f"video:{root}"}}))


def test_without_class_folders_nothing_is_judged(config, films, tmp_path) -> None:
    root = tmp_path / "flat"
    root.mkdir()
    for path in films.glob("train/*/*.mp4"):
        shutil.copy(path, root / f"{path.parent.name}-{path.name}")
    data = open_data(Config.from_mapping({**config, "data": {**config["data"], "source": f"video:{root}"}}))
    assert data.bank is None and data.query is None and len(data.train) == 24
    assert data.fixed.options.sampling == "center" and data.fixed.image_size == 16
    assert data.train.options.sampling == "random" and data.train.image_size == 18


def test_what_is_judged_are_centre_clips_of_the_held_out_split(config) -> None:
    data = open_data(Config.from_mapping(config))
    assert data.held_out and data.unit == "videos" and data.train.item.of_row == 2
    for part, count in ((data.bank, 24), (data.query, 12)):
        clips = part.images.__getitems__(part.rows.tolist())["images"]
        assert clips.shape == (count, 1, 3, 4, 16, 16)


def test_videos_are_trained_on_from_several_folders(config, films) -> None:
    source = [f"video:{films}/train", f"video:{films}/test"]
    several = Config.from_mapping({**config, "data": {**config["data"], "source": source}})
    data = open_data(several)
    assert data.held_out and (len(data.train), len(data.query.rows)) == (24, 12)
    assert runs.base_name(several, "slow_r18").startswith("byol+dsa-train+test-slow_r18")


@pytest.mark.parametrize(("size", "name"), [(112, "slow_r18"), (None, "slow_r18")])
def test_the_default_network_and_size(config, size, name) -> None:
    plain = Config.from_mapping({**config, "image_size": size, "method": "simclr"})
    data = open_data(plain)
    assert data.image_size == 112 and build_method(plain, data).backbone.recipe.name == name


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"backbone": "resnet18"}, "backbone: resnet18 takes images, and the data are clips"),
        ({"method": "mae"}, "take images only, and backbone narrow_slow takes clips"),
        ({"method": "ressl", "data.clips": 4}, "ressl compares 2 clips of a video, not 4: set data.clips=2"),
        ({"data.frames": 0}, "data.frames must be a whole number, at least 1"),
        ({"data.channels": 1}, "videos are read as RGB"),
        (
            {"batch_size": 32},
            "has 24 videos, fewer than one batch \\(batch_size=32\\): batch_size=24 takes",
        ),
        ({"data.source": "fashion_mnist"}, "data.frames is for videos, and data='fashion_mnist' are images"),
        ({"data.source": "video:nowhere"}, "folder of videos .*nowhere is not there"),
        ({"eval.k": 25}, "only 24 labelled videos: lower eval.k"),
    ],
)
def test_bad_settings_are_one_clear_line_before_anything_is_written(config, changed: dict, said: str) -> None:
    for key, value in changed.items():
        part, _, name = key.rpartition(".")
        (config[part] if part else config)[name] = value
    with pytest.raises(UserError, match=said) as caught:
        sslkit.pretrain(config)
    assert "\n" not in str(caught.value)
    assert not list(Path(config["out"]).glob("*/config.yaml"))


def test_the_name_of_a_run_leaves_out_what_says_that_it_is_videos() -> None:
    for source in ("video:a/films", "video:films"):
        config = Config.from_mapping({"method": "byol", "data": source})
        assert runs.base_name(config, "slow_r18") == "byol-films-slow_r18-e6-s0"


@pytest.mark.nightly
def test_v_byol_with_dsa_learns_and_finds_the_source_film_better_than_random_weights(tmp_path) -> None:
    films = write_pieces(tmp_path / "pieces", 6, split="train")
    write_pieces(films, 5, split="test")
    colours = {"grayscale": 0.5, "hue": 0.5, "jitter": 1.0, "saturation": 0.8, "scale": (0.5, 1.0)}
    options = {"objective": {"momentum": 0.97}, "views": colours, "dsa": {"eta": 4, "upsilon": 1.0}}
    shape = {"image_size": 16, "frames": 4, "stride": 2}
    entry = sslkit.pretrain(
        {
            "method": {"name": "byol+dsa", **options},
            "batch_size": 24,
            "workers": 0,
            "data": {"source": f"video:{films}", **shape},
            "epochs": 24,
            "out": str(tmp_path / "zoo"),
            "eval": {"k": 3, "tsne": 0, "every": 100},
            "progress": False,
            "precision": "float32",
            "trainer": {"log_every": 2},
        }
    )
    rows = [line.split(",") for line in (entry.folder / "metrics.csv").read_text().splitlines()]
    column = rows[0].index("loss")
    losses = [float(row[column]) for row in rows[1:] if row[column]]
    assert np.mean(losses[-3:]) < 0.7 * losses[0]
    assert entry.card["after"]["n"] == 40
    assert entry.card["after"]["knn"] > entry.card["before"]["knn"] + 0.05
