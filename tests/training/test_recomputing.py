"""Recomputed activations: the same gradients, weights and running statistics."""

import pytest
import torch
from contract import batch, build, step
from torch import nn

import sslkit
from sslkit.errors import UserError
from sslkit.training.recomputing import recompute


@pytest.mark.parametrize(
    ("name", "family"), [("simclr", "resnet"), ("moco_v3", "vit"), ("mae", "vit"), ("vicregl", "resnet")]
)
def test_the_gradients_are_the_same_and_the_network_runs_once_more(name: str, family: str) -> None:
    found = []
    for recomputed in (False, True):
        m = build(name, family)
        if recomputed:
            recompute(m.backbone)
        ran = []
        layers = [part for part in m.backbone.net.modules() if isinstance(part, (nn.Conv2d, nn.Linear))]
        layers[-2].register_forward_hook(lambda *_, ran=ran: ran.append(1))
        loss = step(m, *batch(6))["loss"]
        loss.backward()
        found.append((len(ran), loss, [p.grad for p in m.parameters() if p.grad is not None]))
    (plain, loss, gradients), (again, same, others) = found
    assert again == 2 * plain and torch.equal(loss, same)
    assert len(gradients) == len(others)
    for one, other in zip(gradients, others, strict=True):
        torch.testing.assert_close(one, other)


def test_a_run_ends_with_the_same_weights_and_running_statistics(small_run, capsys) -> None:
    states = []
    for on in (False, True):
        entry = sslkit.pretrain(
            {**small_run, "epochs": 1, "trainer": {**small_run["trainer"], "checkpoint_activations": on}}
        )
        states.append(torch.load(entry.folder / "checkpoints" / "last.ckpt", weights_only=True)["module"])
    one, other = states
    assert any("num_batches_tracked" in name for name in one)
    assert one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one if not k.endswith("_state"))
    assert "32-true, activations recomputed" in capsys.readouterr().out


def test_a_network_that_cannot_is_refused_before_a_folder_is_made(small_run, tmp_path) -> None:
    class Own(nn.Sequential):
        def __init__(self) -> None:
            super().__init__(nn.Flatten(), nn.Linear(784, 8))

    trainer = {**small_run["trainer"], "checkpoint_activations": True}
    with pytest.raises(UserError, match=r"trainer\.checkpoint_activations=true: backbone .* cannot recompute"):
        sslkit.pretrain({**small_run, "method": "simclr", "trainer": trainer}, backbone=Own())
    assert not (tmp_path / "zoo").exists()
