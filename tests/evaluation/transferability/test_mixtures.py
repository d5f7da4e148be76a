"""Both mixtures against scikit-learn's from the same seed: same clustering, same steps, same posteriors."""

import numpy as np
import pytest
import torch
from sklearn.mixture import GaussianMixture

from evaluation.transferability import _mixtures
from evaluation.transferability._mixtures import DiagonalMixture, FullMixture, Mixture
from sslkit.errors import UserError


def draw(n: int, d: int, offset: float = 0.0) -> torch.Tensor:
    rng = np.random.default_rng(n)
    centres = 1.5 * rng.normal(size=(7, d))
    scales = rng.uniform(0.2, 2, size=(7, d))
    which = rng.integers(7, size=n)
    return torch.from_numpy(centres[which] + scales[which] * rng.normal(size=(n, d)) + offset)


def compare(ours: Mixture, theirs: GaussianMixture, x: torch.Tensor) -> None:
    assert (ours.steps, ours.converged) == (theirs.n_iter_, theirs.converged_)
    np.testing.assert_allclose(ours.means, theirs.means_, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(ours.shares, theirs.weights_, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(ours.responsibilities(x), theirs.predict_proba(x.numpy()), atol=1e-6)


@pytest.mark.parametrize(("n", "d", "components"), [(200, 3, 4), (300, 20, 11), (60, 40, 30), (50, 2, 1)])
@pytest.mark.parametrize("seed", [0, 5])
class TestItIsScikitLearns:
    def test_with_diagonal_covariances(self, n: int, d: int, components: int, seed: int) -> None:
        x = draw(n, d)
        theirs = GaussianMixture(components, covariance_type="diag", reg_covar=1e-5, random_state=seed).fit(x.numpy())
        ours = DiagonalMixture.fit(x, components, 1e-5, seed)
        compare(ours, theirs, x)
        np.testing.assert_allclose(ours.variances, theirs.covariances_, rtol=1e-6, atol=1e-9)

    def test_with_full_covariances(self, n: int, d: int, components: int, seed: int) -> None:
        x = draw(n, d)
        theirs = GaussianMixture(components, covariance_type="full", reg_covar=1e-5, random_state=seed).fit(x.numpy())
        ours = FullMixture.fit(x, components, 1e-5, seed)
        compare(ours, theirs, x)
        np.testing.assert_allclose(ours.factors, theirs.precisions_cholesky_, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [DiagonalMixture, FullMixture])
def test_the_same_seed_gives_the_same_bits(kind: type[Mixture]) -> None:
    x = draw(150, 6)
    one, other = (kind.fit(x, 9, 1e-6, 3) for _ in range(2))
    assert torch.equal(one.means, other.means) and torch.equal(one.responsibilities(x), other.responsibilities(x))


def test_rows_of_several_blocks_are_those_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    x = draw(150, 6)
    whole = FullMixture.fit(x, 9, 1e-6, 3).responsibilities(x)
    monkeypatch.setattr(_mixtures, "BLOCK", 2000)
    torch.testing.assert_close(FullMixture.fit(x, 9, 1e-6, 3).responsibilities(x), whole)


def test_a_floor_that_rounding_swallows_is_refused() -> None:
    x = draw(60, 2, offset=1e9)
    with pytest.raises(UserError, match="a variance is below 0"):
        DiagonalMixture.fit(x, 5, 1e-12, 0)
    x = draw(60, 4)
    x[:, 3] = x[:, 0]
    with pytest.raises(UserError, match="not positive definite"):
        FullMixture.fit(1e9 * x, 5, 1e-12, 0)
