"""`sslkit.pretrain` with every objective, whichever files there are: to a zoo entry, and over an interruption."""

import pytest
import torch

import sslkit
from sslkit import objectives
from sslkit.options.members import signature
from sslkit.training.loading import Unreadable

pytestmark = pytest.mark.slow
# Not nightly: a teacher, and prototypes with a queue. `test_contracts.py` loads the state of every objective.
KINDS = {"byol", "swav"}
EACH = [pytest.param(name, marks=[] if name in KINDS else pytest.mark.nightly) for name in objectives.names()]
SMALL = {"dim": 8, "hidden": 16, "queue_size": 40, "prototypes": 12, "queue_start": 1}


@pytest.fixture
def run(illustrated_run):
    def made(method: str, **changes) -> dict:
        known = signature(method)["objective"]
        method = {"name": method, "objective": {k: v for k, v in SMALL.items() if k in known}}
        return {**illustrated_run, "method": method, "epochs": 3, "eval": {"k": 3, "tsne": 0}, **changes}

    return made


def check_entry(entry: sslkit.ZooEntry, name: str, plugin: str, said: str) -> None:
    """The entry of a run says what it is, and so did the run."""
    family = objectives.find(name).families[0]
    assert f"narrow_{family} (for {name} at 28 px)" in said
    assert entry.card["method"] == name + plugin and entry.card["backbone"]["name"] == f"narrow_{family}"
    assert entry.backbone()(torch.zeros(2, 1, 28, 28)).isfinite().all()
    for picture in ("views.png", "loss.png"):
        assert (entry.folder / picture).stat().st_size > 1000


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:.*collaps.*")
@pytest.mark.parametrize("name", objectives.names())
def test_alone_it_ends_in_an_entry(name: str, run, capsys) -> None:
    entry = sslkit.pretrain(run(name, epochs=1))
    check_entry(entry, name, "", capsys.readouterr().out)


@pytest.mark.filterwarnings("ignore:.*eta.*", "ignore:.*dead.*", "ignore:.*collaps.*")
@pytest.mark.parametrize("name", EACH)
def test_it_ends_in_an_entry_and_stopped_and_resumed_is_bitwise_the_same(name: str, run, monkeypatch, tmp_path, capsys):
    unbroken = sslkit.pretrain(run(f"{name}+dsa", name="unbroken"))
    check_entry(unbroken, name, "+dsa", capsys.readouterr().out)

    def stop_in_the_second_epoch(self, loop, *args) -> None:
        if loop.epoch == 1:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Unreadable, "batch_end", stop_in_the_second_epoch)
        with pytest.raises(KeyboardInterrupt):
            sslkit.pretrain(run(f"{name}+dsa", name="broken"))
    assert not (tmp_path / "zoo" / "broken" / "card.json").exists()
    resumed = sslkit.pretrain(run(f"{name}+dsa", name="broken", resume=True))
    before, after = unbroken.state_dict(), resumed.state_dict()
    assert all(torch.equal(before[k], after[k]) for k in before)
    old, new = (torch.load(e.folder / "checkpoints" / "last.ckpt", weights_only=True) for e in (unbroken, resumed))
    different = [k for k, v in old["module"].items() if not torch.equal(v, new["module"][k])]
    assert not different, f"another state after a resume: {different}"
