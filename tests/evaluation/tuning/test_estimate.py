"""The time of fine-tuning is said before it starts, from measured steps, where it is long."""

import pytest
import torch

from evaluation.ranking.choice.rounds import count_runs
from evaluation.tuning import estimate
from evaluation.tuning.estimate import announce, seconds_of_step
from sslkit.models.loading import load
from sslkit.models.model import Model
from sslkit.runtime.context import Runtime


@pytest.fixture(scope="module")
def model() -> Model:
    return load("random:narrow_resnet", image_size=32)


def said(model: Model, steps: int) -> list[str]:
    lines: list[str] = []
    announce([(model, steps), (model, steps)], 6, 8, Runtime(device="cpu", say=lines.append))
    return lines


def test_the_total_is_that_of_measured_steps(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "seconds_of_step", lambda model, batch_size: 2.0)
    (line,) = said(model, 1800)
    assert line.startswith("time: about 2.0 h for 6 runs, 3,600 steps, from measured steps")
    assert said(model, 2) == [], "over in seconds"


def test_a_step_is_measured_and_changes_nothing(model: Model) -> None:
    before = {name: value.clone() for name, value in model.net.state_dict().items()}
    state = torch.get_rng_state()
    assert 0 < seconds_of_step(model, 8) < 60
    assert all(torch.equal(before[name], value) for name, value in model.net.state_dict().items())
    assert torch.equal(state, torch.get_rng_state()) and not model.net.training


@pytest.mark.parametrize(
    ("models", "rates", "seeds", "steps", "runs"),
    [(3, 4, 3, 100, (3 * 4 + 2 * 3, 12 * 50 + 6 * 100)), (2, 4, 3, 10, (24, 240)), (4, 4, 1, 8, (18, 16 * 4 + 2 * 8))],
)
def test_the_runs_of_all_rounds(models: int, rates: int, seeds: int, steps: int, runs: tuple[int, int]) -> None:
    assert count_runs(models, rates, seeds, steps) == runs


def test_the_command_proposed_after_a_ranking_fits_the_machine(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    from evaluation.ranking import summary

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for seconds, size in ((0.01, {}), (1.0, {"first": 3, "steps": 100}), (60.0, {"first": 3, "steps": 20})):
        monkeypatch.setattr(summary, "seconds_of_step", lambda model, batch_size, each=seconds: each)
        assert summary._size(load("random:narrow_resnet", image_size=224), 5) == size
