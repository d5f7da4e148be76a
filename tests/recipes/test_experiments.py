"""The files of recipes/conf/experiment: each fits the objective of its name, and what the README names is there."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from sslkit.cli.command import compose

import sslkit
from sslkit import objectives
from sslkit.training.config import Config

RECIPES = Path(__file__).parents[2] / "recipes"
FILES = sorted((RECIPES / "conf" / "experiment").glob("*.yaml"))
PAPERS = sorted((RECIPES / "conf" / "experiment" / "paper").glob("*.yaml"))


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
    assert method.objective.least_images <= config.batch_size


def test_the_readme_names_what_exists() -> None:
    named = re.findall(r"experiment=([\w/]+)", (RECIPES.parent / "README.md").read_text())
    each = {"each"}  # of recipes/zoo.py: every objective's own file
    assert each < set(named) <= {path.stem for path in FILES} | each


@pytest.mark.parametrize("path", PAPERS, ids=lambda path: path.stem)
def test_those_of_papers_say_where_they_are_from_and_that_they_were_not_run(path: Path) -> None:
    text = path.read_text()
    assert text.startswith("# @package _global_\n") and "Never run here in full." in text
    compose([f"experiment=paper/{path.stem}"], Config(), RECIPES / "conf")


@pytest.mark.nightly
@pytest.mark.parametrize("path", [path for path in PAPERS if "kinetics" not in path.stem], ids=lambda path: path.stem)
def test_those_of_papers_start_on_a_tiny_fake_in_the_published_layout(path: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for split, number in itertools.product(("train", "val"), range(8)):
        file = tmp_path / "images" / split / f"n0144076{number % 2}" / f"{number}.JPEG"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (40, 48, 3), dtype=np.uint8)).save(file)
    method = "moco_v3" if "vit" in path.stem else "simclr"
    small = ["epochs=1", "batch_size=4", "workers=0", "eval.tsne=0", "eval.k=3"]
    small += [] if "vit" in path.stem else ["image_size=32"]
    words = [
        f"method={method}",
        f"experiment=paper/{path.stem}",
        f"data={tmp_path / 'images'}",
        f"out={tmp_path}",
        *small,
    ]
    entry = sslkit.pretrain(compose(words, Config(), RECIPES / "conf"))
    given = yaml.safe_load(path.read_text())
    assert entry.card["backbone"]["name"] == given["backbone"]
    assert entry.card["config"]["optimizer"]["name"] == given["optimizer"]["name"]
