"""The end of a run keeps the classes that its objective has learned, for LEEP."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sslkit
from sslkit.objectives.swav import SwAV

SMALL = {"dim": 8, "hidden": 16, "queue_size": 0, "prototypes": 12, "temperature": 0.2}
SWAV = {"name": "swav+koleo", "objective": SMALL, "views": {"n_local": 0}}


def test_swav_keeps_its_prototypes_as_its_loss_reads_them(small_run) -> None:
    entry = sslkit.pretrain({**small_run, "method": SWAV, "epochs": 1})
    recipe = entry.card["source_heads"]["prototypes"]
    assert (recipe["classes"], recipe["data"]) == (12, small_run["data"]["source"])
    state = torch.load(entry.folder / "checkpoints" / "last.ckpt", weights_only=True)["module"]
    own = {name.partition("objective.")[2]: value for name, value in state.items() if "objective." in name}
    h = torch.rand(20, 128)
    hidden = F.batch_norm(
        h @ own["projector.0.weight"].T,
        own["projector.1.running_mean"],
        own["projector.1.running_var"],
        own["projector.1.weight"],
        own["projector.1.bias"],
    ).relu()
    z = F.normalize(hidden @ own["projector.3.weight"].T + own["projector.3.bias"], dim=1)
    torch.testing.assert_close(entry.head("prototypes")(h), z @ own["prototypes.weight"].T / 0.2, rtol=1e-4, atol=1e-5)


def test_supervised_keeps_its_classifier_and_byol_nothing(small_run) -> None:
    entry = sslkit.pretrain({**small_run, "method": "supervised", "epochs": 1})
    assert entry.card["source_heads"]["labels"]["classes"] == 10
    assert entry.head("labels")(torch.rand(3, 128)).shape == (3, 10)
    other = sslkit.pretrain({**small_run, "method": "byol", "epochs": 1})
    assert "source_heads" not in other.card and not (other.folder / "heads").exists()


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        (lambda _: nn.Sequential(nn.Dropout(), nn.Linear(128, 2)), "cannot hold a Dropout"),
        (lambda _: 1 / 0, "division"),
    ],
)
def test_a_head_that_cannot_be_kept_costs_nothing_else(layers, said: str, small_run, monkeypatch) -> None:
    monkeypatch.setattr(SwAV, "source_head", layers)
    with pytest.warns(UserWarning, match=rf"the source head could not be made, all else is kept: .*{said}"):
        entry = sslkit.pretrain({**small_run, "method": SWAV, "epochs": 1})
    assert "source_heads" not in entry.card and entry.backbone() is not None
