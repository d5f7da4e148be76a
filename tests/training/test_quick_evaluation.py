"""A start that is ruined says so: the accuracy before training, one that falls below it, features that are zero."""

import pytest
import torch

import sslkit
from sslkit.training import monitor
from sslkit.training.quick_evaluation import harm, of_largest_class, zeros


def test_what_an_accuracy_is_below() -> None:
    """DIET from efficientnet_lite0, after 30 steps: 52.2 % of 651, from 83.5 %, where one class has 71.1 %."""
    assert harm(0.522, 651, {"knn": 0.835}, 0.711) == [
        "83.5 % before training",
        "71.1 % by always answering the largest class",
    ]
    assert harm(0.80, 651, {"knn": 0.835}, 0.711) == ["83.5 % before training"]
    assert harm(0.82, 651, {"knn": 0.835}, 0.711) == [] == harm(0.7, 651, {}, 0.711), "within the interval"


def test_images_without_features_are_counted() -> None:
    x = torch.ones(651, 8)
    x[:6] = 0
    assert zeros(x) is None
    x[6] = 0
    assert zeros(x) == "the features of 7 of 651 images are zero" == zeros(x[:100], x[100:])


def test_the_start_is_printed_before_the_first_epoch(small_run, capsys) -> None:
    entry = sslkit.pretrain({**small_run, "epochs": 1})
    said = " ".join(capsys.readouterr().out.split())
    before = f"before 3-NN {100 * entry.card['before']['knn']:.1f} %"
    assert said.index(before) < said.index("epoch 1/1") and "on 40 held-out images, where the largest class has" in said
    assert "warning" not in said


@pytest.mark.parametrize("epochs", [2])
def test_a_dead_backbone_is_said_once(epochs: int, small_run, monkeypatch, capsys) -> None:
    healthy = monitor.features

    def dead(*given: object) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = healthy(*given)
        return torch.zeros_like(x), y

    monkeypatch.setattr(monitor, "features", dead)
    monkeypatch.setattr(monitor, "of_largest_class", lambda images: 0.9)
    assert of_largest_class is not monitor.of_largest_class
    sslkit.pretrain({**small_run, "epochs": epochs})
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("warning: epoch 1: the features of ") == 1 == said.count("images are zero")
    assert said.count("90.0 % by always answering the largest class; training may be ruining the backbone") == 1
