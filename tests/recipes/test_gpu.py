"""recipes/benchmarks/gpu where there is no GPU: each section in its dry form, and what it says."""

import importlib.metadata
import subprocess
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
    sys.modules.pop("gpu", None)  # a folder, which has no __file__ and keeps the modules that were imported from it


def _is_benchmark(module: object) -> bool:
    return str(getattr(module, "__file__", None) or "").startswith(BENCHMARKS)


@pytest.fixture
def dry(correct):
    from gpu.jobs import Asked

    return Asked(CPU, dry=True)


@pytest.mark.parametrize("name", ["simclr+dsa", "mae+guide"])
def test_half_precision_is_within_its_bounds_and_a_wrong_step_is_not(name: str, correct, monkeypatch) -> None:
    assert correct.compare(name, CPU, "float32", size=8) == correct.Gap(0, 0, 0)
    gap = correct.compare(name, CPU, "bfloat16", size=8)
    assert gap.within("bfloat16") and not gap.within("float64") and gap.gradient > 0

    def wrong(method, batch, runtime, precision):
        if precision == "bfloat16":
            with torch.no_grad():
                for parameter in method.parameters():
                    parameter.neg_()
        return right(method, batch, runtime, precision)

    right = correct.one_step
    monkeypatch.setattr(correct, "one_step", wrong)
    assert not correct.compare(name, CPU, "bfloat16", size=8).within("bfloat16")


def test_a_step_in_float64_is_computed_in_it(correct) -> None:
    method, batch = correct.prepare("byol+dsa", 8)
    terms = correct.one_step(method, batch, CPU, "float64")
    assert {p.dtype for p in method.parameters()} == {torch.float64}
    rounded = torch.tensor(terms["terms"]["align"]).float().item()
    assert terms["terms"]["align"] != rounded


def test_every_objective_is_compared_plain_and_with_each_regulariser(correct) -> None:
    from gpu.jobs import Asked

    from sslkit import objectives, regularizers

    names = set(correct.names())
    assert {*objectives.names(), *(f"byol+{one}" for one in regularizers.names())} <= names
    assert len(names) == len(objectives.names()) * (len(regularizers.names()) + 2)
    ordered = correct.in_order(Asked(CPU))
    assert set(ordered) == names and len(ordered) == len(names)
    assert ordered[: len(correct.SPREAD)] == list(correct.SPREAD)


def test_without_a_gpu_it_says_so(correct) -> None:
    from gpu import run

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(SystemExit, match="there is no GPU here: add --dry"):
        run.device(dry=False)


def test_a_section_goes_on_where_it_stopped(dry, monkeypatch, tmp_path: Path, capsys) -> None:
    from types import SimpleNamespace

    import results
    from gpu import run
    from gpu.jobs import Asked

    done = []
    jobs = {name: lambda name=name: done.append(name) or {"ms": 1.0} for name in ("a | x", "b | x", "c | y")}
    monkeypatch.setitem(sys.modules, "gpu.fake", SimpleNamespace(jobs=lambda asked: jobs))
    monkeypatch.setattr(results, "path_of", lambda name: tmp_path / "gpu.json")
    asked = Asked(CPU)
    assert run.section("fake", asked, ["a"], minutes=1, again=False).keys() == {"fake"}
    run.section("fake", asked, [], minutes=-1, again=False)
    assert "2 jobs are left" in capsys.readouterr().out and done == ["a | x"]
    run.section("fake", asked, [], minutes=1, again=False)
    assert done == ["a | x", "b | x", "c | y"]
    run.section("fake", asked, ["y"], minutes=1, again=True)
    assert done[3:] == ["c | y"]
    run.section("fake", Asked(CPU, dry=True), [], minutes=1, again=False)
    assert len(done) == 7
    assert results.load("gpu/gpu")["fake"].keys() == jobs.keys()


def test_a_result_is_kept_where_sslkit_is_not_installed(correct, monkeypatch, tmp_path: Path) -> None:
    """A folder on PYTHONPATH has no version: a machine that is used for some minutes need not have it installed."""
    import results

    def version(package: str) -> str:
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(results, "path_of", lambda name: tmp_path / "gpu.json")
    results.keep("gpu/gpu", "a", {"ms": 1.0}, part="step")
    assert results.load("gpu/gpu")["step"] == {"a": {"ms": 1.0}}
    assert results.load("gpu/gpu")["machine"]["sslkit"] is None


def test_a_section_that_fails_is_named_and_the_others_run(correct, monkeypatch) -> None:
    from types import SimpleNamespace

    from gpu import run

    called = []

    def started(command, check, env):
        called.append((command[2:], env.get("CUDA_VISIBLE_DEVICES")))
        return SimpleNamespace(returncode=int(command[2] == "views"))

    monkeypatch.setattr(subprocess, "run", started)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    said = run.children(["views", "nccl"], ["views", "nccl", "--minutes", "2"])
    assert said == "failed: views (exit code 1)"
    assert called == [(["views", "--minutes", "2"], "3"), (["nccl", "--minutes", "2"], "3,1")]


@pytest.mark.parametrize(
    ("section", "numbers"),
    [
        ("views", {"ms", "off"}),
        ("dsa", {"ms", "gib"}),
        pytest.param("memory", {"batch", "gib", "predicted_gib"}, marks=pytest.mark.nightly),
        ("waits", {"waits"}),
        pytest.param("step", {"rates", "gib", "batch"}, marks=pytest.mark.nightly),
        pytest.param("parts", {"step_ms", "parts_ms"}, marks=pytest.mark.nightly),
    ],
)
def test_a_dry_section_has_its_numbers(section: str, numbers: set[str], dry) -> None:
    from importlib import import_module

    from gpu.table import table

    jobs = import_module(f"gpu.{section}").jobs(dry)
    name = next(iter(jobs))
    row = jobs[name]()
    assert row.keys() == numbers
    assert table({section: {name: row | {"device": "CPU"}}})


@pytest.mark.nightly
def test_a_killed_run_is_compared_with_unbroken_ones(dry, tmp_path: Path) -> None:
    from gpu import resume

    found = resume.compare("simclr", tmp_path, dry, deterministic=False)
    assert found["again"] == found["resumed"] == 0 and 1 <= found["killed_at"] < resume.EPOCHS
    folders = [tmp_path / name / "run" for name in ("first", "broken")]
    one, other = map(resume.weights, folders)
    next(iter(other.values())).add_(1)
    assert resume.largest(one, other) == 1


def test_a_run_that_fails_stops_the_comparison(dry) -> None:
    from gpu import resume

    with pytest.raises(SystemExit, match="exit code 3"):
        resume.wait_for(subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"]))


@pytest.mark.nightly
def test_files_are_read_and_trained_on(dry, tmp_path: Path) -> None:
    from gpu import data

    paths = data.write(tmp_path / "files", copies=2)
    assert len(set(paths)) == 64 == len(list((tmp_path / "files").iterdir()))
    assert data.rates(tmp_path / "files", paths, dry, batch=16)["CPU workers"] > 0
    found = data.run("byol", tmp_path / "files", tmp_path / "zoo", dry, backbone="narrow_resnet", batch=16, epochs=2)
    assert found["images_per_second"] > 0 and 0 <= found["waiting"] <= 1


def test_the_tables_show_every_section_that_has_results(correct) -> None:
    from gpu.run import SECTIONS
    from gpu.table import table

    about = {"device": "GPU X"}
    results = {
        "correct": {
            "byol | float64 | cuda": {"loss": 1e-9, "gradient": 2e-8, "views": 0.0, "within": False, **about},
            "mae | float64 | cuda": {"loss": 3e-9, "gradient": 4e-9, "views": 0.0, "within": True, **about},
        },
        "resume": {"byol | as it is | cuda": {"again": 1e-3, "resumed": 2e-3, "killed_at": 2, **about}},
        "step": {
            "resnet50": {"rates": {"student": 100.0, "byol": 90.0}, "gib": {"student": 1, "byol": 2.5}, "batch": 256}
            | about,
        },
        "memory": {"byol | resnet50": {"batch": 256, "gib": 26.1, "predicted_gib": 25.3, **about}},
        "views": {"256 images, 224 px | cuda": {"ms": {"kornia, simclr": 40.2}, "off": {"byol": 1e-6}, **about}},
        "parts": {"byol | resnet50": {"step_ms": 100.0, "parts_ms": {"views": 7.5}, "launches": 1746, "busy_ms": 80.0}},
        "dsa": {"512 | cuda": {"ms": 2.0, "gib": 0.25, "share": 0.041, **about}},
        "precision": {"resnet50 | cuda": {"ms": {"tf32": 30.0, "bfloat16": 20.0}, **about}},
        "data": {
            "files | cuda": {"CPU workers": 1000.0, "nvJPEG": 3000.0, **about},
            "byol | resnet50 | cuda": {"images_per_second": 900.0, "waiting": 0.25, **about},
        },
        "waits": {"byol": {"waits": []}, "moco": {"waits": ["moco.py:1"]}},
        "nccl": {"byol | cuda": {"difference": 1e-6, "images_per_second": {"1": 900.0, "2": 1700.0}, **about}},
    }
    results["parts"]["byol | resnet50"] |= about
    assert results.keys() == set(SECTIONS)
    said = table(results)
    for part in (
        "| 2 | byol (2.0e-08) | 3.0e-09 | 4.0e-09 | 0.0e+00 |",
        "| 1.0e-03 | 2.0e-03 |",
        "| byol | 90 | 90% | 2.5 |",
        "| 26.1 | 25.3 |",
        "| kornia, simclr | 40.2 |",
        "byol 1.0e-06",
        "| 1746 | 80% |",
        "| 2.0 | 0.25 | 4.1% |",
        "| ms | 30.0 | 20.0 |",
        "3,000 images/s",
        "25% is waiting",
        "1 have a step that waits for nothing",
        "moco waits",
        "900 and 1,700 images/s",
    ):
        assert part in said, part
    assert "byol waits" not in said and table({}) == ""
