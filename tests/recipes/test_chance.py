"""Every command that advises, on models and labels by coin: none says to take a model, and each says why."""

import re
from pathlib import Path

import numpy as np
import pytest
from random_entries import made

from sslkit.decision import ADVICE

TAKES = re.compile(r"\btake (?!none\b|ready-made\b)\S+:")  # of a decision: the name of a model and a colon


@pytest.fixture
def coins(tmp_path: Path) -> Path:
    """Noise with labels by coin, and two networks with random weights that no name tells to be such."""
    rng, arrays = np.random.default_rng(0), {}
    for split, n in (("train", 60), ("test", 50)):
        arrays |= {
            f"x_{split}": rng.integers(0, 255, (n, 28, 28)).astype(np.uint8),
            f"y_{split}": rng.integers(0, 2, n),
        }
    np.savez(tmp_path / "coins.npz", **arrays)
    for seed, name in enumerate(("a", "b")):
        made(tmp_path / "zoo", name, "nowhere", seed=seed)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("evaluate", ["checkpoint=zoo/a", "data=coins.npz"]),
        ("evaluate", ["zoo=zoo", "data=coins.npz", "protocols=[linear,knn]"]),
        ("rank", ["zoo=zoo", "data=coins.npz", "bootstrap=0"]),
        ("rank", ["zoo=zoo", "data=coins.npz", "metrics=[logme]", "bootstrap=0"]),
        ("solve", ["zoo=zoo", "data=coins.npz", "methods=[]", "tune=false"]),
        ("finetune", ["checkpoint=zoo/a", "data=coins.npz", "head=linear"]),
        ("choose", ["zoo=zoo", "data=coins.npz", "first=2", "steps=2", "lr=[0.01]", "seeds=[0]", "batch_size=16"]),
    ],
)
def test_no_command_takes_a_model_at_chance(command: str, words: list[str], coins: Path, typed) -> None:
    done = typed(command, *words, "device=cpu", cwd=coins)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "take none: " in said and ADVICE in said, said
    assert not TAKES.search(said) and "use it" not in said


def test_the_page_of_a_zoo_at_chance_takes_none(coins: Path, typed) -> None:
    for command, words in (
        ("evaluate", ["zoo=zoo", "data=coins.npz", "protocols=[linear]", "device=cpu"]),
        ("rank", ["zoo=zoo", "data=coins.npz", "bootstrap=0"]),
        ("report", ["zoo=zoo", "rankings=runs/ranking", "out=report.html"]),
    ):
        done = typed(command, *words, cwd=coins)
        assert done.returncode == 0, done.stderr
    page = " ".join((coins / "report.html").read_text(encoding="utf-8").split())
    assert page.count("take none:") >= 2 and not TAKES.search(page)
