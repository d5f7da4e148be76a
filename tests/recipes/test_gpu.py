"""recipes/benchmarks/gpu where there is no GPU: half precision against single, and what it says."""

import sys
from pathlib import Path

import pytest
import torch

from sslkit.runtime.context import Runtime

BENCHMARKS = str(Path(__file__).parents[2] / "recipes" / "benchmarks")
CPU = Runtime(device=torch.device("cpu"))


@pytest.fixture
def correct(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    from gpu import correct

    yield correct
    for name in [name for name, module in sys.modules.items() if _is_benchmark(module)]:
        sys.modules.pop(name)


def _is_benchmark(module: object) -> bool:
    return str(getattr(module, "__file__", None) or "").startswith(BENCHMARKS)


@pytest.mark.parametrize("name", ["simclr+dsa", "mae+guide"])
def test_half_precision_is_within_its_bounds_and_a_wrong_step_is_not(name: str, correct, monkeypatch) -> None:
    assert correct.compare(name, CPU, "float32", size=8) == correct.Gap(0, 0, 0)
    gap = correct.compare(name, CPU, "bfloat16", size=8)
    assert gap.within("bfloat16") and not gap.within("float32") and gap.gradient > 0

    def wrong(method, batch, runtime, precision):
        if precision == "bfloat16":
            with torch.no_grad():
                for parameter in method.parameters():
                    parameter.neg_()
        return right(method, batch, runtime, precision)

    right = correct.one_step
    monkeypatch.setattr(correct, "one_step", wrong)
    assert not correct.compare(name, CPU, "bfloat16", size=8).within("bfloat16")


def test_every_objective_is_compared_plain_and_with_each_regulariser(correct) -> None:
    from sslkit import objectives, regularizers

    names = set(correct.names())
    assert {*objectives.names(), *(f"byol+{one}" for one in regularizers.names())} <= names
    assert len(names) == len(objectives.names()) * (len(regularizers.names()) + 2)


def test_without_a_gpu_it_says_so(correct) -> None:
    from gpu import run

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(SystemExit, match="there is no GPU here: add --device cpu"):
        run.device_of("cuda")


@pytest.mark.nightly
def test_every_contestant_takes_its_steps(correct) -> None:
    from gpu import fast as gpu_fast

    steps = gpu_fast.contestants("resnet10t", CPU, size=16, batch=4)
    del steps["byol, compiled"]  # a minute of the compiler
    found = gpu_fast.rates(steps, 4, CPU, rounds=1, each=1)
    assert found.keys() == steps.keys() and min(found.values()) > 0


def test_the_terms_of_dsa_are_timed(correct) -> None:
    from gpu import dsa as gpu_dsa

    found = gpu_dsa.costs(CPU, sizes=(16, 24), repeats=1, width=8)
    assert list(found) == [16, 24] and all(cost["ms"] > 0 for cost in found.values())


@pytest.mark.nightly
def test_a_killed_run_is_compared_with_unbroken_ones(correct, tmp_path: Path) -> None:
    from gpu import resume as gpu_resume

    found = gpu_resume.compare("simclr", tmp_path, CPU, deterministic=False)
    assert found["again"] == found["resumed"] == 0 and 1 <= found["killed_at"] < gpu_resume.EPOCHS
    folders = [tmp_path / name / "run" for name in ("first", "broken")]
    one, other = map(gpu_resume.weights, folders)
    next(iter(other.values())).add_(1)
    assert gpu_resume.largest(one, other) == 1


@pytest.mark.nightly
def test_files_are_read_and_trained_on(correct, tmp_path: Path) -> None:
    from gpu import data as gpu_data

    paths = gpu_data.write(tmp_path / "files", copies=2)
    assert len(set(paths)) == 64 == len(list((tmp_path / "files").iterdir()))
    assert gpu_data.rates(tmp_path / "files", paths, CPU, batch=16)["CPU workers"] > 0
    found = gpu_data.run(tmp_path / "files", tmp_path / "zoo", CPU, backbone="narrow_resnet", batch=16, epochs=2)
    assert found["images_per_second"] > 0 and 0 <= found["waiting"] <= 1


def test_the_tables_show_every_section_that_has_results(correct) -> None:
    from gpu.table import table

    about = {"device": "GPU X"}
    results = {
        "resume": {"byol | as it is | cuda": {"again": 1e-3, "resumed": 2e-3, "killed_at": 2, **about}},
        "fast": {"resnet50": {"rates": {"bare network": 100.0, "byol": 90.0}, "batch": 256, "largest": 512, **about}},
        "dsa": {"512 | cuda": {"ms": 2.0, "mib": 30.0, "share": 0.041, **about}},
        "data": {
            "cuda": {"CPU workers": 1000.0, "nvJPEG": 3000.0, "images_per_second": 900.0, "waiting": 0.25, **about}
        },
        "sync": {"byol": {"waits": []}, "moco": {"waits": ["moco.py:1"]}},
    }
    said = table(results)
    for part in (
        "| 1.0e-03 | 2.0e-03 |",
        "| byol | 90 | 90% |",
        "two: 512",
        "| 2.0 | 30 | 4.1% |",
        "25% is waiting",
        "moco waits",
    ):
        assert part in said
    assert "byol waits" not in said and table({}) == ""
