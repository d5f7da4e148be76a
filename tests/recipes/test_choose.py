"""choose.py as a person types it."""

import json
import re
import shlex
from pathlib import Path

import pytest

from sslkit import backbones, zoo

QUICK = ["metrics=[knn]", "max_images=60", "rank_images=40", "first=2", "steps=4", "lr=[0.01,0.001]", "device=cpu"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A zoo of three entries."""
    for name in ("a", "b", "c"):
        body = backbones.build("narrow_resnet", image_size=8, in_chans=1)
        card = {
            "backbone": {"name": "narrow_resnet", "lines": body.recipe.lines, "image_size": 8, "in_chans": 1},
            "normalize": {"mean": [0.3], "std": [0.4]},
        }
        zoo.save(tmp_path / "zoo" / name, body.export(), card)
    return tmp_path


def test_it_says_what_it_chose_how_sure_it_is_what_it_cost_and_what_to_run_next(place: Path, typed) -> None:
    done = typed("choose", "zoo=zoo", "data=digits", *QUICK, cwd=place)
    assert done.returncode == 0, done.stderr
    for said in (
        "2 models, 12 runs of 4 steps, 3 seeds",
        "model 1 of 2: ",
    ):
        assert said in done.stdout, done.stdout
    # ten held-out images and four steps: random weights are hardly above the largest class
    assert ("use it    model = sslkit.load('runs/choice/models/" in done.stdout) != (
        "digits: take none:" in done.stdout
    )
    (kept,) = (place / "runs" / "choice" / "models").iterdir()
    assert f"kept runs/choice/models/{kept.name}, tuned on all 60 images" in " ".join(done.stdout.split())
    assert zoo.ZooEntry.load(kept).classifier().classes == tuple(map(str, range(10)))
    for said in ("round 1", "chosen", "decision  digits: ", "to be the best", "cost ", "written   ", "next      "):
        assert said in " ".join(done.stdout.split("\n")), done.stdout
    found = json.loads((place / "runs" / "choice" / "digits.json").read_text())
    assert found["winner"] in ("a", "b", "c") and found["steps"] == sum(
        arm["steps"] for one in found["rounds"] for arm in one["models"].values()
    )
    assert (place / "runs" / "choice" / "digits.png").read_bytes()[:4] == b"\x89PNG"
    line = re.search(r"^next +(python recipes/(?:.*\\\n)*.*)$", done.stdout, re.M)[1].replace("\\\n", " ")
    words = [word for word in shlex.split(line)[2:] if not word.startswith("fine_tune.seeds")]
    after = typed("evaluate", *words, "fine_tune.seeds=[0]", "device=cpu", cwd=place)
    assert after.returncode == 0 and "fine_tune" in after.stdout, after.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["data=digits"], "name the models to choose from"),
        (["zoo=zoo"], "name the task"),
        (["zoo=zoo", "data=digits", "frist=3"], "did you mean 'first'"),
        (["zoo=zoo", "data=nowhere"], "nowhere"),
    ],
)
def test_a_mistake_is_said_clearly_and_ends_with_2(words: list[str], said: str, place: Path, typed) -> None:
    done = typed("choose", *words, cwd=place)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert not (place / "runs").exists()
