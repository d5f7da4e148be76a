"""Agreement of scores with the truth over several tasks, and paired differences between metrics.

Task = tuple[{model: accuracy}, {model: score}]
over_tasks([(truth, logme), ...])  # mean weighted tau of a metric over the tasks
difference([(truth, ped, logme), ...])  # agreement of the first less the second
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from evaluation.ranking.truth.agreement import MEASURES, Agreement, with_interval
from evaluation.results.choice import level_scores
from evaluation.results.statistics import generator
from sslkit.errors import UserError
from sslkit.options.members import nearest
from sslkit.runtime.context import Computing

TAU = "weighted tau (Vigna)"
Values = Mapping[str, float]


def over_tasks(
    tasks: Sequence[tuple[Values, Values]], measure: str = TAU, *, n: int = 1000, seed: int = Computing.seed
) -> Agreement:
    """Return the mean over tasks of a measure of agreement, with its interval over models.

    tasks: (truth, scores) of each, by the models' names; a model counts in a task if both are known.
    measure: of `evaluation.agreement.MEASURES`. n: draws of models with replacement, the same models in every task.
    Tasks are fixed: the interval covers other models, not other tasks. `agreement` says when there is none.
    nan if a task has no value (fewer than two models, all scores equal). Raises UserError for an unknown measure.
    """
    return _estimate(measure, tasks, lambda values: values[0], n, seed)


def difference(
    tasks: Sequence[tuple[Values, Values, Values]], measure: str = TAU, *, n: int = 1000, seed: int = Computing.seed
) -> Agreement:
    """Return the mean over tasks of a metric's agreement less another's, paired on the same draws of models.

    tasks: (truth, scores, other scores) of each; a model counts if all three are known. Else as in `over_tasks`.
    """
    return _estimate(measure, tasks, lambda values: values[0] - values[1], n, seed)


def _estimate(
    name: str, tasks: Sequence[Sequence[Values]], combine: Callable[[list[float]], float], n: int, seed: int
) -> Agreement:
    if name not in MEASURES:
        raise UserError(f"there is no measure of agreement {name!r}: {nearest(name, MEASURES)}")
    if not tasks:
        raise UserError("agreement over tasks needs at least one task")
    models = sorted({model for columns in tasks for model in set.intersection(*map(set, columns))})
    tables = [_table(task, models) for task in tasks]

    def mean(rows: np.ndarray) -> float:
        return float(np.mean([combine(_values(MEASURES[name], table, rows)) for table in tables]))

    draws = generator(seed, "agreement").integers(max(len(models), 1), size=(n, len(models)))
    return with_interval(name, mean(np.arange(len(models))), mean, draws)


def _table(task: Sequence[Values], models: Sequence[str]) -> np.ndarray:
    """Return truth and scores (1 + K, M), nan for models where one of them is unknown."""
    table = np.array([[column.get(model, np.nan) for model in models] for column in task], dtype=float)
    table[:, ~np.isfinite(table).all(0)] = np.nan
    return np.array([level_scores(column) for column in table])


def _values(measure: Callable[..., float], table: np.ndarray, rows: np.ndarray) -> list[float]:
    """Return the measure of each of K scores on the drawn models; nan for fewer than two known ones."""
    rows = rows[np.isfinite(table[0, rows])]
    if len(rows) < 2:
        return [float("nan")] * (len(table) - 1)
    truth, *scores = table[:, rows]
    return [measure(truth, column, rows) for column in scores]
