"""Images of another kind: few labels, beside the network before, raw pixels and ready-made weights."""

import pytest
import torch

import sslkit
from sslkit.backbones.wheels import EASIEST
from sslkit.training import elsewhere
from sslkit.training.build import build_method
from sslkit.training.config import Config
from sslkit.training.data import open_data
from sslkit.training.elsewhere import Elsewhere, measure_controls, measure_network, open_elsewhere


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elsewhere, "LEARNED", 60)
    monkeypatch.setattr(elsewhere, "ASKED", 40)


def test_only_runs_on_the_packages_images_are_shown_elsewhere(small_run) -> None:
    config = Config.from_mapping({**small_run, "data": "digits"})
    data = open_data(config)
    assert open_elsewhere(Config.from_mapping({**small_run, "data": "digits", "epochs": 1}), data) is None, "few steps"
    long = Config.from_mapping({**small_run, "data": "digits", "epochs": 1000})
    assert open_elsewhere(long, data) == Elsewhere("clipart", data.image_size, data.train.channels)
    own = Config.from_mapping({**small_run, "epochs": 1000, "data": "path/of/mine"})
    assert open_elsewhere(own, data) is None and measure_controls(None, 5) == {} == measure_network(None, None, 5)


def test_the_numbers_are_those_of_the_images_it_names(small_run, few) -> None:
    config = Config.from_mapping(small_run)
    data = open_data(config)
    method = build_method(config, data)
    where = Elsewhere("clipart", data.image_size, data.train.channels)
    assert len(set(where.subset("train", 60).rows)) == 60 and where.subset("train", 60).images.name == "clipart"
    before = {name: value.clone() for name, value in method.state_dict().items()}
    measured = measure_network(where, method, 3)
    assert (measured["learned"], measured["n"]) == (60, 40) and measured == measure_network(where, method, 3)
    assert all(torch.equal(value, before[name]) for name, value in method.state_dict().items())
    controls = measure_controls(where, 3)
    assert controls["pixels"]["n"] == 40 and 0 <= controls["pixels"]["few"] <= 1


def test_ready_made_weights_are_measured_only_where_their_wheel_is(few, monkeypatch: pytest.MonkeyPatch) -> None:
    where = Elsewhere("clipart", 28, 1)
    monkeypatch.setattr(elsewhere, "find_spec", lambda name: None)
    assert measure_controls(where, 3).keys() == {"pixels"}
    monkeypatch.setattr(elsewhere, "find_spec", lambda name: True)
    monkeypatch.setattr(
        elsewhere,
        "_ready_made",
        lambda: lambda subset: (torch.eye(len(subset.rows))[:, :40], torch.arange(len(subset.rows)) % 3),
    )
    assert measure_controls(where, 3).keys() == {"pixels", EASIEST}


def test_a_run_says_where_it_wins_and_where_not(small_run, few, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elsewhere, "FEW_STEPS", 1)
    monkeypatch.setattr(elsewhere, "find_spec", lambda name: None)
    entry = sslkit.pretrain({**small_run, "data": "digits", "epochs": 1})
    numbers = entry.card["elsewhere"]
    assert numbers.keys() == {"data", "before", "after", "pixels"} and numbers["before"] != numbers["after"]
    said = " ".join(capsys.readouterr().out.split())
    assert "on 40 images of clipart" in said and "quick probe of 60 labels" in said and "decision quick probe:" in said
