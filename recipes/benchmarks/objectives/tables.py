"""The table of the objectives: mean and spread over the seeds, the effect of the plug-ins, cost, and raw pixels."""

from collections.abc import Sequence
from typing import Any

import torch
from keys import MARK, find_stale
from objectives.settings import open_arrays
from plugins.plan import BESIDE_KIND
from seeds import by_seed, differences, mean, of, percent

from sslkit import objectives as family
from sslkit.numerics import diagnostics
from sslkit.numerics.accuracy import knn_accuracy, probe_accuracy
from sslkit.terminal.tables import markdown

COLUMNS = ("method", "seeds", "linear probe, %", "before, %", "10-NN, %", "probe, minus plain", "inter", "intra")
OLDER = f"{MARK.strip()}: the code that made it computes something else now (`recipes/benchmarks/fingerprints.py`)."
COSTS = ("RankMe", "ms a step", "not backbone")  # of the steps; they were measured by a script that is in LOG.md


def table(results: dict[str, Any], names: Sequence[str]) -> str:
    """Markdown table: mean ± sd over the seeds, and the effect of the plug-ins, by seed.

    names: of the objectives, in this order. before: the linear probe of the same network with random weights.
    """
    raw = pixels()
    cells = ["raw pixels", "", f"{100 * raw['probe']:.1f}", "", f"{100 * raw['knn']:.1f}", ""]
    stale = find_stale(results["runs"], parts_of)
    names_of_columns = {"linear probe, %": "probe", "10-NN, %": "knn", "inter": "inter", "intra": "intra"}
    columns = [stale.mark(column, names_of_columns.get(column, column)) for column in COLUMNS]
    lines = [[*columns, *COSTS], [*cells, f"{raw['inter']:.3f}", f"{raw['intra']:.3f}", "", "", ""]]
    for name in names:
        lines += [row(results, name, plugin) for plugin in ("", "+dsa", "+guide") if of(results["runs"], name + plugin)]
    return f"{markdown(lines, range(1, len(lines[0])))}\n\n{OLDER}"


def parts_of(run: str) -> list[str]:
    """The parts of the code (`fingerprints.py`) that a run "OBJECTIVE+PLUGIN | SEED" rests on."""
    name, _, plugin = run.partition(" | ")[0].partition("+")
    form = {"dsa": "dsa, paper"}.get(plugin, plugin)
    return [name, *([f"{BESIDE_KIND[family.find(name).compares_views]} + {form}"] if form else []), "judging"]


def row(results: dict[str, Any], name: str, plugin: str) -> list[str]:
    """The cells of one method."""
    seeds, plain = of(results["runs"], name + plugin), of(results["runs"], name)
    before = f"{100 * mean({seed: numbers['random'] for seed, numbers in seeds.items()}, 'probe'):.1f}"
    marked = find_stale({f"{name}{plugin} | {seed}": row for seed, row in seeds.items()}, parts_of).mark_row(
        name + plugin
    )
    cells = [marked, str(len(seeds)), percent(seeds, "probe"), "" if plugin else before, percent(seeds, "knn")]
    cells.append(by_seed(differences(seeds, plain, "probe")) if plugin else "")
    cells += [f"{mean(seeds, key):.3f}" for key in ("inter", "intra")]
    step = results.get("steps", {}).get(name + plugin)
    cost = [f"{step['ms']:.0f}", f"{100 * step['not_backbone']:.0f} %"] if step else ["", ""]
    return [*cells, f"{mean(seeds, 'rankme'):.0f}", *cost]


def pixels() -> dict[str, float]:
    """Linear probe and kNN on raw pixels."""
    parts = []
    for split in ("train", "test"):
        x, y = map(torch.from_numpy, open_arrays("fashion_mnist", split))
        parts += [x.flatten(1).float() / 255, y]
    crowded = diagnostics.crowding(*parts[2:])
    judged = {"probe": probe_accuracy(*parts), "knn": knn_accuracy(*parts, k=10)}
    return judged | {"inter": crowded.inter, "intra": crowded.intra}
