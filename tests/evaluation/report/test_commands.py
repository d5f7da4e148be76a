"""The commands on the page keep what was asked for of the images."""

import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from evaluation.report import commands


@pytest.mark.parametrize(
    ("made", "kept"),
    [
        ({"range": [0, 4095]}, ["range=[0,4095]"]),
        ({"opacity": False, "fill": -2000}, ["opacity=false", "fill=-2000"]),
        ({"range": None, "opacity": None, "fill": "auto"}, []),
    ],
)
def test_a_ranking_is_repeated_with_the_values_that_were_read(made: dict, kept: list[str]) -> None:
    recorded = SimpleNamespace(data="scans", made=made, models=("a", "b"), metrics=("knn",))
    again = commands.ranking(recorded, Path("zoo"), ("a", "b"))
    measured, with_truth = commands.ranking_with_truth(recorded, Path("zoo"), ("a", "b"))
    for told in (again, measured, with_truth):
        assert [word for word in kept if word in told] == kept
        assert kept or not {"range", "opacity", "fill"} & {word.partition("=")[0] for word in told.split()}


def test_a_size_of_a_models_own_stays_in_its_word() -> None:
    made = {"words": {"efficientnet_lite0": "efficientnet_lite0(image_size=64)", "b": "zoo/b(image_size=36)"}}
    recorded = SimpleNamespace(data="scans", made=made, models=("a", "b", "efficientnet_lite0"), metrics=("knn",))
    again = commands.ranking(recorded, Path("zoo"), ("a", "b"))
    (zoo,) = [word for word in shlex.split(again) if word.startswith("zoo=")]
    found = OverridesParser.create().parse_override(zoo).value()
    assert found == ["zoo/a", "zoo/b(image_size=36)", "efficientnet_lite0(image_size=64)"]
