"""Which combination of metrics ranks best on tasks that took no part in choosing it, and are its probabilities right?

    python recipes/benchmarks/ranking/run.py study ...        (scores and ground truth; see the page)
    python recipes/benchmarks/ranking/run.py consensus        (ten minutes; reads results/study.json)

Every rule is fitted on all tasks but one and ranks the models of that one; "chosen" takes, for each task that is left
out, the rule that is best by leave-one-out among the others. The table of unseen models does the same with fits that
have not seen the ranked model either. Numbers are means over the tasks; intervals are over models.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import cli
import numpy as np
import results
from ranking.calibration import agreements, calibration, further, ranges, spread
from ranking.plot import draw
from ranking.rules import FIRST_STUDY, FITTED, Task, best_rule, chosen, common, left_out, rules, single, unseen

from evaluation.ranking.checks import METRICS
from evaluation.ranking.truth.agreement import Agreement
from evaluation.ranking.truth.paired_agreement import TAU, difference, over_tasks
from sslkit.terminal.tables import markdown

RESULTS = "ranking/consensus"
STUDY, FIRST = (results.path_of(f"ranking/{name}") for name in ("study", "first_study"))
AGAINST = ("knn", "h_score", "logme", "ped+logme", "itm")
TABLES = ("rules", "differences in weighted tau", "unseen models", "chosen on the others")
SHOWN = (TAU, "regret@1", "recall@3")


def read(path: Path) -> tuple[list[Task], list[str]]:
    """The tasks of a ranking study, and the names of those left out because kNN has no score on them.

    Metrics that lack a model on any of the tasks take no part.
    """
    study = json.loads(path.read_text())
    knn = study["metrics"].get("knn", {"scores": {}})["scores"]
    kept = {name: truth for name, truth in study["truth"].items() if knn.get(name) or not knn}
    whole = {
        metric: row["scores"]
        for metric, row in study["metrics"].items()
        if all(set(row["scores"].get(task, ())) == set(truth) for task, truth in kept.items())
    }
    tasks = []
    for name, truth in kept.items():
        columns = {metric: np.array([own[name][model] for model in truth]) for metric, own in whole.items()}
        reliability = {metric: study["metrics"][metric].get("reliability", {}).get(name) or 0.0 for metric in whole}
        accuracies = np.array(list(truth.values()))
        tasks.append(
            Task(name, tuple(truth), accuracies, columns, covariates(study.get("models", {}), truth), reliability)
        )
    return tasks, [name for name in study["truth"] if name not in kept]


def covariates(models: Mapping[str, Mapping], names: Iterable[str]) -> np.ndarray | None:
    """Return (M, P): logarithms of parameters and width, one column each family and kind of training; standardised.

    None if the study does not have them.
    """
    known = [models.get(name, {}) for name in names]
    if any("family" not in one for one in known):
        return None
    numbers = [[np.log(one["parameters"]), np.log(one["width"])] for one in known]
    kinds = [[one["family"] for one in known], [one["trained"] for one in known]]
    columns = [np.array(numbers), *(np.array(kind)[:, None] == np.unique(kind) for kind in kinds)]
    x = np.concatenate(columns, 1).astype(float)
    x -= x.mean(0)
    spread = x.std(0)
    return x[:, spread > 0] / spread[spread > 0]


def ranked_by_rules(tasks: Sequence[Task]) -> dict[str, list[tuple[Task, np.ndarray]]]:
    """Each task with its scores, by every rule fitted on the others, and by the one chosen on them."""
    return {"chosen": left_out(tasks, chosen)} | {name: left_out(tasks, rule) for name, rule in rules(tasks).items()}


def rows(tasks: Sequence[Task], draws: int) -> list[list[str]]:
    """The table: rules on tasks that they were not fitted on, single metrics, and differences to the first of these."""
    found = ranked_by_rules(tasks)
    found |= {f"{name} alone": left_out(tasks, single(name)) for name in AGAINST if name in common(tasks)}
    return _compared(found, tasks, draws)


def rows_of_unseen(tasks: Sequence[Task], draws: int) -> list[list[str]]:
    """The table of the fitted rules, and of the chosen one, on models that took no part in the fits."""
    known = {"chosen": chosen} | {name: rule for name, rule in rules(tasks).items() if name in FITTED}
    return _compared({name: unseen(tasks, rule) for name, rule in known.items()}, tasks, draws)


def _compared(found: Mapping[str, list[tuple[Task, np.ndarray]]], tasks: Sequence[Task], draws: int) -> list[list[str]]:
    """A row for each way to rank: agreement with the truth, and differences to the first single metric's."""
    reference = next((name for name in AGAINST if name in common(tasks)), None)
    base = {task.name: task.scores[reference] for task in tasks}
    table = [["rule", *SHOWN, f"tau minus {reference}'s", f"regret minus {reference}'s"]]
    for name, ranked in found.items():
        pairs = _named(ranked)
        cells = [_cell(over_tasks(pairs, measure, n=draws), measure) for measure in SHOWN]
        paired = [(*pair, task.named(base[task.name])) for pair, (task, _) in zip(pairs, ranked, strict=True)]
        cells += [_cell(difference(paired, measure, n=draws), measure) for measure in SHOWN[:2]]
        table.append([name, *cells])
    return table


def defaults(others: Sequence[Sequence[str]], unseen_models: Sequence[Sequence[str]]) -> list[str]:
    """The metrics of rank.py by the study's rule: kNN, unless a combination is above it by its whole interval.

    others, unseen_models: the tables of rules on other tasks, and on models that took no part in the fits.
    """

    def is_above(table: Sequence[Sequence[str]], rule: str) -> bool:
        lowest = {row[0]: row[4].partition("(")[2].partition(" ")[0] for row in table[1:]}
        return bool(lowest.get(rule)) and float(lowest[rule]) > 0  # no interval for few models

    if is_above(others, ", ".join(FIRST_STUDY)):
        return [*FIRST_STUDY]
    return ["chosen"] if is_above(others, "chosen") and is_above(unseen_models, "chosen") else ["knn"]


def against(tasks: Sequence[Task], draws: int) -> list[list[str]]:
    """The table of paired differences in weighted tau: each rule less each single metric."""
    singles = [name for name in AGAINST if name in common(tasks)]
    table = [["rule, less", *singles]]
    for name, ranked in ranked_by_rules(tasks).items():
        cells = []
        for metric in singles:
            paired = [
                (*pair, task.named(task.scores[metric])) for pair, (task, _) in zip(_named(ranked), ranked, strict=True)
            ]
            cells.append(_cell(difference(paired, TAU, n=draws), TAU, "+"))
        table.append([name, *cells])
    return table


def _named(ranked: Sequence[tuple[Task, np.ndarray]]) -> list[tuple[dict[str, float], dict[str, float]]]:
    return [(task.named(task.truth), task.named(scores)) for task, scores in ranked]


def _cell(found: Agreement, measure: str, sign: str = "") -> str:
    scale = 100 if measure == "regret@1" else 1
    bounds = "" if found.interval is None else " ({:.2f} to {:.2f})".format(*(scale * end for end in found.interval))
    return f"{scale * found.value:{sign}.2f}{bounds}"


def by_rules(tasks: Sequence[Task], draws: int) -> dict[str, Any]:
    """The tables of the rules, printed, and the rule that is chosen for each task on the others."""
    tables = {
        "rules": rows(tasks, draws),
        "differences in weighted tau": against(tasks, draws),
        "unseen models": rows_of_unseen(tasks, draws),
    }
    for table in tables.values():
        print(markdown(table, range(1, len(table[0]))), end="\n\n")
    picked = {task.name: best_rule([other for other in tasks if other is not task]) for task in tasks}
    for name, rule in picked.items():
        print(f"{name}: chosen on the others: {rule}")
    return {**tables, "chosen on the others": picked}


def _read(cell: str, tasks: Sequence[Task]) -> Agreement:
    """The agreement in a cell of a table."""
    value, *ends = map(float, re.findall(r"-?\d+\.\d+", cell))
    return Agreement(TAU, value, tuple(ends), len(tasks[0].models))


def main() -> None:
    parser = cli.parser(__doc__)
    parser.add_argument("--study", type=Path, default=STUDY, help="results of the ranking study")
    parser.add_argument(
        "--metrics", nargs="+", default=METRICS, help="of the consensus whose probabilities are checked"
    )
    parser.add_argument("--also", type=Path, nargs="*", default=[FIRST], help="further studies, for its probabilities")
    parser.add_argument("--draws", type=int, default=1000, help="bootstrap draws of models")
    parser.add_argument("--out", type=Path, default=STUDY.with_name("consensus.json"))
    parser.add_argument("--picture", type=Path, default=STUDY.with_name("consensus.png"))
    parser.add_argument(
        "--probabilities", action="store_true", help="only those of --metrics; the tables in --out stay"
    )
    args = parser.parse_args()
    tasks, left_out_tasks = read(args.study)
    for name in left_out_tasks:
        print(f"left out  {name}: kNN has no score there, as of several labels an image")
    tables = json.loads(args.out.read_text()) if args.probabilities else by_rules(tasks, args.draws)
    tables = {name: tables[name] for name in TABLES}
    known = common(tasks)
    if missing := [name for name in args.metrics if name not in known]:
        parser.error(f"--metrics: {', '.join(missing)} not among those of every model and task: {', '.join(known)}")
    known = args.metrics
    everything = tasks + [task for path in args.also for task in further(path, known)]
    checked = calibration(everything, known)
    print(f"\nthe consensus of {', '.join(known)}; means over all tasks: {ranges(everything, known)}")
    print(markdown(checked, range(1, len(checked[0]))))
    of_rules = {row[0]: _read(row[1], tasks) for row in tables["rules"][1:] if not row[0].endswith(" alone")}
    draw(json.loads(args.study.read_text()), of_rules, checked[1 : len(tasks) + 1], args.picture)
    found = {**tables, "consensus of": known, "calibration": checked}
    results.write(args.out, {**results.about(), "draws": args.draws, **found})
    if args.study == STUDY:
        measured = {name: round(value, 3) for name, value in agreements(tasks, args.also).items()}
        results.keep_constant("evaluation.ranking.consensus:AGREEMENT", measured, RESULTS)
        results.keep_constant("evaluation.ranking.consensus:SPREAD", round(spread(everything), 3), RESULTS)
        results.keep_constant(
            "evaluation.ranking.checks:METRICS", defaults(tables["rules"], tables["unseen models"]), RESULTS
        )
    print(f"written   {args.out}, {args.picture}")
