"""An entry beside the weights that its run started from, as `evaluate against=start` left it on its card."""

from collections.abc import Mapping
from typing import Any

from evaluation.judging.against import FIELD
from evaluation.report.cells import MISSING, Cell, Column, Table, dig, is_number, of_number, of_text, provenance
from evaluation.report.reading import Member
from sslkit.terminal.say import words

COLUMNS = ("before", "after", "difference, points", "p")


def gains_of(member: Member) -> Table | None:
    """Return the table of paired differences to the start; None of an entry that was not compared with it."""
    gains = dig(member.card, FIELD)
    rows = [gain for gain in gains if isinstance(gain, Mapping)] if isinstance(gains, list) else []
    if not rows:
        return None
    source = dig(member.card, "init", "source") or "its start"
    columns = [Column("measure"), *(Column(name, number=True) for name in COLUMNS)]
    return Table(f"{member.name}: beside {source}, on the same images", columns, [_row(member, gain) for gain in rows])


def _row(member: Member, gain: Mapping[str, Any]) -> list[Cell]:
    typed = {
        "checkpoint": member.folder,
        "against": "start",
        "data": gain.get("data"),
        "protocols": gain.get("protocol"),
    }
    n, ends = gain.get("n"), gain.get("interval")
    how = provenance(
        metric=gain.get("metric"),
        n=f"{n:,} images" if isinstance(n, int) else "",
        interval="95 %, paired over images; p after Holm over the rows of the card",
        command=f"python recipes/evaluate.py {words(typed)}",
    )
    is_known = isinstance(ends, list) and len(ends) == 2 and all(map(is_number, ends))
    shown = f" ({100 * ends[0]:+.1f} to {100 * ends[1]:+.1f})" if is_known else ""
    difference = gain.get("difference")
    of_difference = Cell(f"{100 * difference:+.1f}{shown}", how, difference) if is_number(difference) else MISSING
    values = [of_number(gain.get(name), "{:.1f}", how, scale=100) for name in ("before", "after")]
    measure = of_text(f"{gain.get('protocol')} on {gain.get('data')}")
    return [measure, *values, of_difference, of_number(gain.get("p"), "{:.2g}", how)]
