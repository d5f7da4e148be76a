"""The time and memory of a run, before it starts."""

import re
import time

import pytest
import torch

from sslkit.cli import sweep

import sslkit
from sslkit.errors import UserError
from sslkit.runtime.step_cost import measure_step
from sslkit.training import estimate
from sslkit.training.build import build_method
from sslkit.training.config import Config
from sslkit.training.data import open_data


def opened(**settings: object) -> tuple:
    given = {"method": "byol+koleo", "data": "digits", "backbone": "narrow_resnet", "epochs": 2, **settings}
    config = Config.from_mapping({"batch_size": 64, "device": "cpu", **given})
    data = open_data(config)
    return config, data, build_method(config, data)


def test_a_step_is_timed_by_images_and_its_kept_bytes_counted() -> None:
    layer = torch.nn.Linear(1000, 1, bias=False)
    asked: list[int] = []

    def loss(images: int) -> torch.Tensor:
        asked.append(images)
        time.sleep(0.02 * images)
        return layer(torch.ones(images, 1000)).sum()

    cost = measure_step(loss, 3, 64)
    assert asked[:2] == [3, 3] and 0.02 * asked[-1] >= 0.3 and asked[-1] < 64
    assert 0.02 <= cost.seconds < 0.04
    assert cost.bytes == 4 * 1000  # the input, float32; the weights are not the step's
    asked.clear()
    measure_step(loss, 1, 4)
    assert max(asked) == 4


def test_nothing_of_the_run_is_changed(caplog, monkeypatch) -> None:
    monkeypatch.setattr(estimate, "FEW", 0)
    config, data, method = opened()
    before = {name: value.clone() for name, value in method.state_dict().items()}
    state = torch.get_rng_state()
    with caplog.at_level("INFO", "sslkit.say"):
        estimate.announce_cost(config, data, method)
    assert torch.equal(torch.get_rng_state(), state)
    after = method.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert all(one.grad is None for one in method.parameters())
    (said,) = (one.getMessage() for one in caplog.records if one.getMessage().startswith("time "))
    assert " an epoch, " in said and " GB of memory, from a measured step" in said


@pytest.mark.parametrize("method", ["supervised", "w_mse"])
def test_objectives_with_labels_teachers_and_large_batches(method: str, caplog, monkeypatch) -> None:
    monkeypatch.setattr(estimate, "FEW", 0)
    with caplog.at_level("INFO", "sslkit.say"):
        estimate.announce_cost(*opened(method=method, backbone="auto", batch_size=256))
    assert sum(one.getMessage().startswith("time ") for one in caplog.records) == 1


def test_a_run_of_seconds_says_nothing(caplog) -> None:
    with caplog.at_level("INFO", "sslkit.say"):
        estimate.announce_cost(*opened())
    assert not caplog.records


def test_a_long_run_names_what_is_shorter_and_what_fits(photos, caplog, monkeypatch) -> None:
    """resnet18 at 64 pixels keeps its resolution, so that 96 pixels take less."""
    monkeypatch.setattr(estimate, "LONG", 0)
    monkeypatch.setattr(estimate, "FEW", 0)
    monkeypatch.setattr(estimate.psutil, "virtual_memory", lambda: type("Memory", (), {"available": 2**28}))
    settings = {"backbone": "resnet18", "image_size": 64, "batch_size": 8, "data": str(photos)}
    with caplog.at_level("INFO", "sslkit.say"):
        estimate.announce_cost(*opened(**settings))
    said = "\n".join(one.getMessage() for one in caplog.records)
    assert "hint      image_size=96 takes 1/" in said and "of this time (measured)" in said
    assert "hint      only 0.2 GB of memory are free: batch_size=2 or trainer.checkpoint_activations" in said


def test_files_on_a_cpu_have_a_size_and_a_network_that_finish(photos, monkeypatch) -> None:
    _, data, method = opened(backbone="auto", data=str(photos), batch_size=8)
    assert data.image_size == 96 and method.backbone.recipe.name == "resnet18"
    monkeypatch.setattr("sslkit.training.data.is_cpu", lambda accelerator: False)
    monkeypatch.setattr("sslkit.training.build.is_cpu", lambda accelerator: False)
    _, data, method = opened(backbone="auto", data=str(photos), batch_size=8)
    assert data.image_size == 224 and method.backbone.recipe.name == "resnet50"


def test_what_the_machine_chose_is_kept_for_a_resume(photos, small_run, monkeypatch) -> None:
    small = {**small_run, "batch_size": 4, "workers": 0, "data": {"source": str(photos)}, "backbone": "narrow_resnet"}
    entry = sslkit.pretrain({**small, "epochs": 1})
    assert Config.from_mapping(entry.card["config"]).image_size == 96
    assert sslkit.pretrain({**small, "epochs": 1, "resume": True}).folder == entry.folder
    assert sweep.examine([Config.from_mapping({**small, "epochs": 1})])[0].state == "done"
    written = entry.folder / "config.yaml"
    older = re.sub(r"lr:\n    value: .*", "lr:\n    value: 0.0123", written.read_text())  # as an older version chose it
    assert older != written.read_text()
    written.write_text(older)
    assert sweep.examine([Config.from_mapping({**small, "epochs": 1})])[0].state == "done"
    named = {**small, "epochs": 1, "name": "x"}
    assert sslkit.pretrain(named).folder == sslkit.pretrain({**named, "resume": True}).folder
    monkeypatch.setattr("sslkit.training.data.CPU_SIZE", 64)  # another machine
    assert sslkit.pretrain({**small, "epochs": 1, "resume": True}).folder == entry.folder
    with pytest.raises(UserError, match=r"image_size was 96, is 64"):
        sslkit.pretrain({**small, "epochs": 1, "resume": True, "image_size": 64})


@pytest.fixture
def photos(tmp_path):
    from PIL import Image

    clipart = sslkit.open_images("clipart", split="train")
    folder = tmp_path / "photos"
    folder.mkdir()
    for row in range(10):
        Image.fromarray(clipart.pixels[row].transpose(1, 2, 0)).resize((128, 128)).save(folder / f"{row}.png")
    return folder
