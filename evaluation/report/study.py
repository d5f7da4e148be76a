"""A study's JSON as tables: those of the ranking study (recipes/benchmarks/ranking), of any other by its own names."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evaluation.report.cells import MISSING, Cell, Column, Table, dig, is_number, of_number, provenance

MOST_COLUMNS = 16  # of a table that a page can show
INTERVAL = {"value", "interval"}  # keys of a number with its interval
RANKING_STUDY = {"metrics": Mapping, "claims": list, "truth": Mapping}  # its parts that have tables of their own
TAU, REGRET = "weighted tau (Vigna)", "regret@1"
SAYS = {
    TAU: "scipy.stats.weightedtau with the accuracies after fine-tuning: 1 the same order, -1 the opposite",
    REGRET: "best accuracy less the accuracy of the first by score, in points of per cent: 0 is best",
}


def study_tables(study: Any, path: Path) -> list[Table]:
    """Return a table for each group of numbers, in the order of the file, after the ranking study's own tables."""
    about = provenance(study=path, date=dig(study, "date"))
    if not all(isinstance(dig(study, name), kind) for name, kind in RANKING_STUDY.items()):
        return list(_tables(study, (), about))
    own_tables = [_metrics(study, path), _claims(study, path), _truth(study, path)]
    rest = {name: value for name, value in study.items() if name not in RANKING_STUDY}
    return [table for table in own_tables if table.rows] + list(_tables(rest, (), about))


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
        headings = [Column("name")]
        for name in columns:
            values = [group[name] for group in rows.values() if group.get(name) is not None]
            headings.append(Column(name, number=all(is_number(value) or _has_interval(value) for value in values)))
        cells = [
            [Cell(name), *(_cell(group.get(column), (*where, name, column), about) for column in columns)]
            for name, group in rows.items()
        ]
        yield Table(caption, headings, cells)
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


def _by_name(node: Any) -> Mapping[str, Any]:
    """Return a list as a mapping by its members' names, else by position."""
    if isinstance(node, Mapping):
        return node
    if not isinstance(node, list):
        return {"value": node}
    names = [
        str(member["name"]) if isinstance(member, Mapping) and "name" in member else str(i)
        for i, member in enumerate(node, 1)
    ]
    return dict(zip(names if len(set(names)) == len(names) else map(str, range(1, len(node) + 1)), node, strict=True))


def _is_plain(value: Any) -> bool:
    """Return True for a value that fits in one cell."""
    if isinstance(value, list):
        return all(not isinstance(member, (list, Mapping)) for member in value) and len(value) <= MOST_COLUMNS
    return not isinstance(value, Mapping) or _has_interval(value)


def _has_interval(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) >= INTERVAL


def _cell(value: Any, path: tuple[str, ...], about: str) -> Cell:
    how = f"{provenance(quantity=' / '.join(path))}\n{about}"
    if value in (None, "", []):
        return MISSING
    if is_number(value):
        return Cell(f"{value:,}" if isinstance(value, int) else f"{value:.4g}", how, value)
    if _has_interval(value):
        rest = {name: member for name, member in value.items() if name not in INTERVAL and _is_plain(member)}
        if not is_number(value["value"]):
            return MISSING
        ends = value["interval"]
        shown = "" if not ends else f" ({ends[0]:.3g} to {ends[1]:.3g})"
        return Cell(f"{value['value']:.3g}{shown}", f"{how}\n{provenance(**rest)}".rstrip(), value["value"])
    return Cell(", ".join(map(str, value)) if isinstance(value, list) else str(value))


def _metrics(study: Mapping[str, Any], path: Any) -> Table:
    tasks = list(study["truth"])
    columns = [Column("metric"), Column("models", "scored in every task", True)]
    columns += [Column("weighted tau", f"{SAYS[TAU]}; mean over the tasks", True)]
    columns += [Column("regret@1", f"{SAYS[REGRET]}; mean over the tasks", True)]
    columns += [Column(task, f"weighted tau on {task}", True) for task in tasks]
    columns += [Column("ms a model", "of each score, extraction not counted, nothing shared", True)]
    rows = [_metric(name, row, study, path) for name, row in study["metrics"].items()]
    rows.sort(key=lambda row: -float(row[2].key) if is_number(row[2].key) else 2.0)
    caption = f"Transferability metrics against fine-tuning: {study.get('n_models')} models, {len(tasks)} tasks"
    return Table(caption, columns, rows)


def _metric(name: str, row: Mapping[str, Any], study: Mapping[str, Any], path: Any) -> list[Cell]:
    about = {"metric": name, "study": path, "seed": study.get("seed"), "date": study.get("date")}
    mean = provenance(interval="95 %, models drawn again", n=f"{study.get('n_tasks')} tasks", **about)
    by_task = []
    for task in study["truth"]:
        how = provenance(task=task, measure=f"{TAU}: {SAYS[TAU]}", interval="95 %, models drawn again", **about)
        by_task.append(_number(dig(row, "tasks", task, TAU), how))
    wall_time = provenance(quantity="mean wall time", **about)
    return [
        Cell(f"{name} (baseline)" if dig(row, "baseline") else name),
        of_number(
            dig(row, "models"), "{:g}", provenance(quantity="models that the metric scores in every task", **about)
        ),
        _number(dig(row, "mean", TAU), f"{provenance(measure=f'{TAU}: {SAYS[TAU]}')}\n{mean}"),
        _number(dig(row, "mean", REGRET), f"{provenance(measure=f'{REGRET}: {SAYS[REGRET]}')}\n{mean}", scale=100),
        *by_task,
        of_number(dig(row, "seconds_per_model"), "{:,.1f}", wall_time, scale=1000),
    ]


def _claims(study: Mapping[str, Any], path: Any) -> Table:
    tasks = list(study["truth"])
    columns = [Column("metric"), Column("against"), Column("claimed by")]
    columns += [Column("difference", "in mean weighted tau, paired over the models", True)]
    columns += [Column(task, f"difference on {task}", True) for task in tasks]
    columns += [Column("says", "conclusion from the interval of the difference")]
    rows = []
    for claim in study["claims"]:
        about = {"claimed_by": dig(claim, "claimed_by"), "study": path, "date": study.get("date")}
        about |= {"interval": "95 %, models drawn again, the same for both", "seed": study.get("seed")}
        of_tasks = [(task, dig(claim, "by_task", task)) for task in tasks]
        rows.append(
            [
                Cell(str(dig(claim, "metric"))),
                Cell(str(dig(claim, "against"))),
                Cell(str(dig(claim, "claimed_by"))),
                _number(dig(claim, "difference", TAU), provenance(quantity="mean over the tasks", **about), sign="+"),
                *(_number(difference, provenance(task=task, **about), sign="+") for task, difference in of_tasks),
                Cell(str(dig(claim, "verdict") or "")),
            ]
        )
    return Table("The papers' claims: one metric against another", columns, rows)


def _truth(study: Mapping[str, Any], path: Any) -> Table:
    truth, tasks = study["truth"], list(study["truth"])
    models = dict.fromkeys(model for column in truth.values() for model in column)
    about = {"quantity": "accuracy after fine-tuning all weights", "study": path, "date": study.get("date")}
    how = {task: provenance(task=task, **about) for task in tasks}
    rows = [
        [
            Cell(model),
            *(of_number(dig(truth, task, model), "{:.1f} %", how[task], scale=100) for task in tasks),
        ]
        for model in models
    ]
    columns = [Column("model"), *(Column(task, f"accuracy on {task} after fine-tuning", True) for task in tasks)]
    return Table("The ground truth: accuracy after fine-tuning all weights", columns, rows)


def _number(one: Any, how: str, *, scale: float = 1, sign: str = "") -> Cell:
    """Make a cell of a value with its interval. scale: 100 for points of per cent."""
    value, interval = dig(one, "value"), dig(one, "interval")
    if not is_number(value):
        return MISSING
    digits = 1 if scale == 100 else 2
    ends = "" if interval is None else " ({} to {})".format(*(f"{scale * end:{sign}.{digits}f}" for end in interval))
    how = f"{how}\n{provenance(models=dig(one, 'models'))}".rstrip()
    return Cell(f"{scale * value:{sign}.{digits}f}{ends}", how, value)
