"""The tables of run.py, in Markdown."""

from collections.abc import Iterator
from typing import Any

Results = dict[str, Any]


def table(results: Results) -> str:
    """Every section that has results."""
    parts = (correct, resumed, fast, dsa, data, waits)
    return "\n\n".join("\n".join(lines) for part in parts if (lines := list(part(results))))


def correct(results: Results) -> Iterator[str]:
    """The largest gap of each objective over its regularisers, by precision."""
    groups: dict[tuple[str, str, str], dict[str, dict]] = {}
    for key, row in results.get("correct", {}).items():
        name, precision, _ = key.split(" | ")
        groups.setdefault((name.partition("+")[0], precision, row["device"]), {})[name] = row
    if groups:
        yield "| objective | precision | device | methods | loss | gradient | views | out of bounds |"
        yield "|---|---|---|--:|--:|--:|--:|---|"
    for (objective, precision, device), rows in groups.items():
        most = [f"{max(row[part] for row in rows.values()):.1e}" for part in ("loss", "gradient", "views")]
        out = ", ".join(name for name, row in rows.items() if not row["within"])
        yield f"| {objective} | {precision} | {device} | {len(rows)} | {' | '.join(most)} | {out} |"


def resumed(results: Results) -> Iterator[str]:
    """The largest difference of a weight from an unbroken run."""
    rows = results.get("resume", {})
    if rows:
        yield "| method | kernels | device | killed after epoch | an unbroken run again | killed and resumed |"
        yield "|---|---|---|--:|--:|--:|"
    for key, row in rows.items():
        method, kernels, _ = key.split(" | ")
        cells = [method, kernels, row["device"], row["killed_at"], f"{row['again']:.1e}", f"{row['resumed']:.1e}"]
        yield f"| {' | '.join(map(str, cells))} |"


def fast(results: Results) -> Iterator[str]:
    """Images a second beside the bare network's."""
    for network, row in results.get("fast", {}).items():
        bare = row["rates"]["bare network"]
        yield f"| {network}, batch {row['batch']}, {row['device']} | images/s | of the bare network |"
        yield "|---|--:|--:|"
        yield from (f"| {name} | {rate:,.0f} | {rate / bare:.0%} |" for name, rate in row["rates"].items())
        if "largest" in row:
            yield f"\nThe largest batch of BYOL on it, of powers of two: {row['largest']:,}."
        yield ""


def dsa(results: Results) -> Iterator[str]:
    """Time and memory of DSA's terms."""
    rows = results.get("dsa", {})
    if rows:
        yield "| images a step | device | DSA, ms | MiB | of a step of ResNet-50 |"
        yield "|--:|---|--:|--:|--:|"
    for key, row in sorted(rows.items(), key=lambda item: int(item[0].split(" | ")[0])):
        share = f"{row['share']:.1%}" if "share" in row else ""
        yield f"| {key.split(' | ')[0]} | {row['device']} | {row['ms']:.1f} | {row['mib']:.0f} | {share} |"


def data(results: Results) -> Iterator[str]:
    """From files to views."""
    for row in results.get("data", {}).values():
        ways = [f"{name} {row[name]:,.0f} images/s" for name in ("CPU workers", "nvJPEG") if name in row]
        run = f"a run {row['images_per_second']:,.0f} images/s, of whose time {row['waiting']:.0%} is waiting"
        yield f"{row['device']}: {', '.join([*ways, run])}."


def waits(results: Results) -> Iterator[str]:
    """The methods whose step waits for the GPU."""
    for name, row in results.get("sync", {}).items():
        if row["waits"]:
            yield f"{name} waits at {', '.join(row['waits'])}"
