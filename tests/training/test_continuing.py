"""What `dry=true` says of going on from given weights, and a pilot of it."""

import re
import tempfile
from pathlib import Path

import pytest
import safetensors.torch
import timm
import torch

import sslkit
from sslkit.errors import UserError
from sslkit.training import continuing
from sslkit.training.config import Config


@pytest.fixture
def dry(small_run, tmp_path, monkeypatch) -> dict:
    """A dry run from random weights of a tiny network of timm, whose epochs take a second."""
    torch.manual_seed(0)
    file = tmp_path / "resnet.safetensors"
    safetensors.torch.save_file(timm.create_model("test_resnet").state_dict(), file)
    monkeypatch.setattr(continuing, "measure_epoch", lambda *_: 1.0)
    data = {**small_run["data"], "channels": 3}
    init = f"timm:test_resnet:{file}"
    return {**small_run, "method": "simclr", "data": data, "init": init, "dry": True, "device": "cpu"}


def said(capsys: pytest.CaptureFixture) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_a_dry_run_tells_what_the_weights_make_of_the_images(dry, capsys) -> None:
    assert sslkit.pretrain(dry) is None
    told = said(capsys)
    assert "start features of 96 images have a uniformity of -" in told
    assert "from what batch normalisation remembers" not in told  # of random weights
    assert "labels 3-NN " in told and "of 40 images by 96 others, raw pixels " in told
    assert "time about 1 s an epoch of 96 images" in told
    assert "decision not told whether to go on: nothing is known of such networks before a pilot" in told
    assert not Path(dry["out"]).exists()


def test_without_init_nothing_of_it_is_told(dry, capsys) -> None:
    sslkit.pretrain({**dry, "init": None, "backbone": "narrow_resnet"})
    assert "decision" not in said(capsys)


@pytest.mark.parametrize("labelled", [True, False])
def test_a_pilot_tells_what_it_gained_and_leaves_nothing(labelled: bool, dry, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    if not labelled:
        images = sslkit.open_images("fashion_mnist").__getitems__(list(range(96)))["images"]
        dry["data"] = {"source": images.expand(-1, 3, -1, -1).numpy()}
    before = torch.get_rng_state()
    sslkit.pretrain({**dry, "epochs": 5, "pilot": "2s"})
    assert torch.equal(torch.get_rng_state(), before)
    told = said(capsys)
    measure = "kNN" if labelled else "other view found"
    assert re.search(rf"decision .*: the pilot changed {measure} [+-][\d.]+ points", told)
    assert ("measured without labels" in told) == (not labelled)
    assert list((tmp_path / "scratch").iterdir()) == [] and not Path(dry["out"]).exists()


def test_a_pilot_is_as_long_as_asked_and_no_longer_than_the_run() -> None:
    asked = Config.from_mapping({"init": "efficientnet_lite0", "dry": True, "pilot": "5min", "epochs": 10})
    assert [continuing.pilot_settings(asked, seconds).epochs for seconds in (100.0, 299.0, 1.0)] == [3, 1, 10]
    shorter = continuing.pilot_settings(asked, 100.0)
    assert (shorter.dry, shorter.pilot, shorter.eval.every) == (False, None, 3)


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"pilot": "0.5s"}, r"pilot=0.5s: an epoch takes about 1 s: give a longer time"),
        ({"pilot": "soon"}, "pilot=soon: give a time such as"),
        ({"pilot": "5min", "dry": False}, r"add dry=true and init="),
        ({"pilot": "5min", "init": None}, r"add dry=true and init="),
        ({"pilot": "5min", "trainer.devices": 2}, r"trainer.devices=1"),
    ],
)
def test_a_pilot_that_cannot_be_is_one_error(changed: dict, match: str, dry) -> None:
    with pytest.raises(UserError, match=match):
        sslkit.pretrain({**dry, **changed})
    assert not Path(dry["out"]).exists()
