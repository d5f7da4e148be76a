"""prior=self: the slow copy of the backbone, what it teaches, and that a run with it resumes to the same bits."""

import io

import pytest
import torch
from contract import batch, build, step

import sslkit
from sslkit.composition.slow import MOMENTUM
from sslkit.embeddings import Embeddings
from sslkit.errors import UserError
from sslkit.numerics import schedules
from sslkit.regularizers.dsa import consistency_loss, prior_matrix

OF_ITSELF = {"prior": "self"}
NAMES = ["dsa", "adc", "guide"]


def own(name: str, plugin: str = "dsa", seed: int = 0, **options) -> sslkit.Method:
    return build(f"{name}+{plugin}", seed=seed, **{plugin: OF_ITSELF | options})


def run(m: sslkit.Method, steps: range) -> None:
    optimizer = torch.optim.SGD([p for p in m.parameters() if p.requires_grad], 0.1)
    for i in steps:
        m.batch = i
        optimizer.zero_grad()
        step(m, *batch(8))["loss"].backward()
        optimizer.step()
        m.after_step((i + 1) / 10)


@pytest.mark.parametrize("plugin", NAMES)
@pytest.mark.parametrize("name", ["byol", "simclr", "mae"])
def test_it_trains_and_resumes_bit_for_bit(name: str, plugin: str) -> None:
    unbroken = own(name, plugin)
    run(unbroken, range(2))
    file = io.BytesIO()
    torch.save(unbroken.state_dict(), file)
    file.seek(0)
    resumed = own(name, plugin, seed=5)
    resumed.seed = unbroken.seed
    resumed.load_state_dict(torch.load(file, weights_only=True))
    for m in (unbroken, resumed):
        run(m, range(2, 4))
    before, after = unbroken.state_dict(), resumed.state_dict()
    assert not [k for k in before if not torch.equal(before[k], after[k])]


def test_the_copy_follows_the_backbone_and_stays_in_eval_mode() -> None:
    m = own("simclr")
    assert all(map(torch.equal, m.slow.network[0].parameters(), m.backbone.parameters()))
    before = {k: v.clone() for k, v in m.slow.network[0].named_parameters()}
    run(m.train(), range(1))
    momentum = schedules.along_cosine(MOMENTUM, 1.0, 0.1)
    for key, p in m.backbone.named_parameters():
        moved = momentum * before[key] + (1 - momentum) * p.detach()
        torch.testing.assert_close(dict(m.slow.network[0].named_parameters())[key], moved)
    assert not any(part.training for part in m.slow.modules())
    assert not any(p.requires_grad for p in m.slow.parameters())


def test_the_prior_is_what_the_copy_says_of_the_first_view() -> None:
    m = own("simclr", nu=0.0, balance=None)
    run(m, range(2))
    images, index = batch(8)
    views = m.make_views(images)
    with torch.no_grad():
        features = m.slow.network(m.normalize_pixels(views[0]))
    terms, e = m.step(images, index)
    torch.testing.assert_close(e.slow, features)
    assert not e.slow.requires_grad
    z = torch.nn.functional.normalize(e.z.flatten(0, 1), dim=1)
    wanted = 100 * consistency_loss(m.regularizers["dsa"].arrange(z), prior_matrix(features.repeat(2, 1)))
    torch.testing.assert_close(terms["dsa/consistency"], wanted)


def test_no_other_method_pays_for_a_copy() -> None:
    m = build("byol+dsa", dsa={"prior": "hog"})
    assert m.slow is None and not [k for k in m.state_dict() if k.startswith("slow")]
    assert step(m, *batch(6)) and m.embed(*batch(6)).slow is None


@pytest.mark.parametrize("plugin", NAMES)
def test_a_collapsed_network_has_a_finite_gradient(plugin: str) -> None:
    m = own("simclr", plugin)
    images, index = batch(6)
    step(m, torch.zeros_like(images), index)["loss"].backward()  # equal images, equal features
    assert all(p.grad is None or p.grad.isfinite().all() for p in m.parameters())


@pytest.mark.parametrize("plugin", NAMES)
def test_embeddings_without_the_copy_are_refused_in_one_line(plugin: str) -> None:
    m = own("simclr", plugin)
    x = torch.randn(2, 4, 8)
    e = Embeddings(z=x, h=torch.randn(2, 4, m.backbone.width), target=None, index=torch.arange(4))
    with pytest.raises(UserError, match=rf"{plugin}\.prior=self needs the slow network's features"):
        m.regularizers[plugin].terms(e, None)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("simclr+dsa", {"dsa": OF_ITSELF | {"mode": "view"}}, r"dsa\.prior=self has features of the first view only"),
        ("simclr+adc", {"adc": OF_ITSELF | {"mode": "view"}}, r"adc\.prior=self has features of the first view only"),
        ("simclr+dsa", {"dsa": OF_ITSELF | {"neighbours": "dataset"}}, "neighbours=batch"),
        ("simclr+guide", {"guide": OF_ITSELF | {"prior_size": 32}}, "leave prior_size=32 out"),
        ("distill", {"objective": OF_ITSELF}, "nothing to learn from itself"),
    ],
)
def test_what_it_cannot_be_is_one_line(name: str, options: dict, said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        sslkit.method(name, backbone="narrow_resnet", image_size=16, **options)
    assert "\n" not in str(caught.value)
