"""recipes/benchmarks/constants.json: the code has its values, and the committed results of the studies give them."""

import importlib
import inspect
import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "recipes" / "benchmarks"))

from objectives.run import usual_rate
from ranking import constants, truth
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


def noise_by_round() -> list[float]:
    """Standard deviations over sqrt(p (1 - p)) of halving's early rounds: means over its choices."""
    noises = [one["step noise"] for key, one in load("ranking/halving")["runs"].items() if key.startswith("choice | ")]
    means = [mean(own[place] for own in noises if len(own) > place) for place in range(max(map(len, noises)))]
    return [max(value, 0) ** 0.5 for value in means]


def best_of_guide() -> tuple[float, float]:
    """Balance and its end, by the rule of the study: the best mean of BYOL and SimCLR at 50 epochs."""
    forms = {"r=0.3": (0.3, 1.0), "r=1": (1.0, 1.0), "r=3": (3.0, 1.0), "r=3 settled": (3.0, 0.1)}
    runs = load("plugins/guide")["choosing"]
    found = {
        form: mean(runs[f"fashion | {name} | {form} | 50 | 100"]["probe"] for name in ("byol", "simclr"))
        for form in forms
    }
    return forms[max(found, key=found.get)]


VIEWS, NO_VIEWS = ("byol", "simclr", "barlow_twins", "dino"), ("mae", "supervised", "ijepa", "data2vec")
TRIED = {  # the candidates that took part in a choice, the simplest first, by plug-in and objectives
    ("dsa", VIEWS): (
        "balance 1", "balance 0.3", "balance 3", "balance 1, first tenth", "balance 3, first tenth", "balance 1, on h",
        "balance 3, first tenth, on h", "balance 3, first tenth, tau auto", "balance 3, first tenth, prior hog",
        "balance 1, prior hog", "balance 1, prior self",
    ),
    ("dsa", NO_VIEWS): (
        "balance 1", "balance 0.03", "balance 0.1", "balance 0.3", "balance 3", "balance 1, first tenth",
        "balance 3, first tenth", "balance 1, prior hog", "balance 1, prior self",
    ),
    ("adc", NO_VIEWS): ("weights 1", "balance 0.03", "balance 1", "balance 3, first tenth", "balance 1, prior self"),
    ("sigreg", NO_VIEWS): ("weights", "balance 0.03"),
    ("visreg", NO_VIEWS): ("weights", "balance 0.03"),
}  # fmt: skip
LARGEST_LOSS, NEAR = {"fashion": 1.0, "clipart": 2.5}, 0.3  # points


def chosen(plugin: str, objectives: tuple[str, ...]) -> str:
    """The candidate that the rule of the plan chooses (its script is in LOG.md), of those with all runs.

    Of those whose probe loses with no objective more than LARGEST_LOSS the first that is within NEAR of the highest
    mean gain of probe and 10-NN; if there is none, the one of the smallest worst loss. Only DSA ran beyond the race.
    """
    runs = load("plugins/default")["runs"]
    raced = [("fashion", name, 100) for name in objectives[:2]]
    every = [(*one, seed) for one in product(("fashion",), objectives) for seed in (100, 101)]
    within = [*every, *(("clipart", name, 100) for name in objectives)] if plugin == "dsa" else raced

    def gains(name: str, kind: str) -> dict[tuple[str, str], float]:
        points = defaultdict(list)
        for data, objective, seed in within:
            with_it = runs[f"{data} | {objective} | {plugin}: {name} | {seed}"][kind]
            points[data, objective].append(100 * (with_it - runs[f"{data} | {objective} | plain | {seed}"][kind]))
        return {key: mean(values) for key, values in points.items()}

    names = [
        name
        for name in TRIED[plugin, objectives]
        if all(f"{data} | {objective} | {plugin}: {name} | {seed}" in runs for data, objective, seed in within)
    ]
    left = {name: min(LARGEST_LOSS[data] + gain for (data, _), gain in gains(name, "probe").items()) for name in names}
    worth = {
        name: mean(gain for kind in ("probe", "knn") for gain in gains(name, kind).values())
        for name in names
        if left[name] >= 0
    }
    if not worth:
        return max(left, key=left.get)
    return next(name for name in worth if worth[name] >= max(worth.values()) - NEAR)


def default_of(plugin: str, objectives: tuple[str, ...]) -> list[float]:
    """Balance and its end."""
    balance, first = re.fullmatch(r"balance ([\d.]+)(, first tenth)?", chosen(plugin, objectives)).groups()
    return [float(balance), 0.1 if first else 1.0]


def default_beside_others() -> list[float]:
    """Return the balance and its end chosen beside objectives that do not compare views, one for all plug-ins."""
    first, *others = [default_of(plugin, NO_VIEWS) for plugin in ("dsa", "adc", "sigreg", "visreg")]
    assert all(one == first for one in others)
    return first


def default_metrics() -> list[str]:
    """By the rule of the plan kNN, unless a combination is above it by its whole interval (the script is in LOG.md)."""
    found, fixed = load("ranking/consensus"), ("knn", "h_score_regularized", "logme")

    def is_above(table: str, rule: str) -> bool:
        lowest = {row[0]: row[4].partition("(")[2].partition(" ")[0] for row in found[table][1:]}
        return bool(lowest.get(rule)) and float(lowest[rule]) > 0

    if is_above("rules", ", ".join(fixed)):
        return [*fixed]
    return ["chosen"] if is_above("rules", "chosen") and is_above("unseen models", "chosen") else ["knn"]


MEASURED: dict[str, Callable[[], Any]] = {
    "evaluation.ranking.choice.beliefs:SEED_NOISE": truth.seed_noise,
    "evaluation.ranking.choice.beliefs:STEP_NOISE": noise_by_round,
    "evaluation.ranking.checks:METRICS": default_metrics,
    "evaluation.ranking.consensus:AGREEMENT": lambda: constants.agreements(*constants.studies()),
    "evaluation.ranking.consensus:SPREAD": lambda: constants.spread(*constants.studies()),
    "sslkit.regularizers.base:BESIDE_OTHERS": default_beside_others,
    "sslkit.regularizers.dsa.regularizer:BESIDE_VIEWS": lambda: default_of("dsa", VIEWS),
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
