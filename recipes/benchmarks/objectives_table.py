"""The table of objectives.py: mean and spread over the seeds, the effect of the plug-ins, cost, and raw pixels."""

import statistics
from collections.abc import Sequence
from typing import Any

import torch

import sslkit


def table(results: dict[str, Any], names: Sequence[str]) -> str:
    """Markdown table: mean ± sd over the seeds, and the effect of DSA, by seed.

    names: of the objectives, in this order. before: the linear probe of the same network with random weights.
    """
    columns = [
        "method",
        "seeds",
        "linear probe, %",
        "before, %",
        "10-NN, %",
        "probe, minus plain",
        "inter",
        "intra",
    ]
    columns += ["RankMe", "ms a step", "not backbone"]
    raw = pixels()
    cells = ["raw pixels", "", f"{100 * raw['probe']:.1f}", "", f"{100 * raw['knn']:.1f}", ""]
    cells += [f"{raw['inter']:.3f}", f"{raw['intra']:.3f}", "", "", ""]
    lines = [columns, ["---"] * len(columns), cells]
    lines += [
        row(results, name, plugin)
        for name in names
        for plugin in ("", "+dsa", "+guide")
        if seeds_of(results, name + plugin)
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def row(results: dict[str, Any], name: str, plugin: str) -> list[str]:
    """The cells of one method."""
    found, plain = seeds_of(results, name + plugin), seeds_of(results, name)
    before = "" if plugin else f"{100 * statistics.mean(r['random']['probe'] for r in found.values()):.1f}"
    gains = " ".join(f"{100 * (r['probe'] - plain[s]['probe']):+.1f}" for s, r in found.items() if s in plain)
    probe, knn = (spread([100 * r[k] for r in found.values()]) for k in ("probe", "knn"))
    crowding = [f"{statistics.mean(r[k] for r in found.values()):.3f}" for k in ("inter", "intra")]
    rank = f"{statistics.mean(r['rankme'] for r in found.values()):.0f}"
    step = results.get("steps", {}).get(name + plugin)
    cost = [f"{step['ms']:.0f}", f"{100 * step['not_backbone']:.0f} %"] if step else ["", ""]
    return [name + plugin, str(len(found)), probe, before, knn, gains if plugin else "", *crowding, rank, *cost]


def pixels() -> dict[str, float]:
    """Linear probe and kNN on raw pixels."""
    from sslkit.numerics import diagnostics
    from sslkit.training.features import knn_accuracy, probe_accuracy

    parts = []
    for split in ("train", "test"):
        images = sslkit.open_images("fashion_mnist", split=split)
        x = images.__getitems__(list(range(len(images))))["images"].flatten(1).float() / 255
        parts += [x, torch.from_numpy(images.labels)]
    crowded = diagnostics.crowding(*parts[2:])
    judged = {"probe": probe_accuracy(*parts), "knn": knn_accuracy(*parts, k=10)}
    return judged | {"inter": crowded.inter, "intra": crowded.intra}


def seeds_of(results: dict[str, Any], method: str) -> dict[str, dict]:
    split = {tuple(key.split(" | ")): value for key, value in results["runs"].items()}
    return {seed: value for (own, seed), value in split.items() if own == method}


def spread(values: list[float]) -> str:
    sd = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{sd}"
