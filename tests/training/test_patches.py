"""The picture and the number of a run's patches, at its start and over time."""

import pytest
import safetensors.torch
import timm
import torch
from PIL import Image

import sslkit
from sslkit.models.patches import CELL
from sslkit.training import patches

NAME = "vit_tiny_patch16_224"


@pytest.fixture
def begun(small_run, tmp_path) -> dict:
    path = tmp_path / "vit.safetensors"
    torch.manual_seed(1)
    safetensors.torch.save_file(timm.create_model(NAME).state_dict(), path)
    data = {**small_run["data"], "channels": 3}
    return {**small_run, "method": "simclr", "image_size": 64, "init": f"timm:{NAME}:{path}", "data": data}


def test_a_run_from_weights_draws_its_patches_and_notes_their_number(begun, capsys, monkeypatch) -> None:
    seen = {}
    draw = patches.Patches._draw

    def look(self, *given: object) -> None:
        seen.update(self.columns)
        draw(self, *given)

    monkeypatch.setattr(patches.Patches, "_draw", look)
    entry = sslkit.pretrain(begun)
    said = " ".join(capsys.readouterr().out.split())
    assert list(seen) == ["start", "epoch 1", "epoch 2"] and all(of.shape == (8, 4, 4, 3) for of in seen.values())
    assert not torch.equal(seen["start"], seen["epoch 2"])
    header, *rows = (entry.folder / "metrics.csv").read_text().splitlines()
    column = header.split(",").index("dse")
    assert len([row for row in rows if row.split(",")[column]]) == 2
    assert "patches (DSE) " in said and "patches.png" in said
    with Image.open(entry.folder / "patches.png") as picture:
        assert picture.width > 4 * CELL and picture.height > 8 * CELL


def test_columns_are_the_start_and_the_newest(begun, monkeypatch) -> None:
    monkeypatch.setattr(patches, "COLUMNS", 2)
    seen = []
    monkeypatch.setattr(patches.Patches, "_draw", lambda self, *_: seen.append(list(self.columns)))
    sslkit.pretrain(begun)
    assert seen == [["start"], ["start", "epoch 1"], ["start", "epoch 2"]]


def test_networks_without_places_and_runs_from_random_weights_have_none(small_run) -> None:
    entry = sslkit.pretrain({**small_run, "epochs": 1})
    assert not (entry.folder / "patches.png").exists() and "dse" not in (entry.folder / "metrics.csv").read_text()
