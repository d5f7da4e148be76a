"""Runs on images of more than 8 bits (range): settled, kept by the card, and taken over by what reads it."""

import os
import signal
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from forks import exit_code
from PIL import Image
from sklearn.datasets import load_digits

import evaluation
import sslkit
from sslkit.data.sources.named import open_images
from sslkit.errors import UserError
from sslkit.runtime.loop import Hook, Loop
from sslkit.training import pretrain
from sslkit.training.config import Config
from sslkit.training.run import settings_of

USUAL = "ignore:.* are scaled to 8 bits by range"
pytestmark = pytest.mark.filterwarnings(USUAL)


def save_digits(folder: Path, most: float = 4000) -> Path:
    """16-bit files of two digits, in train/ and test/."""
    values, target = load_digits(return_X_y=True)
    for label in (0, 1):
        images = np.rint(values[target == label] * (most / 16)).reshape(-1, 8, 8).astype(np.uint16)
        for number, image in enumerate(images[:24]):
            path = folder / ("test" if number % 4 == 3 else "train") / str(label) / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path)
    return folder


@pytest.fixture(scope="module")
def scans(tmp_path_factory) -> Path:
    return save_digits(tmp_path_factory.mktemp("scans"))


@pytest.fixture
def run(scans, small_run) -> dict:
    data = {"data": {"source": str(scans)}, "batch_size": 8, "image_size": 8, "workers": 0}
    return {**small_run, "method": "simclr", **data, "epochs": 2, "eval": {"k": 1, "tsne": 0}}


@pytest.fixture(scope="module")
def entry(scans, settings, tmp_path_factory) -> sslkit.ZooEntry:
    torch.set_num_threads(1)
    data = {"data": {"source": str(scans)}, "batch_size": 8, "image_size": 8, "workers": 0, "range": [0, 8191]}
    out = str(tmp_path_factory.mktemp("zoo"))
    return sslkit.pretrain({**settings, "method": "simclr", **data, "epochs": 1, "out": out})


def test_the_range_is_settled_and_kept_by_the_card(run) -> None:
    entry = sslkit.pretrain(run)
    assert entry.range == (0, 4095) and entry.card["data"]["range"] == [0, 4095]
    assert settings_of(entry.folder).config.range == [0, 4095]
    assert sslkit.ZooEntry.load(entry.folder).range == (0, 4095)


def test_a_finished_run_is_known_with_its_own_range(run) -> None:
    entry = sslkit.pretrain({**run, "name": "x", "range": [0, 9000]})
    assert sslkit.pretrain({**run, "name": "x", "resume": True}).folder == entry.folder


def test_eight_bits_have_no_range(small_run) -> None:
    entry = sslkit.pretrain({**small_run, "epochs": 1})
    assert entry.range is None and entry.card["data"]["range"] is None
    assert entry.card["config"]["range"] is None


class Die(Hook):
    """In the middle of the second epoch."""

    def batch_end(self, loop: Loop, *_: object) -> None:
        if loop.step == 6:
            os.kill(os.getpid(), signal.SIGKILL)


def die(config: dict) -> None:
    make = pretrain.make_loop
    pretrain.make_loop = lambda *given: make(*given[:-1], [Die(), *given[-1]])
    sslkit.pretrain(config)


def test_a_resumed_run_keeps_its_range(run, tmp_path) -> None:
    """Also one that was given, and is not given again; another is refused."""
    unbroken = sslkit.pretrain({**run, "range": [0, 9000]})
    broken = {**run, "name": "broken"}
    assert exit_code(tmp_path / "said", die, {**broken, "range": [0, 9000]}) == -signal.SIGKILL
    for other in ([0, 4095], (0, 4095)):
        with pytest.raises(UserError, match=r"range was \[0.*9000.*\], is \[0.*4095"):
            sslkit.pretrain({**broken, "range": other, "resume": True})
    found = sslkit.pretrain({**broken, "resume": True})
    before, after = unbroken.state_dict(), found.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before) and found.range == (0, 9000)


def test_evaluation_reads_as_in_training(entry, scans) -> None:
    model = sslkit.load(entry)
    images = open_images(scans, split="test", image_size=8)
    with pytest.warns(UserWarning, match=r"read by range=\[0,8191\], as in the training of .*, not by its own, \[0"):
        clean = model.clean(images)
    assert clean.range == (0, 8191) and images.range == (0, 4095)
    given = open_images(scans, split="test", image_size=8, range=[0, 8191])
    rows = list(range(len(images)))
    assert torch.equal(clean.__getitems__(rows)["images"], given.__getitems__(rows)["images"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.clean(given).range == (0, 8191)


def test_evaluation_reads_as_the_user_says(entry, scans) -> None:
    given = open_images(scans, split="test", image_size=8, range=[0, 4095])
    with pytest.warns(UserWarning, match=r"read by range=\[0,4095\], as given, and .* was trained with \[0,8191\]"):
        assert sslkit.load(entry).clean(given).range == (0, 4095)


def test_features_and_embeddings_are_of_that_range(entry, scans, tmp_path) -> None:
    how = {"cache": str(tmp_path), "progress": False}
    own = evaluation.extract(entry, str(scans), "test", **how)
    given = evaluation.extract(entry, open_images(scans, split="test", range=[0, 8191]), "test", **how)
    other = evaluation.extract(entry, open_images(scans, split="test", range=[0, 4095]), "test", **how)
    assert np.array_equal(own.x, given.x) and not np.array_equal(own.x, other.x)
    assert np.array_equal(evaluation.embed(entry, str(scans), "test", **how).x, own.x)


def test_other_models_read_by_the_range_of_the_data(scans) -> None:
    assert sslkit.load("random:narrow_resnet", in_chans=1).clean(open_images(scans)).range == (0, 4095)


def test_an_untrained_copy_reads_as_the_entry(entry) -> None:
    assert sslkit.load(f"random:{entry.folder}").scale.range == (0, 8191)


def test_an_export_knows_the_range(entry, tmp_path) -> None:
    model = sslkit.load(sslkit.zoo.export(entry.folder, to="timm", out=tmp_path))
    assert model.scale.range == (0, 8191)
    stored = torch.tensor([0, 8191, 9000], dtype=torch.int32).view(1, 1, 1, 3)
    expected = model.normalize(torch.tensor([0.0, 1.0, 1.0]).view(1, 1, 1, 3))
    assert torch.equal(model.normalize(stored), expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"range": "all"}, r"range must be .*auto"),
        ({"range": [0, 1, 2]}, r"range=\[0.*\] must be two numbers that rise"),
        ({"range": [9, 1]}, r"must be two numbers that rise"),
        ({"data.pages": "some"}, r"data.pages must be first or all"),
        ({"data.max_pixels": 0}, r"data.max_pixels must be a whole number, at least 1"),
        ({"data": "video:x", "range": [0, 1]}, r"range=\[0.*\] is for images"),
        ({"data.source": "video:x", "data.pages": "all"}, r"data.pages=all is for images"),
    ],
)
def test_settings_out_of_range(options: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Config.from_mapping(options)


def test_every_page_is_trained_on(small_run, tmp_path) -> None:
    values = load_digits().images[:16]
    pages = [Image.fromarray((image * 15).astype(np.uint8)) for image in values]
    pages[0].save(tmp_path / "stack.tif", save_all=True, append_images=pages[1:])
    data = {"data": {"source": str(tmp_path / "stack.tif"), "pages": "all"}, "batch_size": 8, "image_size": 8}
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stack.tif").rename(tmp_path / "stacks" / "stack.tif")
    data["data"]["source"] = str(tmp_path / "stacks")
    entry = sslkit.pretrain({**small_run, "method": "simclr", **data, "epochs": 1})
    assert entry.card["data"]["images"] == 16


def test_many_channels_are_trained_on(small_run, tmp_path) -> None:
    """Files of five channels: views, pictures, card and evaluation."""
    tifffile = pytest.importorskip("tifffile")
    values, target = load_digits(return_X_y=True)
    for number in range(40):
        bands = np.stack([values[number].reshape(8, 8) * (200 * (band + 1)) for band in range(5)], -1)
        path = tmp_path / "scenes" / str(target[number] % 2) / f"{number}.tif"
        path.parent.mkdir(parents=True, exist_ok=True)
        tifffile.imwrite(path, bands.astype(np.uint16), photometric="minisblack", planarconfig="contig")
    data = {"data": {"source": str(tmp_path / "scenes")}, "batch_size": 8, "image_size": 8, "workers": 0}
    entry = sslkit.pretrain({**small_run, "method": "simclr", **data, "epochs": 1, "eval": {"k": 1, "tsne": 0}})
    assert entry.card["backbone"]["in_chans"] == 5 and entry.range == (0, 16383)
    assert len(entry.card["normalize"]["mean"]) == 5
    found = evaluation.extract(entry, str(tmp_path / "scenes"), "test", cache=str(tmp_path / "cache"), progress=False)
    assert found.x.shape[1] == 128 and np.isfinite(found.x).all()


def save_bands(folder: Path, infrared: int) -> Path:
    """PNG of red, green and blue, and near infrared that the format calls opacity, in a class each."""
    draw = np.random.default_rng(0)
    for number in range(24):
        scene = draw.integers(1, 200, (8, 8, 4)).astype(np.uint8)
        scene[:3, :, 3], scene[3:, :, 3] = 9, infrared
        path = folder / str(number % 2) / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(scene).save(path)
    return folder


@pytest.fixture(scope="module")
def of_bands(settings, tmp_path_factory) -> sslkit.ZooEntry:
    torch.set_num_threads(1)
    source = str(save_bands(tmp_path_factory.mktemp("bands"), 60))
    data = {"data": {"source": source}, "batch_size": 8, "image_size": 8, "workers": 0}
    out = str(tmp_path_factory.mktemp("zoo"))
    with pytest.warns(UserWarning, match="it is a channel like the others, and not read"):
        return sslkit.pretrain({**settings, "method": "simclr", **data, "epochs": 1, "out": out, "name": "x"})


def test_a_run_keeps_what_its_fourth_plane_is(of_bands) -> None:
    """In its settings, so that a resumed run does not decide again, and in its card."""
    kept = settings_of(of_bands.folder).config.to_dict()
    assert kept["opacity"] is of_bands.card["data"]["opacity"] is of_bands.scale.opacity is False
    kept["opacity"] = None
    assert sslkit.pretrain({**kept, "resume": True}).folder == of_bands.folder
    kept["opacity"] = True
    with pytest.raises(UserError, match=r"opacity was [Ff]alse, is [Tt]rue"):
        sslkit.pretrain({**kept, "resume": True})


def test_evaluation_reads_the_fourth_plane_as_the_training_did(of_bands, tmp_path) -> None:
    root = save_bands(tmp_path / "snow", 255)
    with pytest.warns(UserWarning) as record:
        clean = sslkit.load(of_bands).clean(open_images(root, image_size=8))
    assert clean.scale.opacity is False
    assert "read by opacity=false, as in the training of x, not by its own, true" in str(record[-1].message)
    with pytest.warns(UserWarning, match="read by opacity=true, as given, and x was trained with false"):
        assert sslkit.load(of_bands).clean(open_images(root, opacity=True)).scale.opacity is True
