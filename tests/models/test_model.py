"""A loaded model is a module of pixels: features, outputs, files, devices and what it refuses."""

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from random_entries import classifying, made
from torch import nn

import sslkit
from sslkit.errors import UserError
from sslkit.models.model import Model
from sslkit.zoo.classifier import IDENTITY, SIGMOID, SOFTMAX

PIXELS = torch.randint(0, 256, (5, 1, 28, 28), dtype=torch.uint8)


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    """Six pictures of several shapes and modes in a folder, one of them upright by its EXIF tag alone, one damaged."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "photographs"
    folder.mkdir()
    for number, shape in enumerate([(40, 60), (60, 40, 3), (28, 28), (90, 31, 3), (50, 50, 4), (33, 64, 3)]):
        smooth = rng.uniform(0, 255, (8, 8, *shape[2:])).astype(np.uint8)
        if shape[2:] == (4,):
            smooth[..., 3] = 255
        picture = Image.fromarray(smooth).resize(shape[1::-1], Image.Resampling.BICUBIC)
        exif = Image.Exif()
        exif[0x0112] = 6 if number == 1 else 1
        picture.save(folder / f"{number}.png", exif=exif)
    (folder / "damaged.png").write_bytes(b"\x89PNG\r\n")
    return folder


def test_a_model_takes_pixels_and_moves_and_copies_like_any_module(tmp_path: Path) -> None:
    model = sslkit.load(made(tmp_path, "a", "digits"))
    assert isinstance(model, nn.Module) and not model.training and model.classes is None
    features = model(PIXELS)
    torch.testing.assert_close(features, model.net(model.normalize(PIXELS)).detach())
    torch.testing.assert_close(features, model(PIXELS / 255))
    assert {name.partition(".")[0] for name, _ in model.named_parameters()} == {
        "backbone"
    } and model.device.type == "cpu"
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert isinstance(other, Model) and torch.equal(other(PIXELS), features)
    assert model.to(torch.float64)(PIXELS.double() / 255).dtype == torch.float64


def test_pixels_that_are_normalised_already_are_refused_and_the_network_is_named(tmp_path: Path) -> None:
    model = sslkit.load(made(tmp_path, "a", "digits"))
    with pytest.raises(UserError, match=r"from -0\.75 to 1\.75: .* give what is normalised already to model\.net$"):
        model(((PIXELS / 255 - 0.3) / 0.4).clamp(-0.75, 1.75))
    with pytest.raises(
        UserError, match=r"takes batches of pixels \(N, 1, height, width\), and these are \(5, 28, 28, 1\)"
    ):
        model(PIXELS.permute(0, 2, 3, 1))
    with pytest.raises(UserError, match=r"torch\.int64 may hold any"):
        model(PIXELS.long())


@pytest.mark.parametrize("link", [SOFTMAX, SIGMOID, IDENTITY])
def test_outputs_and_predictions_are_those_of_the_classifier(link: str, tmp_path: Path) -> None:
    folder = classifying(tmp_path, link)
    model, entry = sslkit.load(folder), sslkit.ZooEntry.load(folder)
    features, classifier = model.net(model.normalize(PIXELS)), entry.classifier()
    torch.testing.assert_close(model(PIXELS), classifier.layers(features).detach())
    found = model.predict(PIXELS.numpy())
    torch.testing.assert_close(torch.from_numpy(found.values), classifier(features).detach())
    assert found.classes == model.classes == ("cat", "dog", "=cow") and list(found.ids) == list("01234")
    assert torch.equal(copy.deepcopy(model)(PIXELS), model(PIXELS))
    head = {SOFTMAX: "path  class", SIGMOID: "path  classes", IDENTITY: "path  cat"}[link]
    assert str(found).startswith(head) and len(str(found).splitlines()) == 6
    table = model.features(PIXELS.numpy())
    torch.testing.assert_close(torch.from_numpy(table.x), features.detach())
    if link == IDENTITY:
        with pytest.raises(UserError, match="tells numbers, not classes"):
            _ = found.probabilities


def test_files_of_any_shape_are_read_as_the_transform_reads_them(tmp_path: Path, photographs: Path, caplog) -> None:
    model = sslkit.load(classifying(tmp_path))
    table = model.features(photographs)
    assert [Path(path).name for path in table.ids] == [f"{n}.png" for n in range(6)] and len(table.unreadable) == 1
    assert "1 image cannot be read and left out: " in caplog.text
    squares = torch.stack([model.transform(Image.open(path)) for path in table.ids])
    assert squares.dtype == torch.uint8 and squares.shape == (6, 1, 28, 28)
    expected = model.net(model.normalize(squares)).detach().numpy()
    np.testing.assert_allclose(np.asarray(table), expected, rtol=1e-4, atol=1e-5)
    one = model.predict(str(photographs / "3.png"))
    assert len(one) == 1 and one.labels[0] in model.classes
    np.testing.assert_allclose(one.values[0], model.predict(photographs).values[3], rtol=1e-5, atol=1e-6)
