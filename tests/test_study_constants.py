"""recipes/benchmarks/constants.json: the code has its values, and the committed results of the studies give them."""

import importlib
import inspect
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "recipes" / "benchmarks"))

from near_duplicates.run import threshold
from objectives.run import usual_rate
from plugins.default import CANDIDATES, chosen
from ranking import calibration, consensus, halving, truth
from results import CONSTANTS, load

KEPT = json.loads(CONSTANTS.read_text())


def in_code(name: str) -> Any:
    """`module:NAME`, or the default of an argument, `module:Class(argument)`."""
    module, attribute, argument = re.fullmatch(r"([\w.]+):(\w+)(?:\((\w+)\))?", name).groups()
    found = getattr(importlib.import_module(module), attribute)
    return inspect.signature(found).parameters[argument].default if argument else found


@pytest.mark.parametrize("name", KEPT)
def test_the_code_has_the_value(name: str) -> None:
    value = in_code(name)
    assert (list(value) if isinstance(value, tuple) else value) == KEPT[name]["value"]


@pytest.mark.parametrize("name", KEPT)
def test_the_value_is_what_was_measured_or_says_why_not(name: str) -> None:
    constant = KEPT[name]
    assert re.fullmatch(r"[0-9a-f]{7,40}\+?", constant["commit"]) and constant["date"]
    if "note" not in constant:
        digits = len(str(constant["value"]).partition(".")[2])
        measured = constant["measured"]
        if isinstance(measured, dict):
            measured = {name: round(value, 2) for name, value in measured.items()}
        assert (round(measured, digits) if isinstance(measured, float) else measured) == constant["value"]


def agreements() -> dict[str, float]:
    return calibration.agreements(consensus.read(consensus.STUDY)[0], [consensus.FIRST])


def spread() -> float:
    return calibration.spread([*consensus.read(consensus.STUDY)[0], *calibration.further(consensus.FIRST, ["knn"])])


def best_of_guide() -> tuple[float, float]:
    """Balance and its end, by the rule of the study: the best mean of BYOL and SimCLR at 50 epochs."""
    forms = {"r=0.3": (0.3, 1.0), "r=1": (1.0, 1.0), "r=3": (3.0, 1.0), "r=3 settled": (3.0, 0.1)}
    runs = load("plugins/guide")["choosing"]
    found = {
        form: mean(runs[f"fashion | {name} | {form} | 50 | 100"]["probe"] for name in ("byol", "simclr"))
        for form in forms
    }
    return forms[max(found, key=found.get)]


def default_of(plugin: str, group: str) -> list[float]:
    form = CANDIDATES[plugin][chosen(load("plugins/default")["runs"], plugin, group)]
    return [form["balance"], form.get("balance_until", 1.0)]


def default_beside_others() -> list[float]:
    """Return the balance and its end chosen beside objectives that do not compare views, one for all plug-ins."""
    first, *others = [default_of(plugin, "no views") for plugin in CANDIDATES]
    assert all(one == first for one in others)
    return first


def default_metrics() -> list[str]:
    found = load("ranking/consensus")
    return consensus.defaults(found["rules"], found["unseen models"])


MEASURED: dict[str, Callable[[], Any]] = {
    "evaluation.embedding.near_duplicates:THRESHOLD": lambda: threshold(
        load("near_duplicates/near_duplicates")["runs"]
    ),
    "evaluation.ranking.beliefs:SEED_NOISE": truth.seed_noise,
    "evaluation.ranking.beliefs:STEP_NOISE": lambda: halving.noise_by_round(load("ranking/halving")["runs"]),
    "evaluation.ranking.checks:METRICS": default_metrics,
    "evaluation.ranking.consensus:AGREEMENT": agreements,
    "evaluation.ranking.consensus:SPREAD": spread,
    "sslkit.regularizers.base:BESIDE_OTHERS": default_beside_others,
    "sslkit.regularizers.dsa.regularizer:BESIDE_VIEWS": lambda: default_of("dsa", "views"),
    "sslkit.regularizers.guide:Guide(balance)": lambda: best_of_guide()[0],
    "sslkit.regularizers.guide:UNTIL": lambda: best_of_guide()[1],
    "sslkit.training.build:NARROW_RATE": usual_rate,
}


def test_every_constant_has_its_results() -> None:
    assert MEASURED.keys() == KEPT.keys()


@pytest.mark.parametrize("name", MEASURED)
def test_the_committed_results_give_what_was_measured(name: str) -> None:
    found, kept = MEASURED[name](), KEPT[name]["measured"]
    assert found == (kept if isinstance(kept, list) and isinstance(kept[0], str) else pytest.approx(kept, abs=5.1e-4))
