"""recipes/shards.py as a person types it, and training from what it wrote."""

from pathlib import Path

import pytest
import torch
from PIL import Image

import sslkit
from sslkit.data.shard_writer import write_shards
from sslkit.data.sources import open_images
from sslkit.errors import UserError
from sslkit.training import train

TINY = ("method=simclr", "data.image_size=16", "data.batch_size=16", "epochs=1", "eval.tsne=0", "eval.k=3")


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """Forty digits as files, ten test images among them, in class folders."""
    images = open_images("digits")
    for row in range(40):
        path = tmp_path / "mine" / ("test" if row % 4 == 3 else "train") / str(images.labels[row] % 2) / f"{row}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(images.pixels[row, 0]).save(path)
    return tmp_path / "mine"


def test_a_run_from_shards_is_the_run_from_the_folder(digits: Path, typed) -> None:
    where = digits.parent
    done = typed("shards", "folder=mine", "out=my shards", "progress=false", cwd=where)
    assert done.returncode == 0, done.stderr
    assert "train     30 images in 1 shards, such as my shards/train-000000.tar" in done.stdout
    assert "python recipes/train.py method=byol+dsa 'data=\"shards:my shards\"'" in done.stdout
    sources = {"folder": "data=mine", "shards": 'data="shards:my shards"', "pattern": "data=shards:my shards/*.tar"}
    for name, source in sources.items():
        done = typed("train", *TINY, source, f"out={name}", "name=run", "trainer.progress=false", cwd=where)
        assert done.returncode == 0, done.stderr
    folder, *others = (sslkit.ZooEntry.load(where / name / "run") for name in sources)
    for other in others:
        assert other.card["after"] == folder.card["after"] and other.card["data"]["images"] == 30
        for name, value in folder.state_dict().items():
            assert torch.equal(other.state_dict()[name], value)
    assert list((where / "shards" / ".cache").glob("shards-*.npz")) and not (where / "runs").exists()


def test_shards_that_changed_cannot_continue_a_run(digits: Path, monkeypatch) -> None:
    (written, _) = write_shards(digits, digits.parent / "shards")
    run = {
        "method": "simclr",
        "data": {"source": f"shards:{digits.parent / 'shards'}", "image_size": 16, "batch_size": 16},
        "epochs": 1,
        "out": str(digits.parent / "zoo"),
        "name": "run",
        "eval": {"k": 3, "tsne": 0},
        "trainer": {"progress": False},
    }
    with monkeypatch.context() as patch:
        patch.setattr(train, "finish", lambda *_, **__: None)
        sslkit.pretrain(run)
    written.shards[0].write_bytes(written.shards[0].read_bytes() + bytes(512))
    with pytest.raises(UserError, match="images have changed"):
        sslkit.pretrain({**run, "resume": True})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["folder=mine"], "give out=, as in: python recipes/shards.py"),
        (["out=shards"], "give folder=, as in: python recipes/shards.py"),
        (["folder=none", "out=shards"], "there is no folder none"),
        (["folder=mine", "out=mine"], "mine has files in it: give an empty or a new folder"),
        (["folder=mine", "out=shards", "megabytes=0"], "megabytes"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words: list[str], said: str, digits: Path, typed) -> None:
    done = typed("shards", *words, cwd=digits.parent)
    assert done.returncode == 2 and said in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert not (digits.parent / "shards").exists()
