"""Patches of a teacher as targets of guide and distill: their loss by a loop, any teacher to any student, refusals."""

import pytest
import safetensors.torch
import timm
import torch
import torch.nn.functional as F
from contract import batch, build
from torch import Tensor

import sslkit
from sslkit.data.images import Images
from sslkit.errors import UserError
from sslkit.priors.base import NetworkPrior

TEACHERS = ("resnet10t", "vit_tiny_patch16_224")


@pytest.fixture(scope="module")
def words(tmp_path_factory) -> dict[str, str]:
    """timm words of files with random weights."""
    folder, given = tmp_path_factory.mktemp("teachers"), {}
    for name in TEACHERS:
        torch.manual_seed(0)
        safetensors.torch.save_file(timm.create_model(name).state_dict(), folder / f"{name}.safetensors")
        given[name] = f"timm:{name}:{folder / name}.safetensors"
    return given


def images() -> Images:
    return sslkit.open_images(batch(20)[0])


def with_tokens(how: str, word: str, family: str, tokens: str) -> sslkit.Method:
    given = {"prior": word, "tokens": tokens, "prior_size": 224 if "vit" in word.split(":")[1] else 96}
    if how == "guide":
        return build("simclr+guide", family, image_size=32, guide=given)
    network = f"narrow_{family}"
    return sslkit.method("distill", backbone=network, image_size=32, objective={**given, "dim": 8, "hidden": 16})


@pytest.mark.parametrize("teacher", TEACHERS)
@pytest.mark.parametrize("family", ["resnet", "vit"])
@pytest.mark.parametrize(("how", "tokens"), [("guide", "both"), ("distill", "patches")])
def test_any_teacher_to_any_student(words, teacher: str, family: str, how: str, tokens: str) -> None:
    method = with_tokens(how, words[teacher], family, tokens).train()
    method.prepare(images())
    terms = method(*batch(6))
    terms["loss"].backward()
    assert terms["loss"].isfinite()
    assert not [name for name, p in method.named_parameters() if p.requires_grad and p.grad is None]
    if how == "guide":
        assert terms.keys() >= {"guide", "guide/patches"}


def test_the_loss_is_that_of_a_loop_over_patches(words) -> None:
    method = with_tokens("guide", words["resnet10t"], "vit", "patches")
    method.prepare(images())
    patches = method.regularizers["guide"].patches.double().eval()
    g = torch.Generator().manual_seed(0)
    student, view = torch.randn(2, 24, 2, 2, generator=g).double(), torch.rand(2, 3, 32, 32, generator=g)
    teacher = patches.prior.maps(view).patches.double()
    there = F.interpolate(student, teacher.shape[2:], mode="bilinear", align_corners=False)
    total = 0.0
    for n in range(2):
        for i in range(teacher.shape[2]):
            for j in range(teacher.shape[3]):
                predicted = patches.head(there[n, :, i, j][None])[0]
                target = (teacher[n, :, i, j] - patches.mean) @ patches.basis
                total += (1 - predicted @ target / (predicted.norm() * target.norm())).item()
    assert patches(student, view).item() == pytest.approx(total / (2 * teacher[0, 0].numel()), rel=1e-5)


def test_the_whitening_is_of_patches(words) -> None:
    method = with_tokens("guide", words["resnet10t"], "vit", "patches")
    method.prepare(images())
    patches = method.regularizers["guide"].patches
    rows = patches.whiten(patches.sample(images()))
    assert rows.mean(0).abs().max() < 1e-3 and patches.mean.shape == (512,)


def test_both_take_one_pass_of_the_first_view(words, monkeypatch) -> None:
    method = with_tokens("guide", words["resnet10t"], "vit", "both")
    method.prepare(images())
    calls: list[Tensor] = []
    original = NetworkPrior._input
    monkeypatch.setattr(NetworkPrior, "_input", lambda self, x: (calls.append(x), original(self, x))[1])
    method(*batch(6))
    assert len(calls) == 2  # of two views


def test_a_few_steps_lower_the_loss_of_patches(words) -> None:
    method = with_tokens("distill", words["resnet10t"], "vit", "patches").train()
    method.prepare(images())
    optimizer = torch.optim.AdamW([p for p in method.parameters() if p.requires_grad], 3e-3)
    losses = []
    for _ in range(15):
        method.batch = 0
        loss = method(*batch(8))["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("how", ["guide", "distill"])
def test_a_prior_without_patches_is_refused(how: str) -> None:
    owner = "guide" if how == "guide" else "objective"
    with pytest.raises(UserError, match=rf"{owner}\.tokens=patches: prior pca has no patches"):
        options = {"prior": "pca", "tokens": "patches"}
        build("simclr+guide", guide=options) if how == "guide" else sslkit.method("distill", objective=options)
