"""Terminal output of an evaluation: a line for each protocol as it goes, one table, and what differs."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from evaluation import protocols as family
from evaluation.datasets import Reading
from evaluation.features.extraction import check
from evaluation.features.nulls import check_nulls, nulls_of
from evaluation.features.using import use_it
from evaluation.features.zoo_members import Members, lines_of, unlike_sizes
from evaluation.features.zoo_members import members as members_of
from evaluation.judging.following import following
from evaluation.judging.run import Evaluation, Shared, check_fits, complete_tasks, make_tasks, prepare
from evaluation.protocols.base import Judged, Task
from evaluation.results import OUT, store
from evaluation.results.bars import plot_results
from evaluation.results.decisions import by_chance, decide, deciding
from evaluation.results.result import Result
from evaluation.results.tables import table
from evaluation.tuning.processes import process_group
from sslkit.backbones.words import is_untrained
from sslkit.decision import LABEL, NULLS
from sslkit.errors import UserError
from sslkit.models.loading import Loading
from sslkit.models.model import Model
from sslkit.options import members
from sslkit.options.calls import by_keywords
from sslkit.runtime.context import Runtime
from sslkit.runtime.distributed import rank, world_size
from sslkit.terminal import say
from sslkit.terminal.say import counted

MOST_TESTS = 6  # of the first model, that are printed: with more the decision itself cannot be seen
QUICK = ("linear", "knn", "view_retrieval")  # protocols by which nulls are judged: in seconds


@by_keywords
def evaluate_models(
    checkpoint: Any,
    zoo: Any,
    data: Any,
    protocols: Any,
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    out: str | Path = OUT,
    pictures: bool = False,
    nulls: Sequence[str] = NULLS,
    loading: Loading,
    reading: Reading,
    runtime: Runtime,
) -> list[Result]:
    """Evaluate one model or several and print the table; `recipes/evaluate.py` calls it.

    checkpoint: a model or a list, see `sslkit.load`; or zoo: see `evaluation.rank`. Others: see `evaluate`.
    nulls: of `sslkit.decision.NULLS`, which are judged beside the models by the protocol that decides.
    Under torchrun rank 0 speaks and writes.
    Returns the results of all. An entry of `zoo` that is damaged, or for which a protocol fails, is left out and named.
    Raises UserError before anything is computed, and where no model is left.
    """
    check_nulls(nulls)
    shared: Shared = {}
    tasks = make_tasks(data, protocols, options, reading, shared)
    arguments = {**vars(loading), **vars(reading), **vars(runtime), "out": out}
    runtime = replace(runtime, out=out)
    check(runtime)
    with process_group(runtime) as process:
        if world_size() > 1:
            runtime = replace(runtime, device=str(process.device))  # of this process
        fits = partial(check_fits, tasks=tasks)
        asked = open_models(checkpoint, zoo, loading, check=fits)
        tasks = complete_tasks([candidate.model for candidate in asked.values()], tasks)
        done = _evaluate_each(asked, tasks, pictures, reading, runtime, shared)
        controls = _evaluate_nulls(asked, nulls, tasks, reading, runtime, shared)
        if rank() == 0:
            best = _conclude(list(done.values()), controls, tasks, arguments, pictures)
            print_left_out(done.left_out)
            for told in use_it(best.asked, best.model, loading.image_size, loading.trust) if best else ():
                say.line(told)
            request = {"data": data, "protocols": protocols}
            _print_following(list(done.values()), tasks, request, arguments)
    return [result for member in done.values() for result in member.results]


def evaluate_by_protocol(protocol: str, /, checkpoint: Any, zoo: Any, data: Any, **words: Any) -> list[Result]:
    """Call `evaluate_models` with one protocol. words: its options and the other arguments, as on a command line."""
    declared = members.options(family.find(protocol).Options)
    options = {name: words.pop(name) for name in declared if name in words}
    return evaluate_models(
        checkpoint, zoo, data, [protocol], options={family.key(protocol): options}, nulls=(), **words
    )


def _evaluate_each(
    asked: "Members[Opened]",
    tasks: Sequence[Task],
    pictures: bool,
    reading: Reading,
    runtime: Runtime,
    shared: Shared,
) -> Members[Judged]:
    """Open the tasks of every model, then run them. shared: what is open of the data. Raises UserError."""
    ready = asked.of_each(
        lambda _, candidate: prepare(candidate.model, tasks, reading, runtime, tell=_tell, shared=shared)
    )

    def evaluate_member(name: str, evaluation: Evaluation) -> Judged:
        candidate = asked[name]
        _tell("model", describe_model(candidate.model))
        return Judged(candidate.asked, candidate.model, evaluation.folder, evaluation.run(pictures))

    return ready.of_each(evaluate_member)


def _evaluate_nulls(
    asked: "Members[Opened]",
    nulls: Sequence[str],
    tasks: Sequence[Task],
    reading: Reading,
    runtime: Runtime,
    shared: Shared,
) -> list[Result]:
    """The results of the nulls by the quick ones of the protocols that decide."""
    decides = deciding((str(task.source), task.name) for task in tasks)
    decisive = [task for task in tasks if task.name in QUICK and (str(task.source), task.name) in decides]
    if not decisive or not nulls:
        return []
    controls = nulls_of([candidate.model for candidate in asked.values()], nulls)
    results = []
    for control in controls:
        without = "; nulls=[pixels] leaves it out" if is_untrained(control.name) else ""
        _tell("control", f"{describe_model(control)}{without}")
        results += prepare(control, decisive, reading, runtime, tell=_stay_silent, shared=shared).run()
    return results


def _conclude(
    done: list[Judged],
    controls: list[Result],
    tasks: Sequence[Task],
    arguments: Mapping[str, Any],
    pictures: bool,
) -> Judged | None:
    """Print the table, the decision, and where the results are. Return the model to take, where one is named."""
    names = _names_apart(done)
    results = [
        replace(result, model=name) for name, member in zip(names, done, strict=True) for result in member.results
    ]
    results += controls
    say.lines(f"\n{table(list_rows(results))}\n")
    best = dict(zip(names, done, strict=True)).get(print_differences(results))
    for name in dict.fromkeys(task.name for task in tasks):
        key = family.key(name)
        alone = [
            replace(member, results=[result for result in member.results if result.protocol == key]) for member in done
        ]
        for line in family.find(name).terminal.remarks(alone):
            say.line(line)
    if told := unlike_sizes({member.model.name: member.model.image_size for member in done}):
        say.line(f"note      {told}")
    if len(done) > 1 and pictures:
        path = Path(arguments["out"]) / "comparison.png"
        plot_results(results, path)
        say.line(f"picture   {path}")
    folders = dict.fromkeys(str(member.folder / store.RESULTS) for member in done)
    say.line(f"results   {', '.join(folders)}" + ("; pictures beside them" if pictures else ""))
    return best


def _names_apart(done: Sequence[Judged]) -> list[str]:
    """The name of each model, the folder in the place of one that two models have."""
    times = Counter(member.model.name for member in done)
    return [member.model.name if times[member.model.name] == 1 else str(member.folder) for member in done]


def _print_following(
    done: Sequence[Judged], tasks: Sequence[Task], asked: Mapping[str, Any], arguments: Mapping[str, Any]
) -> None:
    """Print the next command: that of the only task, or that of evaluate.py; where it is "", nothing."""
    told = family.find(tasks[0].name).terminal.following(done, tasks[0], arguments) if len(tasks) == 1 else None
    told = following(done, tasks, asked, arguments) if told is None else told
    if told:
        say.line(f"next      {told}")


def list_rows(results: list[Result]) -> list[Result]:
    """The rows of the table and of the page: each result, and the numbers that its protocol puts beside it.

    The model's name is left out where there is only one.
    """
    rows = []
    for result in results:
        protocol = family.find_known(result.protocol)
        beside = protocol.beside(result) if protocol else ()
        others = (replace(result, metric=name, others={}, **asdict(result.others[name])) for name in beside)
        rows += [result, *others]
    several = len({result.model for result in results}) > 1
    return rows if several else [replace(row, model="") for row in rows]


@dataclass(frozen=True)
class Opened:
    """A model and what it was asked for by: a zoo entry, or the word of a command line."""

    asked: Any
    model: Model


def open_models(
    checkpoint: Any,
    zoo: Any,
    loading: Loading,
    *,
    check: Callable[[Model], None] = lambda model: None,
) -> Members[Opened]:
    """Open every model that is asked for, before anything is computed; entries of a zoo that are damaged are left out.

    check: what a model must pass. Those that are left out are printed.
    Raises UserError for a checkpoint that cannot be opened, and where no model is left.
    """

    def open_one(_: str, asked: Any) -> Opened:
        model = loading.load(asked)
        check(model)
        return Opened(asked, model)

    models = choose_models(checkpoint, zoo).of_each(open_one)
    print_left_out(models.left_out)
    return models


def print_left_out(left_out: Mapping[str, str]) -> None:
    """A line for each member of the zoo that was left out."""
    if rank() == 0:
        for told in lines_of(left_out):
            say.line(told)


def choose_models(checkpoint: Any, zoo: Any) -> Members[Any]:
    """The models that are meant, those of a zoo by name. Raises UserError if none or both are named."""
    if (checkpoint is None) == (zoo is None):
        raise UserError(
            "name what to evaluate: checkpoint=runs/zoo/NAME (or a list), or zoo=runs/zoo for all its entries"
        )
    if zoo is not None:
        return members_of(zoo)
    checkpoints = list(checkpoint) if isinstance(checkpoint, (list, tuple)) else [checkpoint]
    if not checkpoints:
        raise UserError("checkpoint=[] names no model")
    return Members({str(number): name for number, name in enumerate(checkpoints)})


def describe_model(model: Model) -> str:
    size = sum(p.numel() for p in model.net.parameters()) / 1e6
    return f"{model.name}: {size:.2f} M parameters, {model.width} features, {model.item.about} of {model.image_size} px"


def group_comparable(results: list[Result]) -> list[list[Result]]:
    """Results of one protocol on the same images or episodes, two or more, of which the differences can be told.

    Those of mean_per_class need the labels: `evaluation.compare(a, b, labels=...)`.
    """
    groups: dict[tuple, list[Result]] = {}
    for result in results:
        if result.outcomes is not None and result.metric != "mean_per_class":
            groups.setdefault((result.protocol, result.data, result.metric, result.paired_on), []).append(result)
    return [group for group in groups.values() if len(group) > 1]


def is_per_class(result: Result) -> bool:
    """Return True for a mean over classes of images, whose differences between models need the labels."""
    return result.metric == "mean_per_class" and result.outcomes is not None


def print_differences(results: list[Result]) -> str:
    """Print the decision of each protocol and data set, and the tests of its first model; see `group_comparable`.

    Return the model that the decisions say to take, "" without any and where data sets have different ones.
    """
    pairs = group_comparable(results)
    per_class = Counter(result.data for result in {(r.data, r.model): r for r in results if is_per_class(r)}.values())
    for name in sorted(name for name, models in per_class.items() if models > 1):
        say.line(f"{name}: differences of mean_per_class need the labels: evaluation.compare(a, b, labels=...)")
    decides = deciding((group[0].data, group[0].protocol) for group in pairs)
    best, tested = set(), []
    for group in pairs:
        data, protocol = group[0].data, group[0].protocol
        decision, comparisons = decide(group, (data, protocol) in decides)
        tested.append(comparisons)
        say.line(f"{LABEL}{protocol} on {data}, {group[0].metric}: {decision}")
        best |= {decision.taken} if decision.decides else set()
        tests = [test.verdict for test in comparisons if decision.first.name in (test.a, test.b)]
        for told in tests[:MOST_TESTS]:
            say.line(f"  {told}")
        if len(tests) > MOST_TESTS:
            say.line(f"  and {counted(len(tests) - MOST_TESTS, 'test')} more: evaluation.decide(results)")
    if told := by_chance(tested):
        say.line(told)
    if pairs:
        say.line("")
    return best.pop() if len(best) == 1 else ""


def _stay_silent(label: str, text: str) -> None:
    """Print nothing: the lines on the data were printed for the models."""


def _tell(label: str, text: str) -> None:
    """Print a line with its label, on rank 0 alone."""
    if rank() == 0:
        say.line(f"{label:<10}{text}")
