"""The tables of guide_study.py, in Markdown."""

import statistics
from typing import Any

from scipy.stats import t as student

Runs = dict[tuple[str, ...], dict[str, Any]]
Rows = dict[str, dict[str, Any]]  # by seed
VARIANTS = (
    "guide",
    "guide, hog",
    "prior alone",
    "hog alone",
    "guide, random network",
    "guide, shuffled",
    "dsa",
    "dsa, balance 1",
    "plain, longer",
)


def split(results: dict[str, Any], part: str) -> Runs:
    """The results by (data, objective, variant, epochs, seed)."""
    return {tuple(key.split(" | ")): numbers for key, numbers in results.get(part, {}).items()}


def choosing_table(results: dict[str, Any]) -> str:
    """Probe and 10-NN on held-out images (and of how many seeds), and the mean gain of the probe over plain."""
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
        shown = [shown_choice(a) if a else "" for a in cells[variant]]
        mean = f"{statistics.mean(gains[variant]):+.1f}" if len(gains[variant]) == complete else ""
        lines.append(f"| {variant} | {' | '.join(shown)} | {mean} |")
    return "\n".join(lines)


def chosen(runs: Runs, variant: str, setting: tuple[str, int, str]) -> dict[str, Any] | None:
    """Means over the seeds; None without a run."""
    data, epochs, name = setting
    found = [v for k, v in runs.items() if k[:4] == (data, name, variant, str(epochs))]
    means = {key: statistics.mean(v[key] for v in found) for key in ("probe", "knn") if found}
    return means | {"seeds": len(found)} if found else None


def shown_choice(found: dict[str, Any]) -> str:
    seeds = f" ({found['seeds']})" if found["seeds"] > 1 else ""
    return f"{100 * found['probe']:.1f} / {100 * found['knn']:.1f}{seeds}"


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


def differences(one: Rows, other: Rows, key: str) -> list[float]:
    """one minus other in points, seed by seed, of those that both have."""
    return [100 * (one[seed][key] - other[seed][key]) for seed in one if seed in other]


def spread(values: list[float]) -> str:
    sd = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{sd}"


def interval(gains: list[float]) -> str:
    """The mean gain, and from two seeds on its 95 % t-interval."""
    if len(gains) < 2:
        return f"{gains[0]:+.1f}" if gains else ""
    mean, half = statistics.mean(gains), half_width(gains)
    return f"{mean:+.1f} ({mean - half:+.1f} to {mean + half:+.1f})"


def half_width(gains: list[float]) -> float:
    """Half of the 95 % t-interval of a mean."""
    return student.ppf(0.975, len(gains) - 1) * statistics.stdev(gains) / len(gains) ** 0.5
