"""The tables of run.py, in Markdown: one for each section that has results."""

from collections.abc import Iterator
from typing import Any

Results = dict[str, Any]


def table(results: Results) -> str:
    """Every section that has results."""
    parts = (correct, resume, waits, step, memory, views, parts_of_steps, dsa, precision, data, nccl)
    return "\n\n".join("\n".join(lines) for section in parts if (lines := list(section(results))))


def correct(results: Results) -> Iterator[str]:
    """The largest gap over all methods, by precision, and the methods out of bounds."""
    groups: dict[tuple[str, str], dict[str, dict]] = {}
    for key, row in results.get("correct", {}).items():
        name, precision, _ = key.split(" | ")
        groups.setdefault((precision, row["device"]), {})[name] = row
    if groups:
        yield "| precision | device | methods | out of bounds | of the others: loss | gradient | views |"
        yield "|---|---|--:|---|--:|--:|--:|"
    for (precision, device), rows in groups.items():
        within = [row for row in rows.values() if row["within"]]
        most = [f"{max((row[name] for row in within), default=0):.1e}" for name in ("loss", "gradient", "views")]
        out = ", ".join(f"{name} ({row['gradient']:.1e})" for name, row in rows.items() if not row["within"])
        yield f"| {precision} | {device} | {len(rows)} | {out or 'none'} | {' | '.join(most)} |"


def resume(results: Results) -> Iterator[str]:
    """The largest difference of a weight from an unbroken run."""
    rows = results.get("resume", {})
    if rows:
        yield "| method | kernels | device | killed after epoch | an unbroken run again | killed and resumed |"
        yield "|---|---|---|--:|--:|--:|"
    for key, row in rows.items():
        method, kernels, _ = key.split(" | ")
        cells = [method, kernels, row["device"], row["killed_at"], f"{row['again']:.1e}", f"{row['resumed']:.1e}"]
        yield f"| {' | '.join(map(str, cells))} |"


def waits(results: Results) -> Iterator[str]:
    """The methods whose step waits for the GPU."""
    rows = results.get("waits", {})
    waiting = {name: row["waits"] for name, row in rows.items() if row["waits"]}
    if rows:
        yield f"Of {len(rows)} methods {len(rows) - len(waiting)} have a step that waits for nothing."
    yield from (f"- {name} waits at {', '.join(calls)}" for name, calls in waiting.items())


def step(results: Results) -> Iterator[str]:
    """Images a second beside the student alone, and GiB."""
    for network, row in results.get("step", {}).items():
        rates, student = row["rates"], row["rates"]["student"]
        yield f"\n| {network}, batch {row['batch']}, {row['device']} | images/s | of the student alone | GiB |"
        yield "|---|--:|--:|--:|"
        for name, rate in rates.items():
            yield f"| {name} | {rate:,.0f} | {rate / student:.0%} | {row['gib'][name]:.1f} |"


def memory(results: Results) -> Iterator[str]:
    """GiB of a step beside a dry run's."""
    rows = results.get("memory", {})
    if rows:
        yield "| step | device | images | GiB | predicted |"
        yield "|---|---|--:|--:|--:|"
    for key, row in rows.items():
        about = f"| {key.replace(' | ', ', ')} | {row['device']} | {row['batch']} |"
        yield f"{about} {row['gib']:.1f} | {row['predicted_gib']:.1f} |"


def views(results: Results) -> Iterator[str]:
    """Milliseconds for the views of a batch."""
    for key, row in results.get("views", {}).items():
        yield f"| views of {key.partition(' | ')[0]}, {row['device']} | ms |"
        yield "|---|--:|"
        yield from (f"| {name} | {ms:,.1f} |" for name, ms in row["ms"].items())
        if "off" in row:
            off = ", ".join(f"{name} {value:.1e}" for name, value in row["off"].items())
            yield f"\nThe largest difference of a pixel from the CPU's: {off}."


def parts_of_steps(results: Results) -> Iterator[str]:
    """Milliseconds of the parts of a step, and the share in which the device works."""
    columns = ("views", "networks", "teacher", "losses", "backward", "optimiser", "teacher's update")
    rows = results.get("parts", {})
    if rows:
        yield f"| step | device | ms | {' | '.join(columns)} | launches | at work |"
        yield f"|---|---|--:|{'--:|' * len(columns)}--:|--:|"
    for key, row in rows.items():
        cells = [f"{row['parts_ms'].get(name, 0):.1f}" for name in columns]
        busy = f"{row['busy_ms'] / row['step_ms']:.0%}" if "busy_ms" in row else ""
        about = f"| {key.replace(' | ', ', ')} | {row['device']} | {row['step_ms']:.1f} |"
        yield f"{about} {' | '.join(cells)} | {row.get('launches', '')} | {busy} |"


def dsa(results: Results) -> Iterator[str]:
    """Time and memory of DSA's terms."""
    rows = results.get("dsa", {})
    if rows:
        yield "| images a step | device | DSA, ms | GiB | of a step of ResNet-50 |"
        yield "|--:|---|--:|--:|--:|"
    for key, row in sorted(rows.items(), key=lambda item: int(item[0].split(" | ")[0])):
        share = f"{row['share']:.1%}" if "share" in row else ""
        yield f"| {key.split(' | ')[0]} | {row['device']} | {row['ms']:.1f} | {row['gib']:.2f} | {share} |"


def precision(results: Results) -> Iterator[str]:
    """Time and error by number format."""
    for key, row in results.get("precision", {}).items():
        formats = list(next(iter(row.values())))
        yield f"| {key.partition(' | ')[0]}, {row['device']} | {' | '.join(formats)} |"
        yield f"|---|{'--:|' * len(formats)}"
        for name, errors in row.items():
            if isinstance(errors, dict):
                yield f"| {name} | {' | '.join(str(errors.get(form, '')) for form in formats)} |"
        yield ""


def data(results: Results) -> Iterator[str]:
    """From files to views, and whole runs from files."""
    for key, row in results.get("data", {}).items():
        if "waiting" in row:
            yield (
                f"- {' on '.join(key.split(' | ')[:2])}, {row['device']}: {row['images_per_second']:,.0f} images/s, "
                + (f"of whose time {row['waiting']:.0%} is waiting for data")
            )
        else:
            ways = [f"{name} {row[name]:,.0f} images/s" for name in ("CPU workers", "nvJPEG") if name in row]
            yield f"- files into the crops of two views, {row['device']}: {', '.join(ways)}"


def nccl(results: Results) -> Iterator[str]:
    """Two devices against one."""
    for key, row in results.get("nccl", {}).items():
        rates = " and ".join(f"{rate:,.0f}" for rate in row["images_per_second"].values())
        about = f"- {key.partition(' | ')[0]}, {row['device']}"
        yield f"{about}: weights differ by {row['difference']:.1e} at most; {rates} images/s"
