"""evaluate.py on a folder of class folders that has no test images of its own."""

import json
from pathlib import Path

import pytest
from PIL import Image
from unfolded import unfolded

from evaluation.datasets import open_split
from sslkit.data.sources.named import open_images


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Forty of each of three digits, as files."""
    digits = open_images("digits")
    for label in range(3):
        for number, row in enumerate((digits.labels == label).nonzero()[0][:40]):
            path = tmp_path / "numbers" / str(label) / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(digits.pixels[row, 0]).save(path)
    return tmp_path / "numbers"


WORDS = ("checkpoint=random:narrow_resnet", "image_size=8", "pictures=false", "workers=0")
FEW_SHOT = ("few_shot.n_way=3", "few_shot.k_shot=[1]", "few_shot.episodes=10")


def test_results_on_held_out_images(folder: Path, typed) -> None:
    done = typed("evaluate", *WORDS, "data=numbers", "protocols=[linear,knn,few_shot]", *FEW_SHOT, cwd=folder.parent)
    assert done.returncode == 0, done.stderr
    note = "test: a fifth of each class, held out by name"
    assert f"note: numbers has no test images of its own; {note}" in unfolded(done.stdout)
    (written,) = (folder.parent / "runs" / "evaluation").glob("*/results.jsonl")
    linear, knn, episodes, *_ = (json.loads(line) for line in written.read_text().splitlines())
    assert linear["n"] == knn["n"] == len(open_split(folder)) == 24
    for result in (linear, knn):
        assert result["details"]["notes"] == note and sorted(result["details"]["splits"]) == ["test", "train"]
    assert episodes["details"]["splits"] == ["all"] and "notes" not in episodes["details"]
    assert 1 / 3 < linear["value"] <= 1


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        ({"0": 40}, "no labels"),
        ({"0": 40, "1": 1}, "at least two classes need two images"),
    ],
)
def test_too_little_is_refused_before_anything_is_computed(folder: Path, typed, classes: dict, said: str) -> None:
    few = folder.parent / "few"
    for name, count in classes.items():
        (few / name).mkdir(parents=True)
        for path in sorted((folder / name).iterdir())[:count]:
            path.rename(few / name / path.name)
    done = typed("evaluate", *WORDS, "data=few", "protocols=[linear]", cwd=folder.parent)
    assert done.returncode == 2 and done.stderr.startswith("error: few has no ") and said in done.stderr
    assert not (folder.parent / "runs").exists()
