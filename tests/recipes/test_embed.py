"""recipes/embed.py: its files and what it says, and bad input before anything is computed."""

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from evaluation.features import extraction
from sslkit.data.sources.named import open_images

MODEL = ("checkpoint=random:narrow_resnet", "image_size=32", "workers=0")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """24 embedded clip arts as files of two classes, one of them twice, one damaged."""
    root, images = tmp_path_factory.mktemp("images") / "clips", open_images("clipart")
    for place in range(24):
        path = root / ("even" if place % 2 == 0 else "odd") / f"{place:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(images.pixels[40 * place].transpose(1, 2, 0)).save(path)
    (root / "odd" / "copy.png").write_bytes((root / "even" / "04.png").read_bytes())
    (root / "even" / "broken.png").write_bytes((root / "even" / "04.png").read_bytes()[:90])
    return root


def test_everything_beside_the_features(typed, folder, tmp_path) -> None:
    words = ["neighbours=3", "duplicates=true", "threshold=0.9999", "map=pca"]
    run = typed("embed", *MODEL, f"data={folder}", "out=f.npz", *words, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    names = ["f-duplicates.csv", "f-duplicates.png", "f-neighbours.csv", "f-neighbours.npz", "f-pca.png"]
    names += ["f-unique.txt", "f.npz"]
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == names
    unique = open_images(tmp_path / "f-unique.txt")
    assert len(unique) == 24 and list(unique.classes) == ["even", "odd"]
    assert "copy" not in (tmp_path / names[-2]).read_text()
    assert "24 images without exact copies: data=f-unique.txt" in run.stdout
    with np.load(tmp_path / "f.npz", allow_pickle=False) as file:
        assert file["features"].shape[0] == 25 and file["unreadable"].tolist() == ["even/broken.png"]
        assert file["classes"].tolist() == ["even", "odd"]
    with (tmp_path / "f-duplicates.csv").open(newline="") as file:
        first = next(csv.DictReader(file))
    assert (first["first"], first["other"], first["kind"]) == ("even/04.png", "odd/copy.png", "exact")
    assert "1 unreadable left out" in run.stdout and "next      python recipes/train.py" in run.stdout


def test_the_next_command_is_taken_as_it_stands(typed, folder, tmp_path) -> None:
    run = typed("embed", *MODEL[:2], f"data={folder}", "out=f.npz", cwd=tmp_path)
    told = run.stdout.rstrip().rpartition("next      python recipes/embed.py ")[2].replace("\\\n", " ").split()
    before = (tmp_path / "f.npz").read_bytes()
    again = typed("embed", *told, "threshold=0.9999", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "f.npz").read_bytes() == before and (tmp_path / "f-tsne.png").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "checkpoint is not given"),
        ([*MODEL], "data is not given"),
        ([*MODEL, "data=one"], "out is not given"),
        ([*MODEL, "data=empty", "out=f.npz"], "no images in empty"),
        ([*MODEL, "data=one", "out=f.npz", "neighbours=5"], "neighbours=5 must be below"),
        ([*MODEL, "data=one", "out=f.npz", "map=pca"], "a map needs at least 4 images, not 1"),
        ([*MODEL, "data=damaged", "out=f.npz"], "none of its 2 images can be read"),
        ([*MODEL, "data=one", "out=f.txt"], "must end in .npz or .parquet"),
        ([*MODEL, "data=one", "out=empty.npz"], "no features of recipes/embed.py"),
        ([*MODEL, "data=one", "out=f.npz", "against=one"], "add duplicates=true"),
        ([*MODEL, "data=one", "out=f.npz", "search=fast"], "search"),
        ([*MODEL, "data=one", "out=f.npz", "neighbors=5"], "did you mean 'neighbours'"),
        ([*MODEL, "data=one", "out=f.npz", "split=tset"], "has no split 'tset'"),
    ],
)
def test_bad_input_is_one_line_before_anything_is_computed(
    words, said: str, typed, folder, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(extraction, "apply", None)
    for name in ("one", "empty", "damaged"):
        (tmp_path / name).mkdir()
    (tmp_path / "one" / "a.png").write_bytes((folder / "even" / "04.png").read_bytes())
    for name in ("a.png", "b.png"):
        (tmp_path / "damaged" / name).write_bytes(b"no image")
    (tmp_path / "empty.npz").write_bytes(b"")
    run = typed("embed", *words, cwd=tmp_path)
    assert run.returncode == 2 and run.stderr.startswith("error: ") and said in run.stderr
    assert len(run.stderr.splitlines()) == 1 and not (tmp_path / "f.npz").exists()


def test_features_of_another_model_are_kept(typed, folder, tmp_path) -> None:
    assert typed("embed", *MODEL, f"data={folder}", "out=f.npz", cwd=tmp_path).returncode == 0
    before = (tmp_path / "f.npz").read_bytes()
    run = typed("embed", f"{MODEL[0]}:1", *MODEL[1:], f"data={folder}", "out=f.npz", cwd=tmp_path)
    assert run.returncode == 2 and "has features of another model" in run.stderr
    assert (tmp_path / "f.npz").read_bytes() == before
