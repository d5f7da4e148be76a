"""The tables of the study of guide, in Markdown."""

import statistics
from typing import Any

from told import Rows, differences, interval, spread

Runs = dict[tuple[str, ...], dict[str, Any]]
GUIDES = ("guide", "guide, hog", "prior alone", "hog alone", "guide, random network", "guide, shuffled")
VARIANTS = (*GUIDES, "dsa", "dsa, balance 1", "plain, longer")


def split(results: dict[str, Any], part: str) -> Runs:
    """The results by (data, objective, variant, epochs, seed)."""
    return {tuple(key.split(" | ")): numbers for key, numbers in results.get(part, {}).items()}


def tables(results: dict[str, Any]) -> str:
    """The verdicts, every variant, the shares of the regularisers, and the transfer to other tasks."""
    runs = split(results, "runs")
    parts = [verdicts(runs), every_variant(runs), shares(runs), transfer(runs)]
    return "\n\n".join("\n".join(lines) for lines in [priors(results), *parts])


def priors(results: dict[str, Any]) -> list[str]:
    """Probe and 10-NN of the priors' own features, whitened as guide regresses them."""
    lines = ["| data | prior | probe, % | 10-NN, % |", "|---|---|--:|--:|"]
    for key, row in results.get("priors", {}).items():
        lines.append(f"| {' | '.join(key.split(' | '))} | {100 * row['probe']:.1f} | {100 * row['knn']:.1f} |")
    return lines


def settings_of(runs: Runs) -> list[tuple[str, int, str]]:
    """(data, epochs, objective) of the runs."""
    return sorted({(data, int(epochs), name) for data, name, _, epochs, _ in runs})


def verdicts(runs: Runs) -> list[str]:
    """guide against plain, and against what would show the gain to be cheap: differences of the probe, by seed."""
    lines = [
        "| data | epochs | objective | plain, % | guide, % | minus plain | minus random network | minus prior alone |",
        "|---|--:|---|--:|--:|--:|--:|--:|",
    ]
    for data, epochs, name in settings_of(runs):
        found = {one: of(runs, data, name, one, epochs) for one in ("plain", "guide")}
        others = [of(runs, data, name, one, epochs) for one in ("plain", "guide, random network", "prior alone")]
        reached = [spread([100 * r["probe"] for r in found[one].values()]) if found[one] else "" for one in found]
        gains = [interval(differences(found["guide"], other, "probe")) for other in others]
        lines.append(f"| {data} | {epochs} | {name} | {' | '.join([*reached, *gains])} |")
    return lines


def every_variant(runs: Runs) -> list[str]:
    """Gains of each variant over plain on the seeds of both, mean points of probe / 10-NN (and the number of seeds)."""
    lines = []
    for data, epochs in dict.fromkeys(setting[:2] for setting in settings_of(runs)):
        shown = [one for one in VARIANTS if any(key[:1] + key[2:4] == (data, one, str(epochs)) for key in runs)]
        lines += ["", f"| {data}, {epochs} epochs | {' | '.join(shown)} |", "|---|" + "--:|" * len(shown)]
        for name in [name for *setting, name in settings_of(runs) if setting == [data, epochs]]:
            plain = of(runs, data, name, "plain", epochs)
            cells = [added(of(runs, data, name, variant, epochs), plain) for variant in shown]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines[1:]


def added(found: Rows, plain: Rows) -> str:
    gains = [differences(found, plain, key) for key in ("probe", "knn")]
    if not gains[0]:
        return ""
    probe, knn = (f"{statistics.mean(values):+.1f}" for values in gains)
    return f"{probe} / {knn}" + (f" ({len(gains[0])})" if len(gains[0]) > 1 else "")


def shares(runs: Runs) -> list[str]:
    """The median share of each regulariser after the first tenth of a run, least to most over the seeds."""
    lines = ["| data | epochs | objective | variant | share |", "|---|--:|---|---|--:|"]
    for data, epochs, name in settings_of(runs):
        for variant in ("dsa", "dsa, balance 1", "guide"):
            rows = of(runs, data, name, variant, epochs).values()
            values = [row[key] for row in rows for key in row if key.endswith("/share")]
            if values:
                ends = sorted({f"{min(values):.2g}", f"{max(values):.2g}"}, key=float)
                lines.append(f"| {data} | {epochs} | {name} | {variant} | {' to '.join(ends)} |")
    return lines


def transfer(runs: Runs) -> list[str]:
    """Probes on other tasks, and the difference that guide makes."""
    found = {key: row["transfer"] for key, row in runs.items() if "transfer" in row}
    tasks = list(dict.fromkeys(task for row in found.values() for task in row))
    lines = [f"| epochs | objective | {' | '.join(tasks)} |", "|--:|---|" + "--:|" * len(tasks)]
    for data, epochs, name in settings_of(runs):
        plain, guide = (
            {key[4]: row for key, row in found.items() if key[:4] == (data, name, one, str(epochs))}
            for one in ("plain", "guide")
        )
        if plain and guide:
            cells = [
                f"{spread([100 * row[task] for row in plain.values()])}: {interval(differences(guide, plain, task))}"
                for task in tasks
            ]
            lines.append(f"| {epochs} | {name} | {' | '.join(cells)} |")
    return lines


def of(runs: Runs, data: str, name: str, variant: str, epochs: int) -> Rows:
    """The results by seed."""
    return {key[4]: numbers for key, numbers in runs.items() if key[:4] == (data, name, variant, str(epochs))}
