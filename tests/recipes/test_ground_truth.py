"""ground_truth.py as a person types it."""

import json
import shutil
from pathlib import Path

import pytest

from sslkit import backbones, zoo

QUICK = ["max_images=60", "max_test_images=60", "steps=3", "lr=[0.01]", "device=cpu"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A zoo of two entries, one of which has lost half of its weights."""
    for name in ("broken", "sound"):
        body = backbones.build("narrow_resnet", image_size=8, in_chans=1)
        card = {
            "backbone": {"name": "narrow_resnet", "lines": body.recipe.lines, "image_size": 8, "in_chans": 1},
            "normalize": {"mean": [0.3], "std": [0.4]},
        }
        zoo.save(tmp_path / "zoo" / name, body.export(), card)
    weights = tmp_path / "zoo" / "broken" / "backbone.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    return tmp_path


def test_what_can_be_measured_is_and_what_fails_is_said_at_the_end(place: Path, typed) -> None:
    done = typed("ground_truth", "zoo=[zoo]", "data=[digits]", *QUICK, "seeds=[0,1]", cwd=place)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert "1 failed" in done.stderr and "broken: " in done.stderr
    assert "digits: sound" in done.stdout and "highest   digits: sound" in done.stdout
    truth = json.loads((place / "runs" / "truth" / "truth.json").read_text())
    assert list(truth) == ["digits"] and list(truth["digits"]) == ["sound"]
    again = typed("ground_truth", "zoo=zoo/sound", "data=digits", *QUICK, "seeds=[0,1]", cwd=place)
    assert again.returncode == 0 and "there already" in again.stdout, again.stderr


@pytest.mark.parametrize("keep", ["best", "all"])
def test_models_are_kept_that_predict_as_they_were_measured(keep: str, place: Path, typed) -> None:
    shutil.copytree(place / "zoo" / "sound", place / "zoo" / "other")
    models = "zoo=[zoo/sound,zoo/other]"
    done = typed("ground_truth", models, "data=digits", *QUICK, "seeds=[0]", f"keep={keep}", cwd=place)
    assert done.returncode == 0, done.stderr
    truth = json.loads((place / "runs" / "truth" / "truth.json").read_text())["digits"]
    kept = list((place / "runs" / "truth" / "models").iterdir())
    assert len(kept) == {"best": 1, "all": 2}[keep] and done.stdout.count("is kept as") == len(kept)
    for folder in kept:
        about = zoo.ZooEntry.load(folder).card["classifier"]
        assert about["measured"]["value"] == truth[folder.name.partition("-")[0]] and about["measured"]["n"] == 60
    assert not list((place / "runs" / "truth").glob(".fine_tune-*"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["data=digits"], "give the models to fine-tune"),
        (["zoo=zoo"], "name the tasks to fine-tune on"),
        (["zoo=zoo", "data=digits", "stesp=3"], "did you mean 'steps'"),
    ],
)
def test_a_mistake_is_said_clearly_and_ends_with_2(words: list[str], said: str, place: Path, typed) -> None:
    done = typed("ground_truth", *words, cwd=place)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert not (place / "runs").exists()
