"""The score of a film is the mean of the softmax of its 30 views, against a loop that reads and cuts them by itself."""

from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from torch import nn

from evaluation.tasks.action.cached import train_head
from evaluation.tasks.action.classifier import build_classifier
from evaluation.tasks.action.crops import Sizes
from evaluation.tasks.action.datasets import open_films
from evaluation.tasks.action.films import SurveyedVideos, survey
from evaluation.tasks.action.reading import ClipShape, EvalViews, FilmViews
from evaluation.tasks.action.recipes import Recipe
from evaluation.tasks.action.testing import score_films, view_features
from evaluation.tuning.loop import Diverged
from sslkit.models.model import Model
from sslkit.runtime.context import Runtime

SHAPE = ClipShape(4, 2, Sizes(16, (18, 22), test=24))  # the films are 24 pixels high: nothing is resized
OPTIONS = Runtime(device=torch.device("cpu"), workers=0, progress=False)


@pytest.fixture(scope="module")
def test_films(motion: Path) -> SurveyedVideos:
    return survey(open_films(f"video:{motion}", "test"), on_error="skip")


@pytest.fixture
def net(network: Model) -> nn.Sequential:
    net = build_classifier(network, "linear", 3, dropout=0.5, seed=0).eval()
    with torch.no_grad():
        net.head.weight.mul_(100)  # else all classes are as likely and nothing could be told
    return net


def looped(path: Path, net: nn.Sequential, model: Model) -> np.ndarray:
    """(30, K): the softmax of each view."""
    with av.open(str(path)) as file:
        frames = np.stack([frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)])
    last = max(len(frames) - 7, 0)
    probabilities = []
    for clip in range(10):
        numbers = [min(last * clip // 10 + 2 * step, len(frames) - 1) for step in range(4)]
        for left in (0, 4, 8):
            pixels = torch.tensor(frames[numbers][:, :, left : left + 24]).permute(3, 0, 1, 2) / 255
            pixels = (pixels - torch.tensor(model.mean).view(3, 1, 1, 1)) / torch.tensor(model.std).view(3, 1, 1, 1)
            with torch.no_grad():
                probabilities.append(net(pixels[None])[0].double().softmax(0))
    return torch.stack(probabilities).numpy()


def test_the_score_is_the_mean_of_the_softmax_over_30_views(
    test_films: SurveyedVideos, net: nn.Sequential, network: Model
) -> None:
    scores = score_films(net, network, FilmViews(test_films, SHAPE, EvalViews(10, 3)), OPTIONS)
    assert scores.rows.tolist() == list(range(6)) and scores.probabilities.shape == (6, 3) and not scores.unreadable
    for row in scores.rows:
        each = looped(test_films.films.path(row), net, network)
        assert each.shape == (30, 3)
        assert scores.probabilities[row] == pytest.approx(each.mean(0), abs=2e-3), "two decoders' rounding of colours"
    assert np.ptp(scores.probabilities, axis=0).max() > 0.01, "the films do differ"


def test_workers_and_batches_change_nothing(
    test_films: SurveyedVideos, net: nn.Sequential, network: Model, monkeypatch
) -> None:
    views = FilmViews(test_films, SHAPE, EvalViews(4, 3))
    expected = score_films(net, network, views, OPTIONS).probabilities
    monkeypatch.setattr("evaluation.tasks.action.testing.PASS", 5)
    again = score_films(net, network, views, replace(OPTIONS, workers=2)).probabilities
    assert again == pytest.approx(expected, abs=1e-6)


def test_scores_that_are_not_finite_are_refused(test_films: SurveyedVideos, net: nn.Sequential, network: Model) -> None:
    with torch.no_grad():
        net.head.bias.fill_(torch.nan)
    with pytest.raises(Diverged, match="NaN"):
        score_films(net, network, FilmViews(test_films, SHAPE, EvalViews(1, 1)), OPTIONS)


def test_features_are_those_of_the_backbone(test_films: SurveyedVideos, net: nn.Sequential, network: Model) -> None:
    views = FilmViews(test_films, SHAPE, EvalViews(2, 1))
    (row, features, reason), *rest = view_features(net.backbone, network, views, OPTIONS)
    assert (row, reason, len(rest)) == (0, "", 5) and features.shape == (2, network.width)


def test_a_head_on_features_learns_to_tell_them_apart(network: Model) -> None:
    rng = torch.Generator().manual_seed(0)
    y = np.repeat([0, 1], 20)
    centres = torch.randn(2, network.width, generator=rng)
    counts = [1 + number % 3 for number in range(len(y))]
    noise = [torch.randn(count, network.width, generator=rng) for count in counts]
    features = [centres[label] + some for label, some in zip(y, noise, strict=True)]
    net = build_classifier(network, "linear", 2, dropout=0.0, seed=0)
    recipe = Recipe("linear", "", (1,), epochs=20, batch_size=8, lr=0.05)
    losses = head_losses(net, features, y, recipe)
    assert len(losses) == 20 and losses[-1] < 0.1 < losses[0]
    with torch.no_grad():
        guessed = [net.head(one).softmax(1).mean(0).argmax().item() for one in features]
    assert guessed == y.tolist()
    again = build_classifier(network, "linear", 2, dropout=0.0, seed=0)
    assert head_losses(again, features, y, recipe) == losses
    with pytest.raises(Diverged):
        train_head(net, [one * torch.inf for one in features], y, recipe, OPTIONS, checkpoint=None)


def head_losses(net: nn.Module, features: list, y: np.ndarray, recipe: Recipe, seed: int = 0) -> list[float]:
    """The mean loss of each epoch."""
    return [
        loss for _, loss in train_head(net, features, y, recipe, replace(OPTIONS, seed=seed), checkpoint=None).losses
    ]


def test_a_head_on_features_learns_behind_dropout(network: Model) -> None:
    """What is hidden is a function of seed and step, whatever else draws from PyTorch's generator."""
    features = list(torch.randn(12, 2, network.width, generator=torch.Generator().manual_seed(0)))
    y = np.repeat([0, 1], 6)

    def trained(dropout: float, seed: int = 0) -> tuple[list[float], torch.Tensor]:
        net = build_classifier(network, "linear", 2, dropout=dropout, seed=0)
        recipe = Recipe("linear", "", (1,), epochs=3, batch_size=4, lr=0.05, dropout=dropout)
        losses = head_losses(net, features, y, recipe, seed)
        assert not net.dropout.training and not net.head.training
        return losses, net.head.weight.detach()

    losses, weight = trained(0.5)
    assert losses != trained(0.0)[0]
    state = torch.get_rng_state()
    torch.manual_seed(7)
    again, weight_again = trained(0.5)
    assert again == losses and torch.equal(weight, weight_again)
    torch.set_rng_state(state)
    assert trained(0.5)[0] == losses and torch.equal(state, torch.get_rng_state())
    assert (trained(1.0)[1] == build_classifier(network, "linear", 2, dropout=0.0, seed=0).head.weight).all()
