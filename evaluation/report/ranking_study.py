"""The tables of the ranking study (recipes/benchmarks/ranking): metrics, claims, measured accuracies."""

from collections.abc import Mapping
from typing import Any

from evaluation.report.cells import MISSING, Cell, Column, Table, dig, is_number, made, of_number

TAU, REGRET = "weighted tau (Vigna)", "regret@1"
PARTS = ("metrics", "claims", "truth")  # parts of the file in these tables
SAYS = {TAU: "scipy.stats.weightedtau with the accuracies after fine-tuning: 1 the same order, -1 the opposite"}
SAYS[REGRET] = "best accuracy less the accuracy of the first by score, in points of per cent: 0 is best"


def is_ranking_study(study: Any) -> bool:
    return all(isinstance(dig(study, part), kind) for part, kind in zip(PARTS, (Mapping, list, Mapping), strict=True))


def ranking_study_tables(study: Mapping[str, Any], path: Any) -> list[Table]:
    """Make the tables. study: the parsed file. path: of the file, shown as the origin of the numbers."""
    tables = [_metrics(study, path), _claims(study, path), _truth(study, path)]
    return [table for table in tables if table.rows]


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
    mean = made(interval="95 %, models drawn again", n=f"{study.get('n_tasks')} tasks", **about)
    seconds = dig(row, "seconds_per_model")
    shown = f"{name} (baseline)" if dig(row, "baseline") else name
    by_task = []
    for task in study["truth"]:
        how = made(task=task, measure=f"{TAU}: {SAYS[TAU]}", interval="95 %, models drawn again", **about)
        by_task.append(_number(dig(row, "tasks", task, TAU), how))
    return [
        Cell(shown),
        of_number(dig(row, "models"), "{:g}", made(quantity="models that the metric scores in every task", **about)),
        _number(dig(row, "mean", TAU), f"{made(measure=f'{TAU}: {SAYS[TAU]}')}\n{mean}"),
        _number(dig(row, "mean", REGRET), f"{made(measure=f'{REGRET}: {SAYS[REGRET]}')}\n{mean}", scale=100),
        *by_task,
        of_number(None if seconds is None else 1000 * seconds, "{:,.1f}", made(quantity="mean wall time", **about)),
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
                _number(dig(claim, "difference", TAU), made(quantity="mean over the tasks", **about), sign="+"),
                *(_number(one, made(task=task, **about), sign="+") for task, one in of_tasks),
                Cell(str(dig(claim, "verdict") or "")),
            ]
        )
    return Table("The papers' claims: one metric against another", columns, rows)


def _truth(study: Mapping[str, Any], path: Any) -> Table:
    tasks = list(study["truth"])
    models = dict.fromkeys(model for column in study["truth"].values() for model in column)
    about = {"quantity": "accuracy after fine-tuning all weights", "study": path, "date": study.get("date")}
    rows = []
    for model in models:
        values = [dig(study, "truth", task, model) for task in tasks]
        percent = [None if value is None else 100 * value for value in values]
        cells = [
            of_number(value, "{:.1f} %", made(task=task, **about)) for task, value in zip(tasks, percent, strict=True)
        ]
        rows.append([Cell(model), *cells])
    columns = [Column("model"), *(Column(task, f"accuracy on {task} after fine-tuning", True) for task in tasks)]
    return Table("The ground truth: accuracy after fine-tuning all weights", columns, rows)


def _number(one: Any, how: str, *, scale: float = 1, sign: str = "") -> Cell:
    """Make a cell of a value with its interval. scale: 100 for points of per cent."""
    value, interval = dig(one, "value"), dig(one, "interval")
    if not is_number(value):
        return MISSING
    digits = 1 if scale == 100 else 2
    ends = "" if interval is None else " ({} to {})".format(*(f"{scale * end:{sign}.{digits}f}" for end in interval))
    models = dig(one, "models")
    how = f"{how}\n{made(models=models)}".rstrip()
    return Cell(f"{scale * value:{sign}.{digits}f}{ends}", how, value)
