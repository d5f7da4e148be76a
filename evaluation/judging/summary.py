"""Terminal output of an evaluation: a line for each protocol as it goes, one table, and what differs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from evaluation import protocols as family
from evaluation.features.models import LoadedModel, load_model
from evaluation.features.plots import plot_results
from evaluation.features.zoo_members import Members, entries_of, lines_of, some_left
from evaluation.judging.run import Evaluation, prepared, results_folder
from evaluation.results import store
from evaluation.results.comparison import compare_all
from evaluation.results.result import Result
from evaluation.results.tables import table
from sslkit import say
from sslkit.distributed import rank
from sslkit.errors import UserError


def judge(
    checkpoint: Any = None,
    zoo: str | Path | None = None,
    data: Any = None,
    protocols: Any = None,
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    image_size: int | None = None,
    out: str | Path = "runs/evaluation",
    trust: str | Sequence[str] | None = (),
    **how: Any,
) -> list[Result]:
    """Evaluate one model or several and print the table; `recipes/evaluate.py` calls it.

    checkpoint: a model or a list, see `evaluation.load_model`; or zoo: a folder of entries. The others: see `evaluate`.
    Returns the results of all. An entry of `zoo` that is damaged, or for which a protocol fails, is left out and named.
    Raises UserError before anything is computed, and where no model is left.
    """
    pictures = how.pop("pictures", False)
    asked = opened(checkpoint, zoo, image_size=image_size, trust=trust)
    ready = asked.of_each(lambda _, one: prepared(one.model, data, protocols, options=options, out=out, **how))

    def judged(name: str, evaluation: Evaluation) -> list[Result]:
        say.line(f"model     {described(asked[name].model)}")
        return evaluation.run(pictures, _line)

    done = ready.of_each(judged)
    models, results = [asked[name].model for name in done], [result for each in done.values() for result in each]
    say.line(f"\n{table(shown(results))}\n")
    print_differences(results)
    if len(models) > 1 and pictures:
        plot_results(results, Path(out) / "comparison.png")
        say.line(f"picture   {Path(out) / 'comparison.png'}")
    folders = dict.fromkeys(str(results_folder(model, out) / store.RESULTS) for model in models)
    say.line(f"results   {', '.join(folders)}" + ("; pictures beside them" if pictures else ""))
    print_left_out(done.left_out)
    say.line(f"next      {hint(models)}")
    return results


def shown(results: list[Result]) -> list[Result]:
    """The rows of the table and of the page: each result, and the numbers that its protocol puts beside it.

    The model's name is left out where there is only one.
    """
    rows = []
    for result in results:
        known = result.protocol in family.names()  # a file of results may come from another version
        beside = family.find(result.protocol).beside(result) if known else ()
        rows += [result, *(replace(result, metric=name, **asdict(result.others[name])) for name in beside)]
    several = len({result.model for result in results}) > 1
    return rows if several else [replace(row, model="") for row in rows]


@dataclass(frozen=True)
class Opened:
    """A model and what it was asked for by: a zoo entry, or the word of a command line."""

    asked: Any
    model: LoadedModel


def opened(
    checkpoint: Any,
    zoo: str | Path | None,
    *,
    image_size: int | None = None,
    trust: str | Sequence[str] | None = (),
    check: Callable[[LoadedModel], None] = lambda model: None,
) -> Members[Opened]:
    """Open every model that is asked for, before anything is computed; entries of a zoo that are damaged are left out.

    trust: see `evaluation.load_model`. check: what a model must pass. Those that are left out are printed.
    Raises UserError for a checkpoint that cannot be opened, and where no model is left.
    """

    def open_one(_: str, one: Any) -> Opened:
        model = load_model(one, image_size=image_size, trust=trust)
        check(model)
        return Opened(one, model)

    found = chosen(checkpoint, zoo).of_each(open_one)
    print_left_out(found.left_out)
    return found


def print_left_out(left_out: Mapping[str, str]) -> None:
    """A line for each member of the zoo that was left out."""
    if rank() == 0:
        for told in lines_of(left_out):
            say.line(told)


def chosen(checkpoint: Any, zoo: str | Path | None) -> Members[Any]:
    """The models that are meant, those of a zoo by name. Raises UserError if none or both are named."""
    if (checkpoint is None) == (zoo is None):
        raise UserError("name what to judge: checkpoint=runs/zoo/NAME (or a list), or zoo=runs/zoo for all its entries")
    if zoo is not None:
        entries = entries_of(zoo)
        if not entries and not entries.left_out:
            raise UserError(f"there is no finished entry in {zoo}; recipes/train.py makes one")
        return some_left(entries)
    given = list(checkpoint) if isinstance(checkpoint, (list, tuple)) else [checkpoint]
    if not given:
        raise UserError("checkpoint=[] names no model")
    return Members({str(place): one for place, one in enumerate(given)})


def described(model: LoadedModel) -> str:
    size = sum(p.numel() for p in model.net.parameters()) / 1e6
    seen = "images" if model.frames is None else f"clips of {model.frames} frames"
    return f"{model.name}: {size:.2f} M parameters, {model.width} features, {seen} of {model.image_size} px"


def paired(results: list[Result]) -> list[list[Result]]:
    """Results of one protocol on the same images or episodes, two or more, of which the differences can be told.

    Those of mean_per_class need the labels: `evaluation.compare(a, b, labels=...)`.
    """
    groups: dict[tuple, list[Result]] = {}
    for result in results:
        if result.outcomes is not None and result.metric != "mean_per_class":
            groups.setdefault((result.protocol, result.data, result.metric, result.paired_on), []).append(result)
    return [found for found in groups.values() if len(found) > 1]


def print_differences(results: list[Result]) -> None:
    """The verdict on every two models, a block for each protocol and data set; see `paired`."""
    pairs = paired(results)
    for name in sorted({result.data for result in results if result.metric == "mean_per_class"}):
        say.line(f"{name}: differences of mean_per_class need the labels: evaluation.compare(a, b, labels=...)")
    for found in pairs:
        say.line(f"{found[0].protocol} on {found[0].data}, {found[0].metric}")
        for comparison in compare_all(found):
            say.line(f"  {comparison.verdict}")
    if pairs:
        say.line("")


def hint(models: list[LoadedModel]) -> str:
    """The next command to type."""
    name = models[0].entry.folder if models[0].entry else models[0].name
    if len(models) == 1 and name != "efficientnet_lite0":
        return f"python recipes/evaluate.py checkpoint=[{name},efficientnet_lite0]   # beside an ImageNet network"
    return f"python recipes/evaluate.py checkpoint={name} data=PATH/TO/YOUR/IMAGES"


def _line(text: str) -> None:
    say.line(f"          {text}")
