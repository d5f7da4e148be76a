"""recipes/benchmarks/gpu.py where there is no GPU: half precision against single, and what it says."""

import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = str(Path(__file__).parents[2] / "recipes" / "benchmarks")
CPU = torch.device("cpu")


@pytest.fixture
def correct(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import gpu_correct

    yield gpu_correct
    for name in ("gpu", "gpu_correct", "gpu_fast", "objectives", "results", "machine"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", ["simclr+dsa", "mae+guide"])
def test_half_precision_is_within_its_bounds_and_a_wrong_step_is_not(name: str, correct, monkeypatch) -> None:
    assert correct.compare(name, CPU, "float32", size=8) == correct.Gap(0, 0, 0)
    gap = correct.compare(name, CPU, "bfloat16", size=8)
    assert gap.within("bfloat16") and not gap.within("float32") and gap.gradient > 0

    def wrong(method, batch, device, precision):
        if precision == "bfloat16":
            with torch.no_grad():
                for parameter in method.parameters():
                    parameter.neg_()
        return right(method, batch, device, precision)

    right = correct.one_step
    monkeypatch.setattr(correct, "one_step", wrong)
    assert not correct.compare(name, CPU, "bfloat16", size=8).within("bfloat16")


def test_every_objective_is_compared_plain_and_with_each_regulariser(correct) -> None:
    from sslkit import objectives, regularizers

    names = set(correct.names())
    assert {*objectives.names(), *(f"byol+{one}" for one in regularizers.names())} <= names
    assert len(names) == len(objectives.names()) * (len(regularizers.names()) + 2)


def test_without_a_gpu_it_says_so(correct) -> None:
    import gpu

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(SystemExit, match="there is no GPU here: add --device cpu"):
        gpu.device_of("cuda")


def test_every_contestant_takes_its_steps(correct) -> None:
    import gpu_fast

    steps = gpu_fast.contestants("resnet10t", CPU, size=16, batch=4)
    del steps["byol, compiled"]  # a minute of the compiler
    found = gpu_fast.rates(steps, 4, CPU, rounds=1, each=1)
    assert found.keys() == steps.keys() and min(found.values()) > 0
