"""The pair kernel against the form that it replaces: the MLP on every concatenated pair, in float64."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from torch._dynamo.exc import TorchDynamoException
from torch._inductor.exc import GPUTooOldForTriton, TritonMissing

from sslkit.errors import UserError
from sslkit.regularizers.dsa import ArrangingMLP, pairwise
from sslkit.regularizers.dsa.pairwise import pair_scores


def naive(z: Tensor, rows: Tensor, first: Tensor, bias: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """f_s([z_i ; z_j]) as printed, one pair at a time."""
    scores = [[b + w @ torch.relu(first @ torch.cat([z[i], z[j]]) + bias) for j in range(len(z))] for i in rows]
    return torch.stack([torch.stack(row) for row in scores])


def setting(n: int, d: int, h: int, generator: torch.Generator) -> list[Tensor]:
    shapes = [(n, d), (h, 2 * d), (h,), (h,), ()]
    return [torch.randn(s, generator=generator, dtype=torch.float64, requires_grad=True) for s in shapes]


@pytest.mark.parametrize("kernel", ["blocked", pytest.param("compiled", marks=pytest.mark.slow)])
def test_equals_the_mlp_on_concatenated_pairs(kernel: str, generator: torch.Generator, monkeypatch) -> None:
    monkeypatch.setattr(pairwise, "_CPU_TILE", (4, 3, 5))  # every axis has whole tiles and a rest
    z, first, bias, w, b = leaves = setting(11, 3, 7, generator)
    rows = torch.tensor([4, 0, 9, 2])
    weight = torch.randn(4, 11, generator=generator, dtype=torch.float64)
    u, v = z[rows] @ first[:, :3].T + bias, z @ first[:, 3:].T
    got = pair_scores(u, v, w, b, kernel=kernel)
    want = naive(z, rows, first, bias, w, b)
    torch.testing.assert_close(got, want)
    for ours, reference in zip(
        torch.autograd.grad((got * weight).sum(), leaves),
        torch.autograd.grad((want * weight).sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(ours, reference)


@pytest.mark.parametrize("kernel", ["blocked", pytest.param("compiled", marks=pytest.mark.slow)])
def test_gradcheck(kernel: str, generator: torch.Generator) -> None:
    u, v, w, b = (
        torch.randn(s, generator=generator, dtype=torch.float64, requires_grad=True) for s in [(4, 6), (5, 6), (6,), ()]
    )
    assert torch.autograd.gradcheck(lambda *x: pair_scores(*x, kernel=kernel), (u, v, w, b))


def test_float32_at_working_size(generator: torch.Generator) -> None:
    u, v, w = (torch.randn(s, generator=generator) for s in [(70, 33), (300, 33), (33,)])
    got = pair_scores(u, v, w, torch.tensor(0.5))
    want = torch.relu(u.double()[:, None] + v.double()) @ w.double() + 0.5
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-4)


def test_a_pair_at_the_kink_has_no_gradient() -> None:
    u, v = torch.tensor([[1.0]], requires_grad=True), torch.tensor([[-1.0]], requires_grad=True)
    pair_scores(u, v, torch.ones(1), torch.zeros(())).backward()
    assert u.grad.item() == 0 and v.grad.item() == 0


def test_backward_keeps_nothing_of_the_pairs_times_hidden(generator: torch.Generator) -> None:
    kept = []
    u, v, w = (torch.randn(s, generator=generator, requires_grad=True) for s in [(50, 16), (60, 16), (16,)])
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        pair_scores(u, v, w, torch.zeros(()))
    assert sum(kept) == u.numel() + v.numel() + w.numel()


def test_threads_stay_as_they_were(generator: torch.Generator) -> None:
    torch.set_num_threads(2)
    u = torch.randn(8, 4, generator=generator, requires_grad=True)
    pair_scores(u, u, torch.ones(4), torch.zeros(())).sum().backward()
    assert torch.get_num_threads() == 2


def test_where_nothing_can_be_compiled_auto_goes_on_without_and_says_so_once(
    generator: torch.Generator, monkeypatch, recwarn
) -> None:
    def refuse(*_: torch.Tensor) -> torch.Tensor:
        raise UserError("the compiled pair kernel cannot be built here: no compiler")

    monkeypatch.setattr(pairwise, "_run_compiled", refuse)
    monkeypatch.setattr(pairwise, "_failed", [])
    u, w, b = torch.randn(8, 4, generator=generator), torch.ones(4), torch.zeros(())
    with pytest.warns(UserWarning, match="no compiler"):
        got = pair_scores(u, u, w, b, steps=10**6)
    torch.testing.assert_close(got, pair_scores(u, u, w, b, kernel="blocked"))
    recwarn.clear()
    pair_scores(u, u, w, b, steps=10**6)
    assert not recwarn.list
    with pytest.raises(UserError, match="cannot be built"):
        pair_scores(u, u, w, b, kernel="compiled")


@pytest.mark.parametrize(
    "error",
    [
        TritonMissing(None),
        GPUTooOldForTriton(SimpleNamespace(major=6, minor=0, name="an old GPU"), None),
        TorchDynamoException("a graph that cannot be compiled\nand its trace"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_the_compiler_refuses_is_said_in_one_line(error: Exception, generator, monkeypatch) -> None:
    def refuse(*_: torch.Tensor) -> torch.Tensor:
        raise error

    monkeypatch.setattr(pairwise, "_compile", lambda: refuse)
    monkeypatch.setattr(pairwise, "_failed", [])
    u, w, b = torch.randn(8, 4, generator=generator), torch.ones(4), torch.zeros(())
    with pytest.warns(UserWarning, match=r"^the compiled pair kernel cannot be built here: .+; using kernel='blocked'"):
        got = pair_scores(u, u, w, b, steps=10**6)
    torch.testing.assert_close(got, pair_scores(u, u, w, b, kernel="blocked"))


def test_unknown_kernel() -> None:
    x = torch.ones(1, 1)
    with pytest.raises(UserError, match="blocked"):
        pair_scores(x, x, x[0], x[0, 0], kernel="bloked")


PEAK = """
import torch
from sslkit.regularizers.dsa import ArrangingMLP, arrange_loss, consistency_loss, prior_matrix
torch.manual_seed(0)
z = torch.randn(8192, 64, requires_grad=True)
mlp = ArrangingMLP(64, 128)
m = mlp(z)
loss = 0.1 * arrange_loss(z, m, torch.rand(8192)) + 100 * consistency_loss(m, prior_matrix(torch.randn(8192, 50)))
del m
loss.backward()
assert z.grad.isfinite().all() and z.grad.any()
assert all(p.grad.isfinite().all() and p.grad.any() for p in mlp.parameters())
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))  # ru_maxrss is inherited
"""


@pytest.mark.nightly
def test_8192_rows_of_hidden_128_fit_in_3_gb() -> None:
    answer = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True)
    assert int(answer.stdout) * 1024 < 3e9


def test_auto_compiles_on_the_cpu_only_where_a_run_is_long_enough(monkeypatch) -> None:
    monkeypatch.setattr(pairwise.shutil, "which", lambda name: name)
    assert pairwise.compiling_pays(256, 10_000) and not pairwise.compiling_pays(256, 9_999)
    assert not pairwise.compiling_pays(1024, 100_000)
    monkeypatch.setattr(pairwise.shutil, "which", lambda name: None)
    assert not pairwise.compiling_pays(256, 10_000)
    called = []
    monkeypatch.setattr(pairwise, "compiling_pays", lambda n, steps: steps > 5)
    monkeypatch.setattr(pairwise, "_run_compiled", lambda u, v, w: called.append(1) or u.new_zeros(len(u), len(v)))
    z = torch.rand(4, 3)
    arrange = ArrangingMLP(3, 2)
    arrange(z)
    assert not called
    arrange.steps = 6
    arrange(z)
    assert called
