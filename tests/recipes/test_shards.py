"""recipes/shards.py as a person types it, and training from what it wrote."""

import tarfile
from pathlib import Path

import pytest
import torch
from PIL import Image

import sslkit
from sslkit.data.sources.named import open_images
from sslkit.data.sources.shard_writer import write_shards
from sslkit.errors import UserError
from sslkit.training import pretrain

TINY = ("method=simclr", "image_size=16", "batch_size=16", "epochs=1", "eval.tsne=0", "eval.k=3")


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
    assert "train     30 images in 1 shard, such as my shards/train-000000.tar" in done.stdout
    assert "python recipes/train.py method=byol+dsa 'data=\"shards:my shards\"'" in done.stdout
    sources = {"folder": "data=mine", "shards": 'data="shards:my shards"', "pattern": "data=shards:my shards/*.tar"}
    for name, source in sources.items():
        done = typed("train", *TINY, source, f"out={name}", "name=run", "progress=false", cwd=where)
        assert done.returncode == 0, done.stderr
    folder, *others = (sslkit.ZooEntry.load(where / name / "run") for name in sources)
    for other in others:
        assert other.card["after"] == folder.card["after"] and other.card["data"]["images"] == 30
        for name, value in folder.state_dict().items():
            assert torch.equal(other.state_dict()[name], value)
    assert list((where / "runs" / "cache").glob("shards-*.npz")) and not (where / "shards" / ".cache").exists()


def test_shards_that_changed_cannot_continue_a_run(digits: Path, monkeypatch) -> None:
    (written, _) = write_shards(digits, digits.parent / "shards")
    run = {
        "method": "simclr",
        "image_size": 16,
        "batch_size": 16,
        "data": {"source": f"shards:{digits.parent / 'shards'}"},
        "epochs": 1,
        "out": str(digits.parent / "zoo"),
        "name": "run",
        "eval": {"k": 3, "tsne": 0},
        "progress": False,
    }
    with monkeypatch.context() as patch:
        patch.setattr(pretrain, "finish", lambda *_, **__: None)
        sslkit.pretrain(run)
    written.shards[0].write_bytes(written.shards[0].read_bytes() + bytes(512))
    with pytest.raises(UserError, match="images have changed"):
        sslkit.pretrain({**run, "resume": True})


def test_several_labels_an_image_are_judged_but_not_learnt_from(tmp_path: Path, typed) -> None:
    images = open_images("digits")
    with tarfile.open(tmp_path / "all.tar", "w") as tar:
        for row in range(60):
            Image.fromarray(images.pixels[row, 0]).save(tmp_path / "one.png")
            digit = int(images.labels[row])
            (tmp_path / "one.cls").write_text(" ".join(["0"] * (digit % 2 == 0) + ["1"] * (digit > 4)))
            for name in ("one.png", "one.cls"):
                tar.add(tmp_path / name, f"{row:02}{Path(name).suffix}")
    done = typed("train", *TINY, "data=shards:all.tar", "progress=false", cwd=tmp_path)
    assert done.returncode == 0 and "2 classes, several an image (not read here)" in " ".join(done.stdout.split())
    folder = next((tmp_path / "runs" / "zoo").glob("simclr-*"))
    judged = typed("evaluate", f"checkpoint={folder}", "data=shards:all.tar", "protocols=linear", cwd=tmp_path)
    assert judged.returncode == 0 and "map11" in judged.stdout, judged.stderr
    assert "data=shards:all.tar protocols=linear" in " ".join(done.stdout.replace("\\", "").split())
    refused = typed("train", *TINY, "method=supervised", "data=shards:all.tar", cwd=tmp_path)
    assert refused.returncode == 2 and "one an image, and data 'shards:all.tar' has several an image" in refused.stderr


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
