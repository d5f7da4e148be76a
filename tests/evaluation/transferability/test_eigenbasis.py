"""Eigenbases against torch.linalg.eigh: below and above the order from which only the tridiagonal form is kept."""

import numpy as np
import pytest
import torch
from torch import Tensor

import evaluation
from evaluation.transferability._scatter import DIRECT, Diagonal, Tridiagonal, eigenbasis_of


def gram(n: int, rank: int | None = None) -> Tensor:
    x = torch.from_numpy(np.random.default_rng(n).normal(size=(rank or 2 * n, n)))
    return x.T @ x


@pytest.mark.parametrize("n", [1, 2, 7, DIRECT, DIRECT + 1, DIRECT + 37])
def test_it_is_that_of_eigh(n: int) -> None:
    matrix = gram(n)
    basis = eigenbasis_of(matrix)
    values, vectors = torch.linalg.eigh(matrix)
    assert isinstance(basis, Tridiagonal) == (n > DIRECT)
    assert torch.allclose(basis.values, values, rtol=1e-9, atol=1e-9 * float(values[-1]))
    b = torch.from_numpy(np.random.default_rng(1).normal(size=(n, 3)))
    assert torch.allclose(basis.coordinates(b).abs(), (vectors.T @ b).abs(), atol=1e-8)


@pytest.mark.parametrize("n", [1, 5, DIRECT + 40])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.6, 1.0])
def test_leading_vectors(n: int, share: float) -> None:
    matrix, k = gram(n), round(share * n)
    leading = eigenbasis_of(matrix).leading(k)
    assert leading.shape == (n, k)
    assert torch.allclose(leading.T @ leading, torch.eye(k, dtype=torch.float64), atol=1e-10)
    wanted = torch.linalg.eigvalsh(matrix)[n - k :]
    assert torch.allclose(matrix @ leading, leading * wanted, atol=1e-9 * float(matrix.trace()))


def test_coordinates_belong_to_the_values() -> None:
    matrix = gram(DIRECT + 60)
    basis = eigenbasis_of(matrix)
    b = torch.from_numpy(np.random.default_rng(2).normal(size=(len(matrix), 2)))
    turned = basis.coordinates(b)
    assert torch.allclose((turned.square() * basis.values[:, None]).sum(0), (b * (matrix @ b)).sum(0), rtol=1e-10)
    assert torch.allclose(basis.leading(len(matrix)).T @ b, turned, atol=1e-8)


def test_dead_and_repeated_directions() -> None:
    n = DIRECT + 100
    matrix = torch.zeros(n, n, dtype=torch.float64)
    matrix[:60, :60] = gram(60, 20)
    matrix[60:90, 60:90] = 3 * torch.eye(30, dtype=torch.float64)
    basis = eigenbasis_of(matrix)
    assert torch.allclose(basis.values, torch.linalg.eigvalsh(matrix), atol=1e-11)
    leading = basis.leading(70)  # 50 of them are not 0
    assert torch.allclose(leading.T @ leading, torch.eye(70, dtype=torch.float64), atol=1e-10)
    kept = leading[:, 20:] * basis.values[-50:] @ leading[:, 20:].T
    assert torch.allclose(kept, matrix, atol=1e-9)


def test_same_bits_in_whatever_order_it_is_asked() -> None:
    matrix = gram(DIRECT + 20)
    one, other = eigenbasis_of(matrix), eigenbasis_of(matrix)
    b = matrix[:, :4]
    first = one.leading(10), one.coordinates(b), one.values
    values, turned = other.values, other.coordinates(b)
    assert torch.equal(first[0], other.leading(10)) and torch.equal(first[1], turned) and torch.equal(first[2], values)


def test_of_a_diagonal() -> None:
    diagonal = torch.tensor([2.0, 0.0, 5.0, 1.0], dtype=torch.float64)
    basis = Diagonal.of(diagonal)
    b = torch.arange(8, dtype=torch.float64).view(4, 2)
    assert basis.values.tolist() == [0, 1, 2, 5]
    vectors = basis.leading(4)
    assert torch.equal(vectors * basis.values @ vectors.T, torch.diag(diagonal))
    assert torch.equal(vectors.T @ b, basis.coordinates(b)) and torch.equal(basis.leading(2), vectors[:, 2:])


@pytest.mark.parametrize("name", ["logme", "h_score", "gbc", "linear_probe", "parc", "nleep(covariance=diag)"])
def test_metrics_do_not_see_which_form_it_has(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    y = np.arange(420) % 6
    x = np.maximum(rng.normal(size=(6, 330))[y] + rng.normal(size=(420, 330)) * np.linspace(0.1, 3, 330), 0)
    reference = (x.mean(0), x.std(0))
    assert x.shape[1] > DIRECT
    found = evaluation.score(name, x, y, reference=reference)
    monkeypatch.setattr("evaluation.transferability._scatter.DIRECT", 10**6)
    assert evaluation.score(name, x, y, reference=reference) == pytest.approx(found, rel=1e-9)


def test_it_takes_one_blas_thread_and_gives_the_others_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several threads of OpenBLAS wait for each other thousands of times, for seconds on a busy machine."""
    from scipy.linalg import lapack
    from threadpoolctl import threadpool_info, threadpool_limits

    def of_blas() -> set[int]:
        return {found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"}

    seen, reduce = [], lapack.dsytrd
    monkeypatch.setattr(lapack, "dsytrd", lambda *args, **how: seen.append(of_blas()) or reduce(*args, **how))
    with threadpool_limits(2, user_api="blas"):
        before = of_blas()
        eigenbasis_of(gram(DIRECT + 10))
        assert of_blas() == before
    assert seen == [{1}]
