"""The tables of guide_study.py, in Markdown."""

import statistics
from typing import Any

from scipy.stats import t as student

Runs = dict[tuple[str, ...], dict[str, Any]]


def split(results: dict[str, Any], part: str) -> Runs:
    """The results by (data, objective, variant, epochs, seed)."""
    return {tuple(key.split(" | ")): numbers for key, numbers in results.get(part, {}).items()}


def choosing_table(results: dict[str, Any]) -> str:
    """Probe and 10-NN on held-out images, and the mean gain of the probe over plain; best first."""
    runs = split(results, "choosing")
    settings = sorted({(data, int(epochs), name) for data, name, _, epochs, _ in runs})
    variants = dict.fromkeys(key[2] for key in runs)
    cells = {variant: [chosen(runs, variant, setting) for setting in settings] for variant in variants}
    gains = {
        variant: [100 * (a["probe"] - b["probe"]) for a, b in zip(found, cells["plain"], strict=True) if a and b]
        for variant, found in cells.items()
    }
    lines = [
        "| variant | " + " | ".join(f"{data}, {epochs}, {name}" for data, epochs, name in settings) + " | mean gain |",
        "|---|" + "--:|" * len(settings) + "--:|",
    ]
    complete = len(gains["plain"])  # variants with fewer settings stand below, and are not compared by their mean
    for variant in sorted(cells, key=lambda one: (-len(gains[one]), -statistics.mean(gains[one] or [0]))):
        shown = [f"{100 * a['probe']:.1f} / {100 * a['knn']:.1f}" if a else "" for a in cells[variant]]
        mean = f"{statistics.mean(gains[variant]):+.1f}" if len(gains[variant]) == complete else ""
        lines.append(f"| {variant} | {' | '.join(shown)} | {mean} |")
    return "\n".join(lines)


def chosen(runs: Runs, variant: str, setting: tuple[str, int, str]) -> dict[str, Any] | None:
    """Means over the seeds; None without a run."""
    data, epochs, name = setting
    found = [v for k, v in runs.items() if k[:4] == (data, name, variant, str(epochs))]
    return {key: statistics.mean(v[key] for v in found) for key in ("probe", "knn")} if found else None


def table(results: dict[str, Any]) -> str:
    """Variant x objective: means over seeds, and gains in the probe over plain of the same seed, with intervals."""
    runs = split(results, "runs")
    lines = [
        "| data | epochs | objective | variant | seeds | probe, % | 10-NN, % | probe minus plain | 10-NN minus plain |",
        "|---|--:|---|---|--:|--:|--:|--:|--:|",
    ]
    settings = dict.fromkeys((data, int(epochs), name) for data, name, _, epochs, _ in runs)
    for data, epochs, name in sorted(settings):
        for variant in dict.fromkeys(key[2] for key in runs):
            found = of(runs, data, name, variant, epochs)
            if found:
                plain = of(runs, data, name, "plain", epochs)
                lines.append(f"| {data} | {epochs} | {name} | " + row(variant, found, plain) + " |")
    return "\n".join(lines)


def of(runs: Runs, data: str, name: str, variant: str, epochs: int) -> dict[str, dict[str, Any]]:
    """The results by seed."""
    return {key[4]: numbers for key, numbers in runs.items() if key[:4] == (data, name, variant, str(epochs))}


def row(variant: str, found: dict[str, dict], plain: dict[str, dict]) -> str:
    cells = [variant, str(len(found)), *(spread([100 * r[k] for r in found.values()]) for k in ("probe", "knn"))]
    for k in ("probe", "knn"):
        gains = [100 * (found[seed][k] - plain[seed][k]) for seed in found if seed in plain and variant != "plain"]
        cells.append(interval(gains))
    return " | ".join(cells)


def spread(values: list[float]) -> str:
    sd = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{sd}"


def interval(gains: list[float]) -> str:
    """The mean gain, and from two seeds on its 95 % t-interval."""
    if len(gains) < 2:
        return f"{gains[0]:+.1f}" if gains else ""
    half = student.ppf(0.975, len(gains) - 1) * statistics.stdev(gains) / len(gains) ** 0.5
    mean = statistics.mean(gains)
    return f"{mean:+.1f} ({mean - half:+.1f} to {mean + half:+.1f})"
