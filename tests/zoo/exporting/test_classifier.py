"""The classifier of an entry in every form: the same probabilities from pixels, and from the bytes of real JPEGs."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from photographs import FIVE, write_five
from PIL import Image
from torch import nn

import sslkit
from sslkit import zoo
from sslkit.errors import UserError
from sslkit.zoo import exporting
from sslkit.zoo.classifier import IDENTITY, SIGMOID, SOFTMAX, Classifier

CLASSES = ("cat", "dog", "a | b")
READ = ["hf", "timm", "torchvision", pytest.param("onnx", marks=pytest.mark.slow)]


@pytest.fixture
def classifying(entry_of) -> Callable[..., zoo.ZooEntry]:
    """Makes an entry with a classifier: classifying(backbone, image_size, in_chans=3, link=SOFTMAX)."""

    def make(*network: object, link: str = SOFTMAX, layers: nn.Sequential | None = None) -> zoo.ZooEntry:
        entry = entry_of(*network)
        linear = nn.Linear(entry.card["backbone"]["width"], len(CLASSES))
        nn.init.normal_(linear.weight)
        layers = nn.Sequential(linear) if layers is None else layers
        return entry.keep_classifier(Classifier(layers.eval(), CLASSES, link, {"data": "drawn", "made": "at random"}))

    return make


def by_the_lines(path: Path, inputs: list) -> np.ndarray:
    """The predictions of a person who pastes the lines; inputs: tensors (N, C, S, S), or paths for `read`."""
    scope: dict = {}
    exec("\n".join(exporting.lines(path)), scope)
    assert scope["classes"] == list(CLASSES)
    said = next(line for line in exporting.lines(path) if line.startswith("read = ")).partition("  # ")[2]
    is_onnx, found = hasattr(scope["net"], "run"), []
    for given in inputs:
        pixels = given if isinstance(given, torch.Tensor) else scope["read"](given)
        local: dict = {}
        exec(said, scope | {"read": lambda _, x=pixels: np.asarray(x) if is_onnx else x}, local)
        found.append(np.asarray(local["probabilities"] if is_onnx else local["probabilities"].detach()))
    return np.concatenate(found)


@pytest.mark.parametrize("to", exporting.names())
def test_probabilities_are_those_of_the_entry_from_pixels_and_from_files(to: str, classifying, tmp_path: Path) -> None:
    entry, five = classifying("resnet18", 96), write_five(tmp_path / "five")
    model, path = sslkit.load(entry.folder), zoo.export(entry, to=to)
    expected = model.predict(str(five))
    assert [Path(name).relative_to(five).as_posix() for name in expected.ids] == list(FIVE)
    squares = torch.stack([model.transform(Image.open(five / name)) for name in FIVE])
    np.testing.assert_allclose(by_the_lines(path, [model.normalize(squares)]), expected.values, rtol=0, atol=1e-5)
    of_files = by_the_lines(path, [five / name for name in FIVE])
    apart = float(np.abs(of_files - expected.values).max())
    assert apart <= 1e-5, apart


@pytest.mark.parametrize("to", READ)
def test_an_export_predicts_like_its_entry(to: str, classifying) -> None:
    entry = classifying("resnet18", 16, 1)
    model, again = sslkit.load(entry.folder), sslkit.load(zoo.export(entry, to=to))
    pixels = np.random.default_rng(0).integers(0, 256, (7, 1, 16, 16), dtype=np.uint8)
    assert again.classes == CLASSES and again.classifier.link == SOFTMAX
    np.testing.assert_allclose(again.predict(pixels).values, model.predict(pixels).values, atol=1e-5)
    np.testing.assert_allclose(again.features(pixels).x, model.features(pixels).x, atol=1e-5)


@pytest.mark.parametrize("to", READ)
def test_numbers_keep_the_half_widths_of_their_intervals(to: str, classifying) -> None:
    entry = classifying("resnet18", 16, 1, link=IDENTITY)
    entry = entry.keep_classifier(replace(entry.classifier(), half_widths=(0.5, 2.0, 30.0)))
    again = sslkit.load(zoo.export(entry, to=to)).predict(np.zeros((2, 1, 16, 16), np.uint8))
    assert again.half_widths == (0.5, 2.0, 30.0)
    assert again.columns() == ["path", *CLASSES, *(f"{name}_{end}" for name in CLASSES for end in ("low", "high"))]
    first = next(again.lines())
    np.testing.assert_allclose(
        [first[1] - 0.5, first[1] + 0.5, first[3] + 30.0], [first[4], first[5], first[9]], rtol=1e-5
    )


@pytest.mark.parametrize("link", [SIGMOID, IDENTITY])
def test_several_classes_and_numbers(link: str, classifying) -> None:
    entry = classifying("vit_tiny_patch16_224", 32, 3, link=link)
    again = sslkit.load(path := zoo.export(entry, to="hf"))
    pixels = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    torch.testing.assert_close(again(pixels), sslkit.load(entry.folder)(pixels), rtol=1e-5, atol=1e-5)
    assert (again.classes, again.classifier.link) == (CLASSES, link)
    word = "sigmoid()" if link == SIGMOID else "numbers = net("
    assert any(word in line for line in exporting.lines(path))


def test_the_folder_of_the_hub_names_its_classes_and_plain_timm_makes_it(classifying, monkeypatch) -> None:
    import timm

    entry = classifying("vit_tiny_patch16_224", 32, 3)
    path = zoo.export(entry, to="hf")
    config = json.loads((path / "config.json").read_text())
    assert config["num_classes"] == 3 and config["label_names"] == list(CLASSES)
    readme = (path / "README.md").read_text()
    assert "pipeline_tag: image-classification" in readme and "gives 3 probabilities" in readme
    monkeypatch.chdir(path.parent)
    net = timm.create_model(f"local-dir:{path.name}", pretrained=True).eval()
    pixels = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    model = sslkit.load(entry.folder)
    torch.testing.assert_close(net(model.normalize(pixels)).detach(), model(pixels), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_several_layers_are_held_by_onnx_and_torch_export_alone(classifying) -> None:
    layers = nn.Sequential(nn.Linear(512, 4), nn.ReLU(), nn.Linear(4, 3))
    entry = classifying("resnet18", 16, 1, layers=layers)
    with pytest.raises(UserError, match="several layers, and timm's have one: export it to onnx or torch_export"):
        zoo.export(entry, to="timm")
    assert sslkit.load(zoo.export(entry, to="onnx")).classes == CLASSES
