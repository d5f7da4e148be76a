"""The classifier beside an entry: it comes back as it was kept, and belongs to the backbone beside it."""

from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

from sslkit import zoo
from sslkit.errors import UserError
from sslkit.zoo.classifier import IDENTITY, LINKS, SIGMOID, SOFTMAX, Classifier

ABOUT = {"data": "digits", "made": "in a test", "measured": {"metric": "top1", "value": 0.9, "n": 40}}


def classifier(link: str = SOFTMAX) -> Classifier:
    torch.manual_seed(0)
    return Classifier(nn.Sequential(nn.Linear(6, 3)), ("a", "b", "c"), link, ABOUT)


@pytest.fixture
def entry(tmp_path: Path) -> zoo.ZooEntry:
    return zoo.save(tmp_path / "entry", {"weight": torch.ones(3)}, {"method": "swav"})


@pytest.mark.parametrize("link", LINKS)
def test_it_comes_back_as_it_was_kept(entry: zoo.ZooEntry, link: str) -> None:
    x = torch.randn(30, 6)
    entry.keep_classifier(classifier(link))
    kept = zoo.ZooEntry.load(entry.folder).classifier()
    assert (kept.classes, kept.link, kept.about) == (("a", "b", "c"), link, ABOUT)
    torch.testing.assert_close(kept(x), classifier(link)(x), rtol=0, atol=0)
    assert kept.layers.training is False and not any(p.requires_grad for p in kept.layers.parameters())


def test_predictions_are_shares_of_classes_or_numbers() -> None:
    outputs = torch.tensor([[0.0, 1.0, 2.0]])
    total = sum(torch.tensor([0.0, 1.0, 2.0]).exp())
    torch.testing.assert_close(classifier(SOFTMAX).predictions(outputs)[0, 2], torch.tensor(2.0).exp() / total)
    torch.testing.assert_close(classifier(SIGMOID).predictions(outputs)[0, 0], torch.tensor(0.5))
    assert classifier(IDENTITY).predictions(outputs) is outputs


def test_an_entry_without_one_says_what_makes_it(entry: zoo.ZooEntry) -> None:
    with pytest.raises(UserError, match="has no classifier: make an entry that has one"):
        entry.classifier()


def test_one_of_another_backbone_is_refused(entry: zoo.ZooEntry) -> None:
    kept = entry.keep_classifier(classifier())
    safetensors.torch.save_file({"weight": torch.zeros(3)}, entry.folder / "backbone.safetensors")
    with pytest.raises(UserError, match="another backbone"):
        kept.classifier()


def test_outputs_and_classes_must_agree(entry: zoo.ZooEntry) -> None:
    wrong = Classifier(nn.Sequential(nn.Linear(6, 4)), ("a", "b", "c"), SOFTMAX, ABOUT)
    with pytest.raises(UserError, match="4 outputs, and the card names 3 classes"):
        entry.keep_classifier(wrong)
