"""A start that is ruined says so: the accuracy before training, one that falls below it, features that are zero."""

import re

import pytest
import torch

import sslkit
from sslkit.numerics.paired import Paired
from sslkit.training import monitor
from sslkit.training.quick_evaluation import few_accuracy, harm, of_largest_class, shrink, zeros


def test_what_an_accuracy_is_below() -> None:
    """DIET from efficientnet_lite0, after 30 steps: 52.2 % of 651, from 83.5 %, where one class has 71.1 %."""

    def gain(mean: float, high: float) -> Paired:
        return Paired(mean, 2 * mean - high, high, 651, 651)

    assert harm(0.522, 651, gain(-0.313, -0.27), 0.711) == [
        "83.5 % before training",
        "71.1 % by always answering the largest class",
    ]
    assert harm(0.80, 651, gain(-0.035, -0.01), 0.711) == ["83.5 % before training"]
    assert harm(0.82, 651, gain(-0.015, 0.002), 0.711) == [] == harm(0.7, 651, None, 0.711), "within the interval"


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


def test_few_labels_are_one_of_each_class_and_the_draws_are_fixed() -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(60) % 3
    x = torch.eye(3)[y] + 0.01 * torch.randn(60, 3, generator=generator)
    assert few_accuracy(x[:30], y[:30], x[30:], y[30:]) == 1.0
    noise = torch.randn(60, 3, generator=generator)
    chance = few_accuracy(noise[:30], y[:30], noise[30:], y[30:])
    assert 0.2 < chance < 0.5 and chance == few_accuracy(noise[:30], y[:30], noise[30:], y[30:])


def test_few_labels_are_those_of_the_drawn_rows_alone() -> None:
    """The mean over the draws, beside a nearest mean of one image of each class, which is that image."""
    x, y = torch.tensor([[0.0], [10.0], [1.0], [9.0]]), torch.tensor([0, 1, 0, 1])
    query, wanted = torch.tensor([[0.4], [9.6], [3.0], [7.0]]), torch.tensor([0, 1, 0, 1])
    assert few_accuracy(x, y, query, wanted) == 1.0
    assert few_accuracy(x, 1 - y, query, wanted) == 0.0


def test_pixels_are_judged_on_the_same_images(small_run, capsys) -> None:
    entry = sslkit.pretrain({**small_run, "epochs": 1})
    judged = entry.card["pixels"]
    assert set(judged) == {"knn", "probe", "few"} <= set(entry.card["after"]) and set(judged) <= set(
        entry.card["before"]
    )
    said = capsys.readouterr().out
    line = next(line for line in said.splitlines() if "nearest-neighbour accuracy" in line)
    shown = [f"{100 * entry.card[stage]['knn']:.1f}" for stage in ("before", "pixels", "after")]
    assert re.findall(r"([0-9.]+) %", line) == shown


def test_pixels_of_rows_of_items_are_shrunk_by_channel() -> None:
    pixels = torch.full((2, 3, 64, 64), 255, dtype=torch.uint8)
    pixels[:, 0] = 0
    assert shrink(pixels).shape == (2, 3 * 16 * 16)
    assert torch.allclose(shrink(pixels).unflatten(1, (3, -1)).mean((0, 2)), torch.tensor([0.0, 1.0, 1.0]))
    assert shrink(torch.zeros(2, 5, 3, 8, 8, dtype=torch.uint8)).shape == (2, 5 * 3 * 8 * 8)
