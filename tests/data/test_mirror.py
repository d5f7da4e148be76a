"""Whether a mirror image keeps its class: by the person, else by names that differ by left and right; said once."""

import itertools
from pathlib import Path

import pytest
from PIL import Image

import sslkit
from sslkit.data.mirror import is_mirrored
from sslkit.terminal import say
from sslkit.training.config import Config

NAMES = itertools.count()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(say, "line", lines.append)
    return lines


@pytest.mark.parametrize(
    "classes",
    [("left", "right"), ("turn-LEFT", "straight", "turn-right"), ("TurnLeft", "TurnRight"), ("left_2", "right_2")],
)
def test_names_that_differ_by_their_sides(classes: tuple[str, ...], told: list[str]) -> None:
    name = f"arrows {next(NAMES)}"
    assert not any(is_mirrored(None, classes, name) for _ in range(3))
    [line] = told
    assert f"{name} has the classes {classes[0]} and {classes[-1]}, and images are not mirrored" in line
    assert is_mirrored(True, classes, name) and "are mirrored in training: mirror=false" in told[1]
    assert not is_mirrored(False, classes, name) and len(told) == 2


@pytest.mark.parametrize("classes", [None, (), ("bright", "dark"), ("leftover", "righteous"), ("0", "1")])
def test_other_names(classes: tuple[str, ...] | None, told: list[str]) -> None:
    assert is_mirrored(None, classes, f"others {next(NAMES)}") and not told


def test_a_single_name_with_a_side_is_only_said(told: list[str]) -> None:
    assert is_mirrored(None, ("right whale", "orca"), f"whales {next(NAMES)}")
    assert "has the class right whale, and images are mirrored in training: mirror=false leaves it out" in told[0]


@pytest.mark.parametrize(("mirror", "flip"), [(None, 0.0), (False, 0.0), (True, None)])
def test_the_views_of_a_training_obey(mirror: bool | None, flip: float | None, tmp_path: Path) -> None:
    from sslkit.training import build
    from sslkit.training.data import open_data
    from sslkit.training.settled import Settled

    folder = tmp_path / f"arrows {mirror}"
    for number, side in enumerate(4 * ("left", "right")):
        (folder / side).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 40), (9 * number, 80, 80)).save(folder / side / f"{number}.png")
    data = {"data": {"source": str(folder)}, "mirror": mirror, "batch_size": 4}
    asked = Config.from_mapping({"method": "simclr", "optimizer": {"lr": 0.1}, **data})
    settled = Settled(asked, build.choose(asked, open_data(asked)))
    chosen = settled.config
    assert (chosen.method_options().get("views") or {}).get("flip") == flip
    views = sslkit.method("simclr", backbone="narrow_resnet", image_size=32, views=chosen.method_options().get("views"))
    assert {view.flip for view in views.recipe.each()} == {0.5 if flip is None else flip}
    reasons = [choice.reason for choice in settled.chosen.values()]
    assert ("no mirror images" in reasons) == (flip == 0)
