"""The files of recipes/conf/experiment: each fits the objective of its name, and what the README names is there."""

import re
from pathlib import Path

import pytest
import yaml

import sslkit
from sslkit import objectives
from sslkit.training.config import Config

RECIPES = Path(__file__).parents[2] / "recipes"
FILES = sorted((RECIPES / "conf" / "experiment").glob("*.yaml"))


def test_there_is_one_for_every_objective() -> None:
    missing = sorted(set(objectives.names()) - {path.stem for path in FILES})
    assert not missing, f"add recipes/conf/experiment/NAME.yaml with tuned settings for {', '.join(missing)}"
    assert [path.stem for path in FILES] == sorted(objectives.names())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_its_settings_are_those_of_the_objective(path: Path) -> None:
    text = path.read_text()
    assert text.startswith("# @package _global_\n"), f"{path.name}: its first line must be # @package _global_"
    assert "reaches a linear probe of" in text, f"{path.name}: a comment must say what it 'reaches a linear probe of'"
    given = yaml.safe_load(text)
    config = Config.from_mapping({**given, "method": {"name": path.stem, **given["method"]}})
    method = sslkit.method(path.stem, image_size=28, in_chans=1, **config.method_options())
    assert method.objective.least_images <= config.data.batch_size


def test_the_readme_names_what_exists() -> None:
    named = re.findall(r"experiment=(\w+)", (RECIPES.parent / "README.md").read_text())
    each = {"each"}  # of recipes/zoo.py: every objective's own file
    assert each < set(named) <= {path.stem for path in FILES} | each
