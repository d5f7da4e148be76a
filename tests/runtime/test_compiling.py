"""A compiled run: the same weights but for rounding, under the same names, and a word where nothing can compile."""

import csv
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from contract import MEMBERS, batch, build, enough, step

import sslkit
from sslkit.errors import UserError
from sslkit.runtime import compiling
from sslkit.training.step import parts_to_compile

MOST_GRAPHS = 3  # the student on large and on small crops, and the teacher; or a teacher with and without hooks
QUICK = ("ijepa", "mae")


def compiled(run: dict, *, on: bool | str, **more: object) -> dict:
    return {**run, "trainer": {**run["trainer"], "compile": on, **more}}


def state(entry: sslkit.ZooEntry) -> dict[str, torch.Tensor]:
    return torch.load(entry.folder / "checkpoints" / "last.ckpt", weights_only=True)["module"]


def difference(one: sslkit.ZooEntry, other: sslkit.ZooEntry) -> float:
    """The largest relative difference of two runs' tensors, of the same names."""
    a, b = state(one), state(other)
    assert a.keys() == b.keys() and not any("_orig_mod" in name for name in a)
    assert one.state_dict().keys() == other.state_dict().keys()
    return max(((a[k] - b[k]).norm() / b[k].norm().clamp_min(1e-6)).item() for k in a if "running" in k)


@pytest.fixture
def calls(monkeypatch) -> list[torch.fx.GraphModule]:
    """The graphs that are compiled, without the minute of the C++ compiler."""
    from torch._dynamo import lookup_backend

    seen, as_it_is = [], lookup_backend("aot_eager")

    def keep(graph: torch.fx.GraphModule, example: list[torch.Tensor]) -> Callable:
        seen.append(graph)
        return as_it_is(graph, example)

    torch.compiler.reset()
    monkeypatch.setattr(compiling, "BACKEND", keep)
    return seen


@pytest.mark.parametrize(
    ("name", "family"),
    [pytest.param(*one, marks=[] if one[0] in QUICK else pytest.mark.nightly) for one in MEMBERS],
)
def test_every_objective_is_compiled_in_its_first_step_only(name: str, family: str, monkeypatch) -> None:
    graphs: list[torch.fx.GraphModule] = []

    def keep(graph: torch.fx.GraphModule, example: list[torch.Tensor]) -> Callable:
        graphs.append(graph)
        return graph

    torch.compiler.reset()
    monkeypatch.setattr(compiling, "BACKEND", keep)
    m = build(name, family, image_size=32 if family == "vit" else 16)
    for owner, function in dict.fromkeys(parts_to_compile(m)):
        fast = compiling.compile_function(getattr(owner, function), lengths_vary=m.objective.lengths_vary)
        setattr(owner, function, fast)
    images, index = batch(enough(m, 8))
    if family == "vit":
        images = torch.nn.functional.interpolate(images.float(), (32, 32)).byte()
    after = []
    for number in range(6):
        step(m, images, index)["loss"].backward()
        m.after_step(number / 6)
        after.append(len(graphs))
    assert 1 <= after[0] <= MOST_GRAPHS and set(after) == {after[0]}, f"graphs after each step: {after}"


@pytest.mark.parametrize(
    "recomputed",
    [pytest.param(False, marks=pytest.mark.slow), pytest.param(True, marks=pytest.mark.nightly)],
)
def test_a_compiled_run_ends_with_the_same_weights(small_run, calls, recomputed: bool, capsys) -> None:
    run = {**small_run, "epochs": 1, "optimizer": {"name": "sgd", "lr": 0.01}}
    plain = sslkit.pretrain(compiled(run, on=False))
    assert not calls
    fast = sslkit.pretrain(compiled(run, on=True, checkpoint_activations=recomputed))
    traced = "".join(str(part.graph) for graph in calls for part in graph.modules())
    assert traced.count("conv") > 10, "the network was not in what was compiled"
    assert difference(fast, plain) < 1e-4
    assert "float32, compiled" in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_may_be_resumed_compiled_and_not(small_run, calls, monkeypatch) -> None:
    from sslkit.training import pretrain

    run = {**small_run, "epochs": 2, "optimizer": {"name": "sgd", "lr": 0.01}}
    plain = sslkit.pretrain({**run, "name": "plain"})
    for first in (True, False):
        name = f"first-{first}"
        with monkeypatch.context() as patch:
            patch.setattr(pretrain.Saving, "epoch_end", stopping(pretrain.Saving.epoch_end))
            with pytest.raises(KeyboardInterrupt):
                sslkit.pretrain(compiled({**run, "name": name}, on=first))
        resumed = sslkit.pretrain(compiled({**run, "name": name, "resume": True}, on=not first))
        assert difference(resumed, plain) < 1e-3
    assert calls


def stopping(save):
    def epoch_end(self, *given: object) -> None:
        save(self, *given)
        raise KeyboardInterrupt

    return epoch_end


def test_without_a_compiler_one_line_before_a_folder_is_made(small_run, tmp_path: Path) -> None:
    from torch._inductor import config

    torch.compiler.reset()
    said = r"trainer\.compile=true cannot compile here.*C\+\+ compiler such as g\+\+"
    with config.patch({"cpp.cxx": (None, "/no/such/compiler")}), pytest.raises(UserError, match=said) as error:
        sslkit.pretrain(compiled(small_run, on=True))
    assert "\n" not in str(error.value) and not (tmp_path / "zoo").exists()


def test_cuda_graphs_are_refused_where_they_are_not_possible() -> None:
    gpu, usual = torch.device("cuda", 0), {"ranks": 1, "accumulate": 1, "recomputed": False, "lengths_vary": False}
    assert compiling.no_graphs(gpu, **usual) == ""
    assert compiling.no_graphs(torch.device("cpu"), **usual) == "there are none on cpu"
    whys = {"accumulate=2": {"accumulate": 2}, "checkpoint_act": {"recomputed": True}, "masks": {"lengths_vary": True}}
    whys |= {"2 processes": {"ranks": 2}}
    for why, change in whys.items():
        assert why in compiling.no_graphs(gpu, **{**usual, **change})


def test_a_step_with_cuda_graphs_begins_anew_and_its_results_outlive_it(monkeypatch) -> None:
    """Each step is marked, since a graph writes to the same memory again, and what hooks keep is copied."""
    asked, marked, net = [], [], torch.nn.Linear(2, 2)
    monkeypatch.setattr(torch, "compile", lambda function, **how: asked.append(how) or function)
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: marked.append(1))
    hook = compiling.Compiled(lambda module: [(module, "forward")], lambda: False, graphs=True)
    loop = SimpleNamespace(module=net)
    hook.epoch_begin(loop)
    z = torch.ones(3)
    for _ in range(2):
        hook.batch_begin(loop)
        outputs = {"loss": z.sum(), "terms": {}, "z": z}
        hook.batch_end(loop, outputs, None)
    hook.epoch_end(loop)
    assert len(marked) == 2 and asked[0]["mode"] == "reduce-overhead" and not asked[0]["dynamic"]
    assert torch.equal(outputs["z"], z) and outputs["z"].data_ptr() != z.data_ptr()


def test_reduce_overhead_on_a_cpu_is_a_compiled_run_with_a_word(small_run, monkeypatch, capsys) -> None:
    asked = []
    monkeypatch.setattr(torch, "compile", lambda function, **how: asked.append(how.get("mode")) or function)
    run = {**small_run, "method": "simclr", "epochs": 1}
    entry = sslkit.pretrain(compiled(run, on="reduce-overhead"))
    assert set(asked) == {None} and entry.card["config"]["trainer"]["compile"] == "reduce-overhead"
    assert "note      compiled without CUDA graphs: there are none on cpu" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"trainer\.compile must be true or false or reduce-overhead, got 'fast'"):
        sslkit.pretrain(compiled(run, on="fast"))


@pytest.mark.nightly
@pytest.mark.parametrize("method", ["byol", "mae"])
def test_compiled_by_inductor(small_run, method: str) -> None:
    """Sums in another order drift apart over the three steps."""
    run = {**small_run, "method": method, "epochs": 1, "optimizer": {"name": "sgd", "lr": 0.01}}
    plain, fast = (state(sslkit.pretrain(compiled(run, on=on))) for on in (False, True))
    assert plain.keys() == fast.keys()
    apart = [((fast[k] - plain[k]).norm() / plain[k].norm()).item() for k in plain if plain[k].is_floating_point()]
    assert sorted(apart)[len(apart) // 2] < 5e-3


@pytest.mark.gpu
@pytest.mark.parametrize("on", [True, "reduce-overhead"])
@pytest.mark.parametrize("method", ["simclr", "byol+koleo", "mae", "dino", "ijepa"])
def test_a_compiled_run_on_a_gpu_is_the_plain_one(small_run, method: str, on: bool | str, capsys) -> None:
    """Median over the tensors, since sums in another order drift apart over the steps."""
    run = {**small_run, "method": method, "epochs": 2, "optimizer": {"name": "sgd", "lr": 0.01}}
    plain, fast = (state(sslkit.pretrain(compiled(run, on=how, devices=1))) for how in (False, on))
    apart = [((fast[k] - plain[k]).norm() / plain[k].norm()).item() for k in plain if plain[k].is_floating_point()]
    assert sorted(apart)[len(apart) // 2] < 5e-3
    assert ("without CUDA graphs" in capsys.readouterr().out) == (on == "reduce-overhead" and method == "ijepa")


@pytest.mark.nightly
def test_the_shares_of_a_compiled_run_are_those_of_another(small_run, calls) -> None:
    run = {**small_run, "epochs": 1, "optimizer": {"name": "sgd", "lr": 0.01}}
    found = []
    for on in (False, True):
        rows = (sslkit.pretrain(compiled(run, on=on)).folder / "metrics.csv").read_text().splitlines()
        found.append([float(row["koleo/share"]) for row in csv.DictReader(rows) if row["koleo/share"]])
    assert len(found[0]) == 2 and found[1] == pytest.approx(found[0], rel=1e-3)


def test_steps_in_which_shares_are_measured_run_uncompiled(small_run, monkeypatch) -> None:
    called: list[str] = []

    def counted(function: Callable, **_: object) -> Callable:
        def call(*given: object, **more: object) -> object:
            called.append(function.__qualname__)
            return function(*given, **more)

        return call

    monkeypatch.setattr(torch, "compile", counted)
    numbers = {}
    for name in ("byol", "byol+koleo"):
        called.clear()
        sslkit.pretrain(compiled({**small_run, "epochs": 1, "method": name}, on=True))
        numbers[name] = sum("check_compiler" not in one for one in called)
    # Of the three steps of an epoch the first and the third are measured, if there is a regulariser.
    assert numbers["byol"] == 3 * numbers["byol+koleo"] > 0
