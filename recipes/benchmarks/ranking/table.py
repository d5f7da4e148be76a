"""Print the ranking study as two tables: every metric, and the papers' claims."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from keys import MARK, stale_parts
from ranking.made_up import part_of

from sslkit.terminal.tables import align, markdown

TAU, REGRET = "weighted tau (Vigna)", "regret@1"


def table(found: Mapping[str, Any], as_markdown: bool = False) -> str:
    """Format the results file. Metrics are sorted by mean tau; those with some models or tasks only come last."""
    tasks = list(found["truth"])
    show = partial(markdown if as_markdown else align, right=range(1, len(tasks) + 6))
    common = found.get("mean_of", tasks)
    apart = [task for task in tasks if task not in common]
    counts = f"{found['n_models']} models, {len(common)} task{'s' if len(common) > 1 else ''}"
    counts += f" (without {', '.join(apart)}, of several labels an image)" if apart else ""
    sections = [
        f"{counts}; weighted tau (Vigna) and regret@1 in points of accuracy: means over the tasks, 95 % over models",
        show([["metric", "models", "weighted tau", "regret@1", *tasks, "ms a model"], *_rows(found, tasks)]),
        f"A metric against another, paired: difference in mean weighted tau (Vigna), {counts}",
        show([["metric", "against", "claimed by", "difference", *tasks, "higher in", "says"], *_claims(found, tasks)]),
    ]
    if found.get("reliability"):
        sections.append(_truth_itself(found))
    left_out = [f"{task}: no truth of {', '.join(names)}" for task, names in found["without_truth"].items() if names]
    if missing := [*left_out, *found["failed"]]:
        sections.append("\n".join(["not in the numbers:", *(f"  {line}" for line in missing)]))
    return "\n\n".join(sections)


def _truth_itself(found: Mapping[str, Any]) -> str:
    """Lines on the truth: its reliability, in the mean and by task, and what it cost."""
    mean, tasks = found["reliability"]["mean"], found["reliability"]["tasks"]
    by_task = ", ".join(
        f"{task} {_value(measures[TAU])} and {_value(measures['Pearson'])}" for task, measures in tasks.items()
    )
    lines = [
        "The truth, one half of each model's seeds against the other half: weighted tau "
        f"{_cell(mean[TAU])}, Pearson {_cell(mean['Pearson'])}; {by_task}."
    ]
    if cost := found.get("cost"):
        ends = ", ".join(f"{task} {count}" for task, count in cost["at_an_end"].items() if count)
        lines.append(
            f"{cost['runs']:,} runs, {cost['core_hours']:g} hours of a core; at an end of the grid: {ends or 'none'}."
        )
    return "\n".join(lines)


def _rows(found: Mapping[str, Any], tasks: Sequence[str]) -> list[list[str]]:
    common = found.get("mean_of", tasks)

    def order(item: tuple[str, Mapping]) -> tuple:
        mean = item[1]["mean"][TAU]
        whole = item[1]["models"] == most and set(common) <= set(item[1]["tasks"])
        return not whole, -(mean["value"] if mean else -2)

    most = max(row["models"] for row in found["metrics"].values())

    rows = [_row(name, row, tasks) for name, row in sorted(found["metrics"].items(), key=order)]
    blank = [""] * (len(tasks) + 1)
    if found["ceiling"]:
        ceiling = found["ceiling"]
        means = [_cell(ceiling[TAU]), _cell(ceiling[REGRET], 100)]
        rows.append(["fine-tuning itself, one seed by the others", str(found["n_models"]), *means, *blank])
    chance = found["chance"]
    rows.append(["a model at random (expected)", "", f"{chance[TAU]:.2f}", f"{100 * chance[REGRET]:.1f}", *blank])
    return rows


def _row(name: str, row: Mapping[str, Any], tasks: Sequence[str]) -> list[str]:
    shown = f"{name} (baseline)" if row["baseline"] else name
    shown += MARK * bool(stale_parts(row, [part_of(name)]))
    if not set(tasks) <= set(row["tasks"]):
        shown += f", {len(row['tasks'])} of {len(tasks)} tasks"
    values = [_value(row["tasks"].get(task, {}).get(TAU)) for task in tasks]
    seconds = row["seconds_per_model"]
    cost = "" if seconds is None else f"{1000 * seconds:.1f}"
    return [shown, str(row["models"]), _cell(row["mean"][TAU]), _cell(row["mean"][REGRET], 100), *values, cost]


def _claims(found: Mapping[str, Any], tasks: Sequence[str]) -> list[list[str]]:
    rows = []
    for claim in found["claims"]:
        by_task = claim["by_task"]
        higher = sum(1 for difference in by_task.values() if difference and difference["value"] > 0)
        values = [_value(by_task.get(task), sign="+") for task in tasks]
        row = [claim["metric"], claim["against"], claim["claimed_by"], _cell(claim["difference"][TAU], sign="+")]
        rows.append([*row, *values, f"{higher} of {len(by_task)}", claim["verdict"]])
    return rows


def _value(measure: Mapping[str, Any] | None, sign: str = "") -> str:
    return "-" if measure is None else f"{measure['value']:{sign}.2f}"


def _cell(measure: Mapping[str, Any] | None, scale: float = 1, sign: str = "") -> str:
    """Format a value with its interval."""
    if measure is None:
        return "-"
    digits = 1 if scale == 100 else 2
    value = f"{scale * measure['value']:{sign}.{digits}f}"
    if measure["interval"] is None:
        return value
    low, high = (f"{scale * bound:.{digits}f}" for bound in measure["interval"])
    return f"{value} ({low} to {high})"
