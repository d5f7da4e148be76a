"""A study's JSON as tables, independent of its names: numbers by name, and groups of them as rows."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evaluation.report.cells import MISSING, Cell, Column, Table, dig, is_number, made
from evaluation.report.ranking_study import PARTS, is_ranking_study, ranking_study_tables

MOST_COLUMNS = 16
INTERVAL = {"value", "interval"}  # keys of a number with its interval


def study_tables(study: Any, path: Path) -> list[Table]:
    """Return a table for each group of numbers, in the order of the file, after the ranking study's own tables."""
    about = made(study=path, date=dig(study, "date"))
    if not is_ranking_study(study):
        return list(_tables(study, (), about))
    rest = {name: value for name, value in study.items() if name not in PARTS}
    return ranking_study_tables(study, path) + list(_tables(rest, (), about))


def _tables(node: Any, where: tuple[str, ...], about: str) -> Iterator[Table]:
    node = _by_name(node)
    plain = {name: value for name, value in node.items() if _is_plain(value)}
    groups = {name: _by_name(value) for name, value in node.items() if name not in plain}
    rows = {name: dict(_flat(group)) for name, group in groups.items()}
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    caption = " / ".join(where) or "the study"
    if plain:
        cells = [[Cell(name), _cell(value, (*where, name), about)] for name, value in plain.items()]
        yield Table(caption, [Column("quantity"), Column("value")], cells)
    alike = len(columns) <= min(MOST_COLUMNS, 1.5 * max(map(len, rows.values()), default=0))
    if len(rows) > 1 and alike:
        names = [Column("name"), *(_column(name, rows) for name in columns)]
        yield Table(caption, names, _rows(rows, columns, where, about))
    else:
        for name, group in groups.items():
            yield from _tables(group, (*where, name), about)


def _flat(group: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield plain values by their path below a group."""
    for name, value in group.items():
        if _is_plain(value):
            yield f"{path}{name}", value
        else:
            yield from _flat(_by_name(value), f"{path}{name} / ")


def _rows(
    rows: Mapping[str, Mapping[str, Any]], columns: list[str], where: tuple[str, ...], about: str
) -> list[list[Cell]]:
    return [
        [Cell(name), *(_cell(group.get(column), (*where, name, column), about) for column in columns)]
        for name, group in rows.items()
    ]


def _column(name: str, rows: Mapping[str, Mapping[str, Any]]) -> Column:
    values = [group[name] for group in rows.values() if group.get(name) is not None]
    return Column(name, number=all(is_number(value) or _has_interval(value) for value in values))


def _by_name(node: Any) -> Mapping[str, Any]:
    """Return a list as a mapping by its members' names, else by position."""
    if isinstance(node, Mapping):
        return node
    if not isinstance(node, list):
        return {"value": node}
    names = [
        str(one["name"]) if isinstance(one, Mapping) and "name" in one else str(i) for i, one in enumerate(node, 1)
    ]
    return dict(zip(names if len(set(names)) == len(names) else map(str, range(1, len(node) + 1)), node, strict=True))


def _is_plain(value: Any) -> bool:
    """Return True for a value that fits in one cell."""
    if isinstance(value, list):
        return all(not isinstance(one, (list, Mapping)) for one in value) and len(value) <= MOST_COLUMNS
    return not isinstance(value, Mapping) or _has_interval(value)


def _has_interval(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) >= INTERVAL


def _cell(value: Any, path: tuple[str, ...], about: str) -> Cell:
    how = f"{made(quantity=' / '.join(path))}\n{about}"
    if value in (None, "", []):
        return MISSING
    if is_number(value):
        return Cell(f"{value:,}" if isinstance(value, int) else f"{value:.4g}", how, value)
    if _has_interval(value):
        rest = {name: one for name, one in value.items() if name not in INTERVAL and _is_plain(one)}
        if not is_number(value["value"]):
            return MISSING
        ends = value["interval"]
        shown = "" if not ends else f" ({ends[0]:.3g} to {ends[1]:.3g})"
        return Cell(f"{value['value']:.3g}{shown}", f"{how}\n{made(**rest)}".rstrip(), value["value"])
    return Cell(", ".join(map(str, value)) if isinstance(value, list) else str(value))
