"""Fine-tuning of solve: smaller images where few steps fit, longer runs by what short ones took, choice by the loss."""

from types import SimpleNamespace

import pytest

import sslkit
from evaluation.results.statistics import Estimate
from evaluation.solving.solve import Contest
from evaluation.solving.tuned import Plan, at_size, sizes_of


@pytest.mark.parametrize(
    ("word", "size", "sizes"),
    [("resnet18", 224, [224, 160, 128]), ("resnet18", 96, [96]), ("narrow_vit", 128, [128])],
)
def test_only_convolutional_networks_are_tuned_on_smaller_images(word: str, size: int, sizes: list[int]) -> None:
    assert sizes_of(sslkit.load(f"random:{word}", image_size=size)) == sizes


def test_a_network_at_another_size_is_the_same_network() -> None:
    model = sslkit.load("random:narrow_resnet", image_size=224)
    smaller = at_size(model, 160)
    assert (smaller.image_size, smaller.resizing.image_size, model.image_size) == (160, 160, 224)
    assert smaller.net is model.net and at_size(model, 224) is model


def test_longer_runs_follow_from_what_the_short_ones_took() -> None:
    plan = Plan(steps=50, seconds=600.0, seconds_of_step=3.0, most=400, image_size=160)
    assert plan.longer(spent=200.0) == 100  # 2 s a step, 400 s for two runs
    assert plan.longer(spent=550.0) == 50 and plan.longer(spent=20.0) == 400


@pytest.mark.parametrize(
    ("gain", "loss", "chosen"),
    [(0.0, 0.2, "fine-tuned"), (0.01, 0.4, "probe"), (-0.01, 0.2, "fine-tuned"), (0.2, 0.4, "fine-tuned")],
)
def test_the_loss_decides_where_the_accuracy_cannot(gain: float, loss: float, chosen: str) -> None:
    estimate = Estimate(0.8, (0.75, 0.85), n=250)
    setting = {"gain": gain, "loss": loss, "loss_of_probe": 0.3}
    probe = SimpleNamespace(name="a", how="probe", value=0.8, setting={}, estimate=estimate)
    tuned = SimpleNamespace(name="a", how="fine-tuned", value=0.8 + gain, setting=setting, estimate=estimate)
    other = SimpleNamespace(name="b", how="probe", value=0.7, setting={}, estimate=estimate)
    contest = SimpleNamespace(judged=[probe, other, tuned])
    assert Contest.first.fget(contest).how == chosen
