"""finetune.py as a person types it."""

from pathlib import Path

import pytest
from random_entries import made

from sslkit.zoo import ZooEntry


@pytest.fixture
def place(tmp_path: Path, few_digits: Path) -> Path:
    (tmp_path / "digits.npz").symlink_to(few_digits)
    made(tmp_path / "zoo", "a", "nowhere")
    return tmp_path


@pytest.mark.parametrize("words", [["head=linear"], ["steps=4", "grid={lr:[0.001]}", "batch_size=16"]])
def test_it_says_what_it_measured_and_how_to_use_it(words: list[str], place: Path, typed) -> None:
    done = typed("finetune", "checkpoint=zoo/a", "data=digits.npz", *words, "device=cpu", cwd=place)
    assert done.returncode == 0, done.stderr
    (entry,) = (card.parent for card in (place / "runs" / "finetuned").glob("*/card.json"))
    said = " ".join(done.stdout.replace("\\\n", " ").split())
    for part in ("measured  top1 ", "beside    raw pixels: ", "sure      temperature ", "decision  ", "kept      "):
        assert f"\n{part}" in f"\n{done.stdout}", done.stdout
    assert f"python recipes/predict.py checkpoint=runs/finetuned/{entry.name} data=path/to/images" in said
    assert f"python recipes/export.py checkpoint=runs/finetuned/{entry.name} to=onnx" in said
    assert ("use it " in done.stdout) == ("take a-" in said)
    assert ZooEntry.load(entry).classifier().link == "softmax"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["data=digits.npz"], "give checkpoint="),
        (["checkpoint=zoo/a"], "give data="),
        (["checkpoint=zoo/a", "data=digits.npz", "haed=linear"], "did you mean 'head'"),
        (["checkpoint=pixels", "data=digits.npz", "in_chans=1"], "pixels cannot be kept"),
        (["checkpoint=zoo/a", "data=digits.npz", "head=linear", "budget=2h"], "budget: only with head=network"),
    ],
)
def test_a_mistake_is_one_line_and_ends_with_2(words: list[str], said: str, place: Path, typed) -> None:
    done = typed("finetune", *words, "device=cpu", cwd=place)
    assert done.returncode == 2 and said in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr
