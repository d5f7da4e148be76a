"""Targets from a prior: components, whitened, of each view; fitted once and kept with the run."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from torch import Tensor

from sslkit.data.items import IMAGE
from sslkit.data.sources.named import open_images
from sslkit.embeddings import Embeddings
from sslkit.errors import UserError
from sslkit.priors import _targets, build
from sslkit.priors._targets import PriorTargets, regression_loss, whitening
from sslkit.runtime import distributed

N, ROWS = 12, 400


class Some:
    """The first images of Fashion-MNIST."""

    decodes, channels, name, item = False, 1, "some", IMAGE

    def __init__(self, count: int = ROWS) -> None:
        self.images, self.count, self.digest = open_images("fashion_mnist"), count, f"first {count}"

    def __len__(self) -> int:
        return self.count

    def __getitems__(self, rows: list[int]) -> dict[str, Tensor]:
        return self.images.__getitems__(rows)


@pytest.fixture(scope="module")
def images() -> Some:
    return Some()


def targets(prior: object = "pca", **options: object) -> PriorTargets:
    given = {"components": 16, "mode": "auto", "size": None, "precision": "float32", "owner": "guide", **options}
    return PriorTargets(prior, **given)


def step(images: Some, views: int = 2) -> Embeddings:
    """A step of the first images, whose views are darker and darker."""
    batch = images.__getitems__(list(range(N)))
    seen = [batch["images"].float() / 255 * (1 - 0.3 * v) for v in range(views)]
    z = torch.zeros(views, N, 4)
    return Embeddings(z=z, h=z, target=None, index=batch["index"], views=seen)


@pytest.mark.parametrize("rows", [300, 40])
def test_whitening_is_scikit_learns_components_over_the_root_of_their_sd(rows: int, images: Some) -> None:
    pixels = images.__getitems__(list(range(rows)))["images"]
    features = build("hog", size=16)(pixels)  # (rows, 1764): more features than images
    for x in (features, features[:, :30]):
        found = whitening(x, 12, "prior")
        pca = PCA(12, svd_solver="full").fit(x.double().numpy())
        np.testing.assert_allclose(found[0], pca.mean_, atol=1e-6)
        sd = pca.singular_values_ / rows**0.5  # over N, not N - 1: a factor of all components
        expected = pca.components_ / sd[:, None] ** 0.5
        same = np.sign((found[1:].numpy() * expected).sum(1, keepdims=True))
        np.testing.assert_allclose(found[1:] * same, expected, rtol=1e-3, atol=1e-3)
        assert (found[1:].gather(1, found[1:].abs().argmax(1, keepdim=True)) > 0).all()


def test_missing_components_and_features_that_do_not_vary_are_zero() -> None:
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    found = whitening(torch.cat([x, torch.full((50, 2), 7.0)], 1), 6, "prior")
    assert (found[1:4, :3].norm(dim=1) > 0.5).all() and not found[4:].any() and not found[1:, 3:].any()
    torch.testing.assert_close(found[0, 3:], torch.full((2,), 7.0))


@pytest.mark.parametrize("value", [0.0, 0.1, 1e4])
def test_a_prior_that_says_the_same_of_all_images_is_refused(value: float, images: Some) -> None:
    mine = targets(lambda x: torch.full((len(x), 5), value))
    with pytest.raises(UserError, match=r"guide\.prior=.*same features for all images: nothing can be learned"):
        mine.prepare(images, cache=None)


@pytest.mark.parametrize("prior", ["pca", "hog"])
def test_the_target_of_a_view_is_the_whitened_prior_of_that_view(prior: str, images: Some) -> None:
    mine = targets(prior)
    mine.prepare(images, cache=None)
    e = step(images)
    clean = mine.prior(images.__getitems__(list(range(ROWS)))["images"])
    fitted = whitening(clean, 16, "prior")
    for view, found in zip(e.views, mine(e), strict=True):
        for image, a in zip(view, found, strict=True):
            expected = (mine.prior(image[None])[0] - fitted[0]) @ fitted[1:].T
            torch.testing.assert_close(a, expected, rtol=1e-3, atol=1e-4)
    assert not torch.equal(*mine(e)) and not mine(e).requires_grad


def test_parts_of_one_view_ask_the_prior_once(images: Some) -> None:
    seen: list[int] = []

    def prior(x: Tensor) -> Tensor:
        seen.append(len(x))
        return x.flatten(1)[:, 300:340]

    mine, e = targets(prior), step(images, 1)
    mine.prepare(images, cache=None)
    seen.clear()
    e.views, e.z = [e.views[0], e.views[0]], torch.zeros(2, N, 4)
    found = mine(e)
    assert seen == [N] and torch.equal(found[0], found[1])


def test_cached_features_are_those_of_the_clean_image(images: Some, monkeypatch) -> None:
    mine, e = targets("hog", mode="cached"), step(images)
    with pytest.raises(UserError, match=r"guide\.mode=cached looks up .* call method\.prepare"):
        mine(e)
    mine.prepare(images, cache=None)
    found = mine(e)
    clean = mine.whiten(mine.prior(images.__getitems__(list(range(N)))["images"]))
    torch.testing.assert_close(found, clean.expand(2, -1, -1))
    # Of two ranks each takes its half of the gathered index.
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    monkeypatch.setattr(distributed, "rank", lambda: 1)
    torch.testing.assert_close(mine(e), clean[N // 2 :].expand(2, -1, -1))


def test_a_checkpoint_keeps_what_was_fitted(images: Some) -> None:
    mine, other = targets(), targets()
    mine.prepare(images, cache=None)
    other.load_state_dict(copy.deepcopy(mine.state_dict()))
    other.prepare(Some(50), cache=None)  # would be other components
    e = step(images)
    assert torch.equal(mine(e), other(e))
    other = targets()
    other.prepare(Some(50), cache=None)  # the order of a loop of one's own
    other.load_state_dict(copy.deepcopy(mine.state_dict()))
    assert torch.equal(mine(e), other(e))
    unprepared = targets()
    unprepared.load_state_dict(mine.state_dict())
    assert torch.equal(mine(e), unprepared(e))
    fresh = targets()
    fresh.prepare(Some(50), cache=None)
    assert not torch.allclose(mine(e), fresh(e), atol=1e-2)


def test_the_fit_is_read_from_the_cache(images: Some, tmp_path, monkeypatch) -> None:
    mine = targets("hog")
    mine.prepare(images, cache=tmp_path)
    monkeypatch.setattr(_targets, "whitening", lambda *_: pytest.fail("fitted again"))
    again = targets("hog")
    again.prepare(images, cache=tmp_path)
    assert torch.equal(mine(step(images)), again(step(images)))
    with pytest.raises(pytest.fail.Exception):
        targets("hog", components=8).prepare(images, cache=tmp_path)


def test_without_a_fit_the_targets_are_a_projection_and_that_is_said(images: Some) -> None:
    mine, e = targets("hog", size=16), step(images)
    with pytest.warns(UserWarning, match=r"guide was fitted to no data set \(call Method\.prepare\)"):
        found = mine(e)
    assert found.shape == (2, N, 16) and found.std() > 0.01
    assert torch.equal(found, targets("hog", size=16)(e))


def features_file(tmp_path, rows: int, **options: object) -> str:
    array = np.random.default_rng(0).standard_normal((rows, 6)).astype(np.float32)
    for row, value in options.get("at", {}).items():
        array[row, 2] = value
    np.save(tmp_path / "f.npy", array)
    return f"features:{tmp_path / 'f.npy'}"


def test_a_file_of_features_is_looked_up(images: Some, tmp_path) -> None:
    mine = targets(features_file(tmp_path, ROWS), components=6)
    mine.prepare(images, cache=tmp_path / "cache")
    found = mine(step(images))
    assert found.shape == (2, N, 6) and torch.equal(found[0], found[1])
    assert found[0].std(0).min() > 0.1


@pytest.mark.parametrize(
    ("rows", "at", "message"),
    [
        (ROWS - 1, {}, "has 399 rows, some has 400 images"),
        (ROWS, {7: np.nan}, "row 7 has NaN or infinite features"),
        (ROWS, {399: np.inf}, "row 399 has NaN or infinite features"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(rows: int, at: dict, message: str, images: Some, tmp_path) -> None:
    mine = targets(features_file(tmp_path, rows, at=at))
    with pytest.raises(UserError, match=message):
        mine.prepare(images, cache=None)


def test_options_that_do_not_fit_are_refused(images: Some, tmp_path) -> None:
    with pytest.raises(UserError, match=r"clean images only: use method\.guide\.mode=cached"):
        targets(features_file(tmp_path, ROWS), mode="view")
    with pytest.raises(UserError, match=r"needs the augmented views"):
        mine = targets("hog")
        mine.prepare(images, cache=None)
        mine(SimpleNamespace(views=None, h=torch.zeros(2, N, 4)))
    mine = targets(lambda x: x.flatten(1))
    mine.prepare(images, cache=None)
    e = step(images)
    e.views = [view[..., :20, :20] for view in e.views]
    with pytest.raises(UserError, match="gives 400 features here, and gave 784 of the clean images"):
        mine(e)
    with pytest.raises(UserError, match=r"guide\.mode='cahced' is not possible: did you mean 'cached'"):
        targets(mode="cahced")
    blind = targets(lambda x: x.flatten(1) if len(x) > N else x.flatten(1) / 0)
    blind.prepare(images, cache=None)
    with pytest.raises(UserError, match="returned features of a view that are not finite"):
        blind(step(images))
    broken = targets(lambda x: x.flatten(1) / 0 * (x.flatten(1) > 0.5))
    with pytest.raises(UserError, match=r"not finite for rows 0 to \d+"):
        broken.prepare(images, cache=None)


def test_the_loss_is_one_minus_the_mean_cosine() -> None:
    generator = torch.Generator().manual_seed(0)
    predicted = torch.randn(2, 5, 7, generator=generator, dtype=torch.float64, requires_grad=True)
    target = torch.randn(2, 5, 7, generator=generator, dtype=torch.float64)
    total = 0.0
    for v in range(2):
        for n in range(5):
            p, t = predicted[v, n], target[v, n]
            total = total + 1 - (p * t).sum() / (p.square().sum() * t.square().sum()).sqrt()
    torch.testing.assert_close(regression_loss(predicted, target), total / 10)
    assert torch.autograd.gradcheck(lambda p: regression_loss(p, target), predicted)
