"""Inputs that are nearly nothing, for every regulariser of embeddings, and priors that are, found by listing.

Those of maps have their own: test_anchors.py.
"""

import pytest
import torch
from contract import EMBEDDED, batch, build, step
from torch import Tensor

from sslkit import regularizers
from sslkit.data.items import IMAGE
from sslkit.embeddings import Embeddings
from sslkit.errors import UserError
from sslkit.options import members

PRIORED = [name for name in EMBEDDED if "prior" in members.options(regularizers.find(name))]

pytestmark = pytest.mark.filterwarnings("ignore:.*no data set.*", "ignore:.*eta.*", "ignore:.*dead.*")
every = pytest.mark.parametrize("name", EMBEDDED)
with_prior = pytest.mark.parametrize("name", PRIORED)


def total(name: str, x: Tensor, *, slow: Tensor | None = None, **options) -> Tensor:
    """The sum of the terms for embeddings x (V, N, D), and for views that are the clean images.

    Without options a prior is of the views.
    """
    v, n = x.shape[:2]
    images, index = batch(n)
    torch.manual_seed(0)
    usual = {} if name not in PRIORED else {"mode": "view"} if slow is None else {"prior": "self"}
    plugin = regularizers.find(name)(x.shape[2], **(options or usual))
    read = {"z": x.detach(), "h": x.detach(), plugin.reads: x}
    e = Embeddings(**read, target=None, index=index, views=[images.float() / 255] * v, slow=slow)
    return sum(plugin.terms(e, images).values())


def drawn(v: int, n: int, dtype: torch.dtype = torch.float32) -> Tensor:
    x = torch.randn(v, n, 12, generator=torch.Generator().manual_seed(1))
    return x.to(dtype).requires_grad_()


def assert_learns(loss: Tensor, x: Tensor, least: float = 0.0) -> None:
    loss.backward()
    assert loss.isfinite() and loss.dtype is torch.float32
    assert x.grad.isfinite().all() and x.grad.abs().max() >= least


class Images:
    """A data set, as `prepare` sees it."""

    decodes, name, digest, channels, item = False, "images", "a", 3, IMAGE

    def __init__(self, pixels: Tensor) -> None:
        self.pixels = pixels

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitems__(self, rows: list[int]) -> dict[str, Tensor]:
        return {"images": self.pixels[rows], "index": torch.tensor(rows)}


def test_there_are_some() -> None:
    assert {"adc", "dsa", "guide"} <= set(PRIORED) < set(EMBEDDED) < set(regularizers.names())


@every
def test_one_image_of_two_views_has_a_finite_loss(name: str) -> None:
    x = drawn(2, 1)
    assert_learns(total(name, x), x)


@every
def test_one_view_is_enough(name: str) -> None:
    x = drawn(1, 8)
    assert_learns(total(name, x), x, least=1e-4)


@every
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_equal_embeddings_have_a_finite_gradient(name: str, value: float) -> None:
    x = torch.full((2, 8, 12), value, requires_grad=True)
    assert_learns(total(name, x), x)


@every
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_embeddings_in_half_precision_have_a_loss_in_fp32(name: str, dtype: torch.dtype) -> None:
    x, whole = drawn(2, 8, dtype), drawn(2, 8)
    half = total(name, x)
    torch.testing.assert_close(half, total(name, whole), rtol=0.03, atol=0.01)
    assert_learns(half, x, least=1e-4)


@with_prior
@pytest.mark.parametrize("slow", [torch.zeros(7, 20), torch.ones(7, 20), torch.linspace(0.1, 0.9, 20).expand(7, 20)])
def test_a_network_that_has_collapsed_is_its_own_prior_with_a_finite_loss(name: str, slow: Tensor) -> None:
    x = drawn(2, 7)
    assert_learns(total(name, x, slow=slow), x)
    if name == "guide":  # rounding is no target: the mean of seven equal numbers is another
        assert not x.grad.any()


@with_prior
def test_the_network_is_its_own_prior_from_the_first_step_on(name: str) -> None:
    m = build(f"byol+{name}", **{name: {"prior": "self"}})
    terms = step(m, *batch(8))
    terms["loss"].backward()
    assert all(term.isfinite() for term in terms.values())


@with_prior
def test_a_prior_of_equal_features_is_refused_before_training(name: str) -> None:
    images, _ = batch(6)
    m = build(f"byol+{name}", **{name: {"prior": lambda x: torch.ones(len(x), 5), "mode": "cached"}})
    with pytest.raises(UserError, match="has the same features for all images: nothing can be learned from it"):
        m.prepare(Images(images))


@with_prior
def test_a_data_set_of_one_class_is_a_data_set(name: str) -> None:
    images, index = batch(8)
    m = build(f"byol+{name}")
    m.prepare(Images(images))
    assert all(term.isfinite() for term in step(m, images, index).values())


@with_prior
def test_nan_of_a_prior_is_one_line(name: str) -> None:
    def nan(x: Tensor) -> Tensor:
        return torch.full((len(x), 5), torch.nan)

    with pytest.raises(UserError, match=rf"{name}: prior .*nan returned features of .* that are not finite"):
        total(name, drawn(2, 8), prior=nan, mode="view")
    images, _ = batch(6)
    m = build(f"byol+{name}", **{name: {"prior": nan, "mode": "cached"}})
    with pytest.raises(UserError, match="returned features that are not finite for rows 0 to 5"):
        m.prepare(Images(images))


@pytest.mark.parametrize("name", ["adc", "dsa"])
def test_nan_of_clean_images_is_one_line_where_nothing_was_prepared(name: str) -> None:
    with pytest.raises(UserError, match=f"{name}: prior .* returned features of the clean images that are not finite"):
        total(name, drawn(2, 8), prior=lambda x: torch.full((len(x), 5), torch.nan), mode="cached")


@with_prior
def test_features_of_zeros_are_near_to_each_other_and_to_nothing_else(name: str) -> None:
    """The features of flat images may be zeros, which no scaling gives a length."""
    x, sharp = drawn(2, 8), {} if name == "guide" else {"tau": 1e-3}
    flat = torch.eye(8)[[0, 0, 1, 1, 2, 2, 3, 3]] * torch.tensor([1.0, 1, 1, 1, 1, 1, 0, 0])[:, None]
    other = torch.eye(8)[[0, 0, 1, 1, 2, 2, 3, 3]]
    assert_learns(total(name, x, prior=lambda _: flat, mode="view", **sharp), x)
    if sharp:  # nearly all of a row's share is its equals', which are the same rows
        losses = [total(name, x, prior=lambda _, f=f: f, mode="view", **sharp) for f in (flat, other)]
        torch.testing.assert_close(*losses)


@with_prior
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"prior": "pca", "prior_precision": "bfloat16"}, "prior_precision=bfloat16 is for .*, not for prior pca"),
        ({"prior": "self", "prior_precision": "bfloat16"}, "prior_precision=bfloat16 is for .*, not for prior self"),
        ({"prior": lambda x: x.flatten(1), "prior_size": 32}, "resizes no images: leave prior_size=32 out"),
    ],
)
def test_an_option_that_would_change_nothing_is_refused(name: str, options: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        regularizers.find(name)(12, **options)


@with_prior
def test_the_error_names_a_prior_that_does_not_exist(name: str) -> None:
    with pytest.raises(UserError, match="there is no prior 'pcaa': did you mean 'pca'"):
        build(f"byol+{name}", **{name: {"prior": "pcaa"}})
