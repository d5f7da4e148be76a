"""The grammar `objective+regulariser+...`, and what a method does with its input."""

import warnings

import pytest
import torch
import torchvision
from torch import Tensor

import sslkit
from sslkit.embeddings import Embeddings
from sslkit.errors import UserError
from sslkit.options.members import signature
from sslkit.regularizers.base import Regularizer


class Shrink(Regularizer):
    """From outside the package."""

    def __init__(self, dim: int, *, weight: float = 1.0, name: str = "shrink") -> None:
        super().__init__()
        self.weight, self.name = weight, name

    def terms(self, e: Embeddings, images: Tensor) -> dict[str, Tensor]:
        return {self.name: self.weight * e.z.square().mean()}


def build(name: str, **options) -> sslkit.Method:
    return sslkit.method(name, backbone="narrow_resnet", image_size=16, in_chans=1, **options)


def real(n: int = 16) -> tuple[Tensor, Tensor]:
    rows = sslkit.open_images("fashion_mnist").__getitems__(list(range(n)))
    return rows["images"], rows["index"]


def test_the_issue_s_call() -> None:
    options = {"objective": {"momentum": 0.99}, "dsa": {"nu": 0.2}}
    m = sslkit.method("byol+dsa", backbone="resnet10t", image_size=32, in_chans=3, **options)
    assert m.objective.momentum == 0.99 and m.regularizers["dsa"].nu == 0.2


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("byol+", {}, "empty part"),
        ("+dsa", {}, "empty part"),
        ("byol+dsa+dsa", {}, "twice"),
        ("dsa", {}, r"dsa is a regulariser: add it to an objective, method=simclr\+dsa"),
        ("byol+simclr", {}, "simclr is an objective: it comes first, method=simclr"),
        ("byol", {"dsa": {}}, "has no part 'dsa'"),
        ("byol+dsa", {"dsa": {"nuu": 1}}, "did you mean 'nu'"),
        ("byol", {"views": {"scael": (0.2, 1)}}, "did you mean 'scale'"),
        ("byol+no.where:Thing", {}, "cannot import"),
    ],
)
def test_a_bad_name_or_option_is_one_clear_error(name: str, options: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        build(name, **options)


def test_a_class_from_outside_with_options() -> None:
    m = build(f"simclr+{__name__}:Shrink", Shrink={"weight": 2.0})
    assert m.regularizers["Shrink"].weight == 2.0 and "shrink" in m(*real())


def test_two_terms_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="some exist already"):
        build(f"simclr+{__name__}:Shrink", Shrink={"name": "align"})(*real())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x: x.float().div(255).index_fill(0, torch.tensor([3]), float("nan")), "image 3 of the batch"),
        (lambda x: x.float(), r"must lie in \[0, 1\]"),
        (lambda x: x.float().div(255).sub(0.5), "must lie in"),
        (lambda x: x[:, 0], "images must be"),
        (lambda x: x.expand(-1, 3, -1, -1), "in_chans=1"),
        (lambda x: x[:1], "at least two images"),
        (lambda x: x.numpy(), r"must be a tensor, got ndarray of shape .*torch.from_numpy\(images\)"),
        (list, r"must be a tensor, got \[tensor"),
    ],
)
def test_bad_batches_are_one_clear_error(change, said: str) -> None:
    images, index = real()
    changed = change(images)
    with pytest.raises(UserError, match=said):
        build("simclr")(changed, index[: len(changed)])


@pytest.mark.parametrize(
    "change", [lambda i: i[:3], lambda i: i.float(), lambda i: i.numpy(), list, lambda i: i[:, None]]
)
def test_an_index_is_a_whole_number_for_each_image(change) -> None:
    images, index = real()
    with pytest.raises(UserError, match=r"index must be \(\d+,\) whole numbers, .*torch.arange\(len\(images\)\)"):
        build("simclr")(images, change(index))


@pytest.mark.parametrize("option", ["image_size", "in_chans"])
@pytest.mark.parametrize("value", ["32", 0, 3.5, None])
def test_sizes_are_whole_numbers(option: str, value: object) -> None:
    with pytest.raises(UserError, match=f"{option} must be a whole number, at least 1, got"):
        sslkit.method("simclr", **{"backbone": "narrow_resnet", "image_size": 28, "in_chans": 1, option: value})


def test_a_classifier_s_outputs_and_weights_that_are_only_named_are_noticed() -> None:
    net = torchvision.models.resnet18()
    with pytest.warns(UserWarning, match=r"the 1000 outputs of `fc`, .* net.fc = torch.nn.Identity\(\)"):
        sslkit.method("simclr", backbone=net, image_size=32)
    with pytest.warns(UserWarning, match="random weights: init=timm:resnet10t.c3_in1k starts from"):
        sslkit.method("simclr", backbone="resnet10t.c3_in1k", image_size=32)
    net.fc = torch.nn.Identity()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sslkit.method("simclr", backbone=net, image_size=32).backbone.width == 512


def test_options_of_the_views_replace_the_recipe_s() -> None:
    m = build("byol", views={"scale": [0.5, 1.0], "solarize": None})
    assert all(v.scale == (0.5, 1.0) for v in m.recipe.views)
    assert [v.solarize for v in m.recipe.views] == [0.0, 0.2]


def test_building_leaves_the_callers_random_state_alone() -> None:
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    build("byol+dsa")
    assert torch.rand(1) == expected


def test_an_own_loop_learns_real_images_without_lightning() -> None:
    images, index = real(64)
    m = build("byol+dsa", objective={"momentum": 0.9}, dsa={"eta": 5})
    m.prepare(sslkit.open_images("fashion_mnist"))
    optimizer = torch.optim.AdamW((p for p in m.parameters() if p.requires_grad), lr=2e-3)
    losses = []  # of align: at the paper's weight the prior's term hardly moves in a dozen steps
    for step in range(12):
        terms = m(images, index)
        optimizer.zero_grad()
        terms["loss"].backward()
        optimizer.step()
        m.after_step(step / 12)
        losses.append(terms["align"].item())
    assert sum(losses[-3:]) < 0.9 * sum(losses[:3])


def test_observe_sees_training_batches_only() -> None:
    m = build("simclr")
    seen = []
    m.objective.observe = lambda e: seen.append((torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")))
    with torch.autocast("cpu", torch.bfloat16):
        m(*real())
    m.eval()
    m(*real())
    assert seen == [(False, False)]  # queues and centres are fp32


def test_an_objective_that_learns_from_labels_asks_for_them() -> None:
    m = sslkit.method("supervised", image_size=16, objective={"classes": 3})
    images, index = torch.zeros(4, 3, 16, 16), torch.arange(4)
    with pytest.raises(UserError, match="labels=labels"):
        m(images, index)
    assert m(images, index, labels=torch.tensor([0, 1, 2, -1]))["loss"].isfinite()


def test_views_of_multi_crop_are_options_of_the_method() -> None:
    m = sslkit.method("swav", image_size=32, objective={"prototypes": 8}, views={"n_local": 1, "local_size": 16})
    assert [v.shape[-1] for v in m.make_views(torch.zeros(2, 3, 32, 32))] == [32, 32, 16]
    assert "n_local" in signature("swav")["views"] and "n_local" not in signature("byol")["views"]


def test_looking_at_the_views_does_not_change_what_comes() -> None:
    images = torch.rand(4, 3, 16, 16)
    first, second = (sslkit.method("byol", image_size=16) for _ in range(2))
    shown = first.make_views(images)
    torch.testing.assert_close(torch.stack(shown), torch.stack(first.make_views(images)))
    assert first(images, torch.arange(4))["loss"].item() == second(images, torch.arange(4))["loss"].item()


def test_the_state_holds_the_clock_of_the_schedules() -> None:
    m = sslkit.method("dino", image_size=16, objective={"prototypes": 8, "hidden": 8, "dim": 8})
    m.epoch, m.batch = 3, 7
    m.after_step(0.625)
    other = sslkit.method("dino", image_size=16, objective={"prototypes": 8, "hidden": 8, "dim": 8})
    other.load_state_dict(m.state_dict())
    assert (other.epoch, other.batch, other.progress) == (3, 7, 0.625)
    other(torch.rand(2, 3, 16, 16), torch.arange(2))
    assert (other.objective.epoch, other.objective.progress) == (3, 0.625)


@pytest.mark.parametrize("name", ["simclr", "mae"])
def test_a_vit_at_a_size_that_its_patch_does_not_divide(name: str) -> None:
    m = sslkit.method(name, backbone="vit_tiny_patch16_224", image_size=100)
    assert m(torch.rand(2, 3, 100, 100), torch.arange(2))["loss"].isfinite()


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("dino", {"backbone": "narrow_vit", "image_size": 28, "views": {"local_size": 10}}, "local crops of 10 pixels"),
        ("dino", {"backbone": "swin_tiny_patch4_window7_224", "image_size": 224}, "local crops of 96 pixels"),
        ("mae", {"backbone": "resnet10t"}, "narrow_vit"),
        ("simclr", {"objective": {"temperature": 0}}, "temperature must be a number, above 0"),
        ("simclr", {"objective": {"temperature": "low"}}, "temperature must be a number"),
        ("simclr", {"objective": {"hidden": -3}}, "hidden must be a whole number, at least 1"),
        ("dino", {"objective": {"momentum": 2.0}}, "momentum must be a number, at least 0 and at most 1"),
        ("swav", {"objective": {"iterations": 0.5}}, "iterations must be a whole number"),
        ("vicregl", {"objective": {"num_matches": 5}}, "num_matches must be a list"),
    ],
)
def test_options_that_cannot_be_are_one_clear_error(name: str, options: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        sslkit.method(name, **{"image_size": 32, **options})


def test_a_batch_too_small_for_the_objective_says_what_else_to_lower() -> None:
    m = sslkit.method("w_mse", image_size=16)
    with pytest.raises(UserError, match=r"at least 128 images.*dim and whitening_size"):
        m(torch.rand(4, 3, 16, 16), torch.arange(4))


@pytest.mark.parametrize("backbone", ["mobilenetv3_small_050", "swin_tiny_patch4_window7_224"])
def test_vicregl_takes_maps_of_other_widths_and_orders(backbone: str) -> None:
    m = sslkit.method("vicregl", backbone=backbone, image_size=64, objective={"hidden": 8, "dim": 8})
    assert m(torch.rand(4, 3, 64, 64), torch.arange(4))["loss"].isfinite()
