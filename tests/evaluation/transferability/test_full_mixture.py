"""The full mixture against scikit-learn's from the same seed: same clustering, same steps, same posteriors."""

import numpy as np
import pytest
import torch
from sklearn.mixture import GaussianMixture

from evaluation.transferability import _full_mixture
from evaluation.transferability._full_mixture import fit_full_mixture
from sslkit.errors import UserError


def draw(n: int, d: int, offset: float = 0.0) -> torch.Tensor:
    rng = np.random.default_rng(n)
    centres = 1.5 * rng.normal(size=(7, d))
    scales = rng.uniform(0.2, 2, size=(7, d))
    which = rng.integers(7, size=n)
    return torch.from_numpy(centres[which] + scales[which] * rng.normal(size=(n, d)) + offset)


@pytest.mark.parametrize(("n", "d", "components"), [(200, 3, 4), (300, 20, 11), (60, 40, 30), (50, 2, 1)])
@pytest.mark.parametrize("seed", [0, 5])
def test_it_is_scikit_learns(n: int, d: int, components: int, seed: int) -> None:
    x = draw(n, d)
    theirs = GaussianMixture(components, covariance_type="full", reg_covar=1e-5, random_state=seed).fit(x.numpy())
    ours = fit_full_mixture(x, components, 1e-5, seed)
    assert (ours.steps, ours.converged) == (theirs.n_iter_, theirs.converged_)
    np.testing.assert_allclose(ours.means, theirs.means_, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(ours.factors, theirs.precisions_cholesky_, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(ours.shares, theirs.weights_, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(ours.responsibilities(x), theirs.predict_proba(x.numpy()), atol=1e-6)


def test_the_same_seed_gives_the_same_bits() -> None:
    x = draw(150, 6)
    one, other = (fit_full_mixture(x, 9, 1e-6, 3) for _ in range(2))
    assert torch.equal(one.means, other.means) and torch.equal(one.responsibilities(x), other.responsibilities(x))


def test_rows_of_several_blocks_are_those_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    x = draw(150, 6)
    whole = fit_full_mixture(x, 9, 1e-6, 3).responsibilities(x)
    monkeypatch.setattr(_full_mixture, "BLOCK", 2000)
    torch.testing.assert_close(fit_full_mixture(x, 9, 1e-6, 3).responsibilities(x), whole)


def test_a_floor_that_rounding_swallows_is_refused() -> None:
    x = draw(60, 4)
    x[:, 3] = x[:, 0]
    with pytest.raises(UserError, match="not positive definite"):
        fit_full_mixture(1e9 * x, 5, 1e-12, 0)
