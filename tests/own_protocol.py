"""A protocol of one file with three options, as a user writes one."""

OWN = '''"""How many training images there are."""

from dataclasses import dataclass

from evaluation.protocols.base import Subject, among
from evaluation.results.result import Result
from evaluation.results.statistics import Estimate
from sslkit.errors import UserError
from sslkit.options.settings import setting
from sslkit.runtime.context import Runtime


@dataclass(frozen=True, kw_only=True)
class Options:
    times: int = setting(2, "how often each is counted", least=1, most=9)
    kind: str = setting("rows", "what is counted: rows or classes", choices=("rows", "classes"))
    minus: float | None = setting(None, "taken from the count; null: nothing", least=0)


def open(subject: Subject, options: Options) -> Subject:
    """Check the number. Raises UserError."""
    if options.times == 9:
        raise UserError("nine times is once too often")
    return subject


def run(opened: Subject, options: Options, runtime: Runtime) -> list[Result]:
    """Count the training images."""
    others = {"rows": Estimate(float(len(opened.train(runtime)))), "hidden": Estimate(0.0)}
    train = opened.train(runtime)
    count = len(train) if options.kind == "rows" else len(train.classes)
    value = Estimate(float(options.times * count - (options.minus or 0)))
    about = {"protocol": "counted", "recipe": "a count", "metric": "counted", "data": opened.train(runtime).data}
    return [Result.from_estimate(value, **about, model=opened.model.name, others=others)]


def beside(result: Result) -> tuple[str, ...]:
    return among(result, "rows", "missing")
'''
