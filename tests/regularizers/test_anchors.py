"""Anchors: exactly 0 for equal networks, their passes, what they refuse."""

import io
from pathlib import Path

import pytest
import safetensors.torch
import timm
import torch
from contract import ANCHORS, batch, build, maps
from torch import Tensor

import sslkit
from sslkit import regularizers
from sslkit.embeddings import Maps
from sslkit.errors import UserError
from sslkit.priors.base import NetworkPrior
from sslkit.regularizers.base import tokens
from sslkit.training.build import build_method
from sslkit.training.config import Config
from sslkit.training.data import open_data
from sslkit.zoo.start import start

PATCHES = [name for name in ANCHORS if name != "retain"]
every = pytest.mark.parametrize("name", ANCHORS)


def step(method: sslkit.Method, n: int = 6) -> dict[str, Tensor]:
    return method(*batch(n))


def moved(method: sslkit.Method) -> sslkit.Method:
    """The method after its network has changed."""
    g = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for p in method.backbone.parameters():
            p.add_(0.2 * p.std().nan_to_num() * torch.randn(p.shape, generator=g))
    return method


def test_there_are_three() -> None:
    assert ANCHORS == ["gram", "paka", "retain"]


@every
@pytest.mark.parametrize("family", ["resnet", "vit"])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_equal_networks_have_a_term_of_exactly_zero(name: str, family: str, precision: torch.dtype) -> None:
    method = build(f"simclr+{name}", family)
    method.train(family == "vit")  # in training a batch norm's statistics change before the anchors' pass
    for change, most, least in ((lambda x: x, 0.0, 0.0), (moved, 1.0, 1e-4)):
        change(method)
        with torch.autocast("cpu", precision, enabled=precision is not torch.float32):
            term = step(method)[name]
        assert term.dtype is torch.float32 and least <= term.item() <= most


@every
def test_a_masked_objective_is_compared_unmasked(name: str) -> None:
    assert step(build(f"mae+{name}").train())[name].item() == 0.0


@every
def test_random_weights_are_another_network_of_the_same_form_and_the_seeds(name: str) -> None:
    terms = [
        step(build(f"simclr+{name}", "vit", seed=s, **{name: {"prior": "random"}}))[name].item() for s in (0, 0, 1)
    ]
    assert terms[0] == terms[1] != terms[2] and min(terms) > 1e-3


@pytest.mark.parametrize("name", PATCHES)
def test_patches_at_other_positions_are_told_apart(name: str) -> None:
    """An anchor that reads the wrong patches, as a published code was said to, would not be 0 here, but there."""
    student, order = maps(), torch.arange(9)
    turned = Maps(student.patches.flip(3), student.pooled)
    plugin = regularizers.find(name)(5)
    assert (
        plugin.distance(student, student, order).item() == 0.0 < 1e-3 < plugin.distance(student, turned, order).item()
    )


def test_a_permuted_image_permutes_its_patches() -> None:
    body = sslkit.method("simclr", backbone="vit_tiny_patch16_224", image_size=64).backbone.eval()
    body.net.pos_embed.data.zero_()
    image = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    size = body.patch
    other = image.clone()
    other[..., :size, :size], other[..., size : 2 * size, :size] = (
        image[..., size : 2 * size, :size],
        image[..., :size, :size],
    )
    ours, theirs = (body.feature_map(x)[0][0] for x in (image, other))
    torch.testing.assert_close(ours[:, 0, 0], theirs[:, 1, 0], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(ours[:, 1, 0], theirs[:, 0, 0], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(ours[:, 2:], theirs[:, 2:], rtol=1e-3, atol=1e-4)


def test_a_finer_map_is_resized_without_antialias() -> None:
    student, anchor = maps(), maps(side=9, seed=1)
    resized = tokens(student, anchor)[1].mT.unflatten(2, (3, 3))
    how = {"size": (3, 3), "mode": "bicubic", "align_corners": False}
    torch.testing.assert_close(resized, torch.nn.functional.interpolate(anchor.patches, **how, antialias=False))
    smooth = torch.nn.functional.interpolate(anchor.patches, **how, antialias=True)
    assert (resized - smooth).abs().max() > 0.1


@pytest.mark.parametrize("family", ["resnet", "vit"])
def test_the_anchor_may_see_larger_views(family: str) -> None:
    method = build("simclr+gram", family, gram={"prior_size": 64})
    pixels = torch.rand(2, 3, 32, 32)
    seen = method.regularizers["gram"].prior.maps(pixels).patches.shape[2:]
    assert seen[0] == 2 * method.backbone.feature_map(pixels)[0].shape[2]
    assert step(method)["gram"].isfinite()


def test_anchors_of_one_prior_share_one_pass(monkeypatch) -> None:
    passes = []
    method = build("simclr+gram+paka+retain")
    monkeypatch.setattr(NetworkPrior, "_input", _counted(NetworkPrior._input, passes))
    step(method)
    assert len(passes) == 1 and len({id(p.prior) for p in method.regularizers.values()}) == 1
    other = build("simclr+gram+paka", paka={"prior": "random"})
    passes.clear()
    step(other)
    assert len(passes) == 2


def _counted(function, calls: list):
    def counted(*given):
        calls.append(given)
        return function(*given)

    return counted


def test_the_network_is_anchored_as_it_is_used_and_its_statistics_stay() -> None:
    """The anchors' pass of the student is in eval mode: batch norms keep their statistics, and then train again."""
    alone, anchored = build("simclr", "resnet", image_size=32).train(), build("simclr+retain", "resnet").train()
    for method in (alone, anchored):
        step(method)
    assert anchored.backbone.training
    ours, theirs = anchored.backbone.state_dict(), alone.backbone.state_dict()
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


@every
def test_after_epoch_k_the_network_of_then_is_kept_and_saved(name: str) -> None:
    method = build(f"simclr+{name}", "vit", **{name: {"prior": "epoch:2"}}).train()
    method.epoch = 1
    assert name not in step(method)
    method.epoch = 2
    assert step(moved(method))[name].item() == 0.0
    after = step(moved(method))[name].item()
    assert after > 1e-4
    file = io.BytesIO()
    torch.save(method.state_dict(), file)
    file.seek(0)
    again = build(f"simclr+{name}", "vit", seed=5, **{name: {"prior": "epoch:2"}}).train()
    again.load_state_dict(torch.load(file, weights_only=True))
    again.seed, again.batch = method.seed, method.batch - 1
    assert step(again)[name].item() == after


def test_guide_and_dsa_learn_from_the_start_too() -> None:
    method = build("simclr+guide+dsa", guide={"prior": "start"}, dsa={"prior": "random"})
    method.prepare(sslkit.open_images(batch(20)[0]))
    assert step(method)["loss"].isfinite()
    assert step(_distilled())["loss"].isfinite()


def _distilled() -> sslkit.Method:
    method = sslkit.method("distill", backbone="narrow_resnet", image_size=16, objective={"prior": "random", "dim": 8})
    method.prepare(sslkit.open_images(batch(20)[0]))
    return method


def teacher(tmp_path: Path, name: str, **options) -> str:
    torch.manual_seed(0)
    path = tmp_path / f"{name}.safetensors"
    safetensors.torch.save_file(timm.create_model(name, **options).state_dict(), path)
    return f"timm:{name}:{path}"


@pytest.mark.parametrize("name", PATCHES)
@pytest.mark.parametrize("family", ["resnet", "vit"])
def test_a_teacher_of_another_family_and_width(name: str, family: str, tmp_path: Path) -> None:
    word = teacher(tmp_path, "resnet10t")
    term = step(build(f"simclr+{name}", family, **{name: {"prior": word, "prior_size": 64}}))[name]
    term.backward()
    assert term.item() > 0


class TestRefused:
    def test_another_width_by_retain(self, tmp_path: Path) -> None:
        word = teacher(tmp_path, "resnet10t")
        with pytest.raises(UserError, match=r"retain: the network has 128 features and prior .* has 512"):
            build("simclr+retain", "resnet", retain={"prior": word})

    @pytest.mark.parametrize("name", PATCHES)
    def test_a_map_of_one_position(self, name: str, tmp_path: Path) -> None:
        word = teacher(tmp_path, "resnet10t")
        with pytest.raises(UserError, match=f"{name} compares patches, .* 1 x 1 positions"):
            build(f"simclr+{name}", "resnet", **{name: {"prior": word, "prior_size": 32}})

    @every
    def test_a_prior_without_network(self, name: str) -> None:
        with pytest.raises(UserError, match=f"{name}.prior=pca has no network"):
            build(f"simclr+{name}", **{name: {"prior": "pca"}})

    @every
    def test_a_network_without_a_map(self, name: str) -> None:
        net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 256, 8))
        with pytest.raises(UserError, match="gives no feature map: take a timm model"):
            sslkit.method(f"simclr+{name}", backbone=net, image_size=16)

    def test_what_cannot_wait_for_an_epoch(self) -> None:
        with pytest.raises(UserError, match=r"guide\.prior=epoch:2 has no features before"):
            build("simclr+guide", guide={"prior": "epoch:2"})
        with pytest.raises(UserError, match="write epoch:K"):
            build("simclr+gram", gram={"prior": "epoch:first"})
        with pytest.raises(UserError, match="prior_size=32 out"):
            build("simclr+gram", gram={"prior": "epoch:1", "prior_size": 32})

    def test_a_precision_of_its_own(self) -> None:
        with pytest.raises(UserError, match="the run's own precision"):
            build("simclr+gram", gram={"prior": "start", "prior_precision": "bfloat16"})

    def test_another_normalisation_than_that_of_the_weights(self, tmp_path: Path) -> None:
        word = teacher(tmp_path, "resnet10t")
        body = start(word, image_size=32, in_chans=3, frames=None)
        with pytest.raises(UserError, match=r"were trained with mean and std .* give it normalize="):
            sslkit.method("simclr+retain", backbone=body, image_size=32, normalize=((0.5,) * 3, (0.5,) * 3))

    def test_an_epoch_after_the_run(self) -> None:
        config = Config.from_mapping(
            {"method": {"name": "simclr+retain", "retain": {"prior": "epoch:2"}}, "data": "digits", "epochs": 2}
        )
        with pytest.raises(UserError, match="prior=epoch:2: the run ends after 2 epochs"):
            build_method(config, open_data(config))

    def test_a_start_that_vanished_before_the_run_goes_on(self, tmp_path: Path) -> None:
        word = teacher(tmp_path, "resnet10t")
        Path(word.split(":")[2]).unlink()
        config = Config.from_mapping(
            {"method": "simclr+retain", "data": "digits", "data.channels": 3, "init": word, "resume": True}
        )
        with pytest.raises(UserError, match=r"resnet10t\.safetensors") as refused:
            build_method(config, open_data(config))
        assert "\n" not in str(refused.value)


def test_a_run_without_init_says_that_its_start_is_random(tmp_path: Path) -> None:
    assert "random weights, as there is no init=" in build("simclr+retain").describe()["retain"]
    assert "random weights" not in build("simclr+retain", retain={"prior": "random"}).describe()["retain"]
