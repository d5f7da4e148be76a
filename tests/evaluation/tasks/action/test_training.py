"""Training on films: the loss falls, a frozen backbone stays, a stopped training ends as one that was not stopped."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import nn

from evaluation.tasks.action import training
from evaluation.tasks.action.classifier import Detached, build_classifier, trained_part
from evaluation.tasks.action.crops import Sizes
from evaluation.tasks.action.datasets import open_films
from evaluation.tasks.action.films import survey
from evaluation.tasks.action.reading import ClipShape, TrainingClips
from evaluation.tasks.action.recipes import RECIPES, Recipe, change, chosen, fit_batch, fit_of
from evaluation.tasks.action.training import clip_optimizer, rate_factor, train
from evaluation.tuning.checkpoint import Checkpoint
from evaluation.tuning.loop import Diverged, State, dropout_seed
from sslkit.data.views.augmentation import augment
from sslkit.errors import UserError
from sslkit.models.model import Model
from sslkit.runtime.context import Runtime

SHAPE = ClipShape(4, 2, Sizes.for_size(16))
OPTIONS = Runtime(device=torch.device("cpu"), workers=0, progress=False)
TUNE = Recipe("fine_tune", "", (1,), epochs=3, batch_size=6, lr=0.02, weight_decay=1e-4, dropout=0.5)


@pytest.fixture(scope="module")
def clips(motion: Path) -> TrainingClips:
    return TrainingClips(survey(open_films(f"video:{motion}", "train"), on_error="skip"), SHAPE, seed=0)


def classifier(network: Model, recipe: Recipe) -> nn.Sequential:
    return build_classifier(network, recipe.protocol, 2, dropout=recipe.dropout, seed=0)


def weights(net: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in net.state_dict().items()}


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(value, two[name]) for name, value in one.items())


def test_the_loss_falls(clips: TrainingClips, network: Model) -> None:
    recipe = replace(RECIPES["paper_ucf101"], epochs=12, batch_size=8, lr=0.05, dropout=0.0)
    net = classifier(network, recipe)
    state = train(net, network, clips, recipe, OPTIONS, checkpoint=None)
    assert len(state.losses) == 12 and state.step == 24 and not state.notes
    losses = [loss for _, loss in state.losses]
    assert sum(losses[-3:]) / 3 < 0.75 * losses[0], losses
    assert not net.training


def test_linear_trains_the_head_alone(clips: TrainingClips, network: Model) -> None:
    recipe = replace(RECIPES["paper_k400"], epochs=4, batch_size=8, warmup=0.5)
    net = classifier(network, recipe)
    before = weights(net)
    state = train(net, network, clips, recipe, OPTIONS, checkpoint=None)
    after = weights(net)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == {"head.weight", "head.bias"}, "running statistics stay too"
    assert isinstance(net.backbone, Detached) and trained_part(net) is net.head
    assert all(math.isfinite(loss) for _, loss in state.losses)
    assert same(weights(network.backbone), weights(net.backbone.backbone))


def test_fine_tuning_changes_a_copy(clips: TrainingClips, network: Model) -> None:
    before = weights(network.backbone)
    net = classifier(network, TUNE)
    train(net, network, clips, TUNE, OPTIONS, checkpoint=None)
    assert same(before, weights(network.backbone))
    still = {name for name, value in net.backbone.state_dict().items() if torch.equal(value, before[name])}
    assert not still, "every weight and statistic has moved, the first convolution's too"


class Stopped(Exception):
    pass


@pytest.fixture(scope="module")
def unstopped(clips: TrainingClips, network: Model) -> Callable[[str], tuple[nn.Sequential, State]]:
    """By its protocol, what is trained at one go and the training's state."""

    @cache
    def trained(protocol: str) -> tuple[nn.Sequential, State]:
        recipe = replace(TUNE, protocol=protocol)
        whole = classifier(network, recipe)
        return whole, train(whole, network, clips, recipe, OPTIONS, checkpoint=None)

    return trained


@pytest.mark.parametrize("stop", [1, 2, 5])
@pytest.mark.parametrize("protocol", ["fine_tune", "linear"])
def test_a_stopped_training_ends_with_the_same_bits(
    clips: TrainingClips,
    network: Model,
    unstopped: Callable,
    tmp_path: Path,
    monkeypatch,
    stop: int,
    protocol: str,
) -> None:
    """Stopped in the middle of an epoch and at its end, with dropout and momentum."""
    recipe = replace(TUNE, protocol=protocol)
    whole, expected = unstopped(protocol)
    file = Checkpoint(tmp_path / "a.ckpt", "run", seconds=0.0)

    def stopping(seed: int, step: int) -> int:
        if step == stop:
            raise Stopped
        return dropout_seed(seed, step)

    with monkeypatch.context() as patched, pytest.raises(Stopped):
        patched.setattr(training, "dropout_seed", stopping)
        train(classifier(network, recipe), network, clips, recipe, OPTIONS, file)
    content = file.load()
    assert content["step"] == stop and content["hooks"]["History"]["seconds"] > 0
    content["hooks"]["History"]["seconds"] = 1000.0
    file.save(content)
    torch.rand(7)  # whatever else draws from the global generator
    resumed = classifier(network, recipe)
    state = train(resumed, network, clips, recipe, OPTIONS, file)
    assert state.losses == expected.losses and state.step == expected.step == 6
    assert state.before == 1000 and file.load()["hooks"]["History"]["seconds"] > 1000, "those before the stop too"
    assert same(weights(whole), weights(resumed))
    again = classifier(network, recipe)
    assert train(again, network, clips, recipe, OPTIONS, file).step == 6 and same(weights(whole), weights(again))


def test_nothing_of_pytorchs_own_randomness_is_used_or_changed(clips: TrainingClips, network: Model) -> None:
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        net = classifier(network, TUNE)
        train(net, network, clips, replace(TUNE, epochs=1), OPTIONS, checkpoint=None)
        assert torch.equal(state, torch.get_rng_state())
        found.append(weights(net))
    assert same(*found)


def test_a_loss_that_explodes_stops_the_training(clips: TrainingClips, network: Model) -> None:
    recipe = replace(TUNE, lr=1e20)
    with pytest.raises(Diverged, match="NaN or infinite"):
        train(classifier(network, recipe), network, clips, recipe, OPTIONS, checkpoint=None)


def test_the_rate_warms_up_along_a_line_and_falls_along_a_cosine() -> None:
    recipe = RECIPES["paper_k400"]
    at_end_of_warmup = (1 + math.cos(math.pi * 8 / 60)) / 2
    assert rate_factor(recipe, 0) == 0 and rate_factor(recipe, 8) == pytest.approx(at_end_of_warmup)
    assert rate_factor(recipe, 2) == pytest.approx(at_end_of_warmup / 4)
    assert rate_factor(recipe, 30) == pytest.approx(0.5) and rate_factor(recipe, 60) == pytest.approx(0)
    assert rate_factor(RECIPES["slowfast_ucf101"], 0) == 1, "no warm-up"


def test_batch_normalisation_is_not_decayed(network: Model) -> None:
    net = classifier(network, TUNE)
    decayed, spared = clip_optimizer(net, TUNE).param_groups
    assert (decayed["weight_decay"], spared["weight_decay"]) == (1e-4, 0.0)
    norms = [layer for layer in net.modules() if isinstance(layer, nn.BatchNorm3d)]
    assert {id(p) for p in spared["params"]} == {id(p) for layer in norms for p in layer.parameters()}
    assert len(decayed["params"]) + len(spared["params"]) == len(list(net.parameters()))
    assert decayed["nesterov"] and decayed["momentum"] == 0.9


def test_published_settings() -> None:
    k400, ucf, paper = (RECIPES[name] for name in ("paper_k400", "slowfast_ucf101", "paper_ucf101"))
    assert (k400.epochs, k400.batch_size, k400.lr, k400.weight_decay, k400.warmup) == (60, 64, 0.5, 0.0, 8.0)
    assert (ucf.epochs, ucf.lr, ucf.weight_decay, ucf.dropout, ucf.folds) == (200, 0.005, 1e-4, 0.5, (1,))
    assert (paper.epochs, paper.batch_size, paper.folds) == (50, 128, (1, 2, 3))
    assert RECIPES["paper_hmdb51"] == replace(paper, data="hmdb51")


def test_without_colours_a_view_is_the_clip_or_its_mirror_image() -> None:
    clips = torch.randint(0, 256, (12, 1, 3, 4, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    drawn = torch.Generator().manual_seed(0)
    (views,) = augment(clips, RECIPES["paper_k400"].view, 16, drawn)
    pixels = clips[:, 0].float() / 255
    mirrored = [torch.allclose(view, own.flip(-1), atol=1e-5) for view, own in zip(views, pixels, strict=True)]
    same = [torch.allclose(view, own, atol=1e-5) for view, own in zip(views, pixels, strict=True)]
    assert all(one != two for one, two in zip(mirrored, same, strict=True)) and 2 < sum(mirrored) < 10


@pytest.mark.parametrize("name", ["paper_ucf101", "paper_hmdb51", "slowfast_ucf101", "slowfast_hmdb51"])
def test_every_clip_of_fine_tuning_has_its_colours_changed(name: str) -> None:
    """PySlowFast applies ColorJitter(0.4, 0.4, 0.4, 0.1) to each clip, and makes a fifth of them gray."""
    (view,) = RECIPES[name].view.views
    assert (view.jitter, view.brightness, view.contrast, view.saturation, view.hue) == (1.0, 0.4, 0.4, 0.4, 0.1)
    assert (view.flip, view.grayscale, view.blur, view.solarize) == (0.5, 0.2, 0.0, 0.0)
    clips = torch.randint(0, 256, (60, 1, 3, 4, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    (views,) = augment(clips, RECIPES[name].view, 16, torch.Generator().manual_seed(0))
    pixels = clips[:, 0].float() / 255
    for shown, own in zip(views, pixels, strict=True):
        assert min((shown - own).abs().max(), (shown - own.flip(-1)).abs().max()) > 0.02
    gray = [torch.allclose(shown[0], shown[1], atol=1e-5) for shown in views]
    assert 4 < sum(gray) < 24


def test_what_is_changed_is_said() -> None:
    plan, said = change("paper_k400", {"epochs": 30, "batch_size": 32})
    assert (plan.lr, plan.warmup) == (0.25, 4.0) and said == "paper_k400, 30 of 60 epochs, batch_size 32 instead of 64"
    plan, said = change("paper_k400", {"batch_size": 32, "lr": 0.5})
    assert plan.lr == 0.5 and said == "paper_k400, batch_size 32 instead of 64"
    assert change("slowfast_ucf101", {"lr": 1, "dropout": 0})[1] == (
        "slowfast_ucf101, lr 1 instead of 0.005, dropout 0 instead of 0.5"
    )
    assert change("paper_ucf101", {}) == (RECIPES["paper_ucf101"], "paper_ucf101")
    assert change("paper_ucf101", {"lr": None})[1] == "paper_ucf101"


def test_fewer_films_than_a_batch_are_one_batch_and_that_is_said() -> None:
    small = fit_batch(RECIPES["paper_k400"], 16, scale=True)
    assert (small.batch_size, small.lr) == (16, 0.125)
    assert fit_batch(RECIPES["paper_k400"], 16, scale=False).lr == 0.5
    planned = RECIPES["paper_k400"]
    assert fit_batch(planned, 64, scale=True) == planned and fit_of(planned, [planned]) == ""
    assert fit_of(planned, [small]) == "batches of all 16 videos, lr 0.125"
    both = [planned, small, fit_batch(planned, 48, scale=True), small]
    assert fit_of(planned, both) == "batches of all 16 / 48 videos, lr 0.125 / 0.375"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epochs": 0}, "epochs=0 must be a whole number from 1"),
        ({"epochs": 1.5}, "epochs=1.5 must be a whole number"),
        ({"batch_size": 1}, "batch_size=1 must be a whole number from 2"),
        ({"lr": -1}, "lr must be a number, at least 0, got -1"),
        ({"lr": 0}, "lr must be above 0, got 0"),
        ({"lr": math.nan}, "lr must be a number, at least 0, got nan"),
        ({"weight_decay": "x"}, "weight_decay must be a number, at least 0, got 'x'"),
        ({"dropout": 1.5}, "dropout must be a number, at least 0 and at most 1, got 1.5"),
    ],
)
def test_settings_out_of_range(changes: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        change("paper_k400", changes)


def test_recipes_are_found_by_name() -> None:
    assert chosen(None, None) == chosen("linear", None) == "paper_k400" and chosen("fine_tune", None) == "paper_ucf101"
    assert chosen(None, "slowfast_ucf101") == "slowfast_ucf101"
    with pytest.raises(UserError, match="there is no recipe 'paper_ucf': did you mean 'paper_ucf101'"):
        chosen(None, "paper_ucf")
    with pytest.raises(UserError, match="there is no protocol 'fine-tune': did you mean 'fine_tune'"):
        chosen("fine-tune", None)
    with pytest.raises(UserError, match="recipe=paper_k400 is for protocol=linear, not fine_tune"):
        chosen("fine_tune", "paper_k400")
