"""Supervised cross-entropy against scikit-learn and loops; unknown labels; its share on each rank."""

import pytest
import torch
from sklearn.metrics import log_loss
from torch import Tensor

from sslkit import backbones
from sslkit.errors import UserError
from sslkit.objectives.supervised import Classified, Supervised
from sslkit.runtime import distributed


def oracle(objective: Supervised, e: Classified) -> Tensor:
    """Minus the mean log-probability of the smoothed label, image by image and view by view."""
    smooth, k = objective.label_smoothing, objective.classes
    total, count = e.logits.sum() * 0, 0
    for logits in e.logits:
        for row, label in zip(logits, e.labels.tolist(), strict=True):
            if label >= 0:
                log_p = row - torch.log(torch.exp(row - row.max().detach()).sum()) - row.max().detach()
                total = total - (1 - smooth) * log_p[label] - smooth / k * log_p.sum()
                count += 1
    return total / max(count, 1)


def supervised(**options) -> Supervised:
    return Supervised(backbones.build("narrow_resnet", image_size=16, in_chans=1), **{"classes": 4} | options)


def drawn(labels: list[int], v: int = 2, seed: int = 0) -> Classified:
    g = torch.Generator().manual_seed(seed)
    logits = 5 * torch.randn(v, len(labels), 4, dtype=torch.float64, generator=g)
    z = torch.zeros(v, len(labels), 3)
    index = torch.arange(len(labels))
    labels = torch.tensor(labels)
    return Classified(z=z, h=z, target=None, index=index, labels=labels, logits=logits.requires_grad_())


def test_align_is_scikit_learns_log_loss() -> None:
    e = drawn([0, 3, 1, 1, 2])
    theirs = log_loss(e.labels.repeat(2), e.logits.detach().flatten(0, 1).softmax(-1), labels=range(4))
    assert supervised().align(e).item() == pytest.approx(theirs, rel=1e-12)
    assert supervised().constrain(e) is None


@pytest.mark.parametrize("labels", [[0, 3, 1], [-1, 2], [-1, -1, 3, 0, -1]])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("v", [1, 2])
def test_value_and_gradient(labels: list[int], label_smoothing: float, v: int) -> None:
    objective = supervised(label_smoothing=label_smoothing)
    e = drawn(labels, v)
    ours, theirs = objective.align(e), oracle(objective, e)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(loss, e.logits)[0] for loss in (ours, theirs)))


def test_a_batch_without_labels_teaches_nothing() -> None:
    objective = supervised(label_smoothing=0.1)
    e = objective.embed([torch.rand(3, 1, 16, 16) for _ in range(2)], torch.arange(3))
    e.labels = torch.full((3,), -1)
    loss = objective.align(e)
    loss.backward()
    assert loss.item() == 0
    assert all(p.grad is not None and p.grad.eq(0).all() for p in objective.parameters())


@pytest.mark.parametrize("label", [4, 100, -2])
def test_a_label_beyond_the_classes_is_refused(label: int) -> None:
    with pytest.raises(UserError, match=f"{label}.*classes=4"):
        supervised().align(drawn([0, label]))


@pytest.mark.parametrize("options", [{"classes": 1}, {"label_smoothing": 1.0}, {"label_smoothing": -0.1}])
def test_options_that_cannot_be(options: dict) -> None:
    with pytest.raises(UserError, match=r"classes=.*label_smoothing="):
        supervised(**options)


def test_z_is_the_backbones_feature_and_the_classifier_reads_it() -> None:
    objective = supervised().eval()
    views = [torch.rand(3, 1, 16, 16) for _ in range(2)]
    e = objective.embed(views, torch.arange(3))
    expected = torch.stack([objective.backbone(view) for view in views])
    torch.testing.assert_close(e.z, expected)
    torch.testing.assert_close(e.h, expected)
    torch.testing.assert_close(e.logits, objective.classifier(expected))
    assert e.z.shape == (2, 3, objective.dim) and e.logits.shape == (2, 3, 4) and objective.needs_labels


def test_ranks_add_up_to_one_process(monkeypatch) -> None:
    whole = drawn([0, -1, 2, 3, -1, -1])
    alone = supervised().align(whole)
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    monkeypatch.setattr(distributed, "sum_over_ranks", lambda x: x)
    shares = []
    for rank in range(2):
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        own = Classified(
            **{**vars(whole), "logits": whole.logits[:, 3 * rank : 3 * rank + 3]}  # the labels are those of all ranks
        )
        shares.append(supervised().align(own))
    torch.testing.assert_close(sum(shares), alone)


def test_training_lowers_the_loss_to_the_labels() -> None:
    torch.manual_seed(0)
    objective = supervised(classes=2)
    g = torch.Generator().manual_seed(0)
    x, labels = torch.rand(8, 1, 16, 16, generator=g), torch.tensor([0, 1] * 4)
    optimizer = torch.optim.Adam(objective.parameters(), 3e-3)
    for _ in range(30):
        e = objective.embed([x, x.flip(-1)], torch.arange(8))
        e.labels = labels
        loss = objective.align(e)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1
    assert torch.equal(e.logits.argmax(-1), labels.expand(2, -1))
