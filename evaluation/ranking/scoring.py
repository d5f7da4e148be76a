"""score and evaluate_metric: run a transferability metric by its name, for one model on one task."""

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from evaluation.ranking.inputs.doubts import doubts
from evaluation.ranking.inputs.samples import ON_CPU, as_sample
from evaluation.ranking.memory import PeakMemory, return_freed_memory
from evaluation.transferability.base import Sample, Score, check_scale, find, names, wrappers
from sslkit.errors import UserError
from sslkit.options import members
from sslkit.runtime.callers import process_kept
from sslkit.runtime.context import Runtime
from sslkit.terminal import say


@dataclass(frozen=True)
class MetricResult:
    """One metric of one model on one task.

    name: as requested. score: higher is better; nan if it exists only over a zoo, then `parts` has the model's parts.
    diagnostics: steps, shrinkage, iterations, ... warnings: limits of the score. details: as the metric returned it.
    seconds: wall clock. peak_memory: bytes on the computing device beyond those in use at the start; None if the
    system does not report it.
    """

    name: str
    score: float
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    parts: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    peak_memory: int | None = None
    details: Score | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Spec:
    """A metric as written: `logme`, `ped+logme`, `ped(lam=0.3)+nleep(covariance=diag)`, with its options."""

    name: str
    chain: tuple[tuple[str, dict[str, Any]], ...]  # wrappers, then the metric

    @property
    def metric(self) -> str:
        return self.chain[-1][0]

    @property
    def needs(self) -> tuple[str, ...]:
        """The required inputs, of "features", "source_probs", "model", "untrained", "boxes"."""
        inputs = needs(self.metric)
        return ("features", *inputs) if len(self.chain) > 1 and "features" not in inputs else inputs

    @property
    def reads_reference(self) -> bool:
        """True if PED, which normalises features by a reference, is in the chain."""
        return any(name == "ped" for name, _ in self.chain)

    @property
    def reads_features(self) -> bool:
        """True if the score depends on the values of the features."""
        reads = getattr(find(self.metric), "READS_FEATURES", "features" in needs(self.metric))
        return len(self.chain) > 1 or reads

    @property
    def over_zoo(self) -> Any:
        """The function that computes a zoo's scores from its models' parts, or None."""
        for name, options in self.chain:
            module = find(name)
            is_wanted = options.get("lam") == "both" or (name == self.metric and not hasattr(module, "wrapped"))
            if is_wanted and hasattr(module, "over_zoo"):
                return module.over_zoo
        return None


def metrics() -> tuple[str, ...]:
    """Return the names of all transferability metrics, for `score` and `rank`.

    `ped` may also wrap any other, as in `ped+logme`. What each needs: `evaluation.transferability.find(name)`.
    """
    return names()


def needs(name: str) -> tuple[str, ...]:
    """Return the required inputs of a metric, of "features", "source_probs", "model", "untrained", "boxes"."""
    return getattr(find(name), "NEEDS", ("features",))


def takes_numbers(name: str) -> bool:
    """Return True if a metric is also defined for several labels per image, and other numbers."""
    return getattr(find(name), "TAKES_NUMBERS", False)


@process_kept()
def score(
    name: str,
    features: Any,
    labels: Any = None,
    *,
    source_probs: Any = None,
    reference: Any = None,
    model: Any = None,
    untrained: Any = None,
    boxes: Any = None,
    seed: int = Runtime.seed,
    device: str = ON_CPU.device,
    **options: Any,
) -> float:
    """Return the transferability score of a model for a task: higher is better.

        features = evaluation.extract("runs/zoo/NAME", "digits", "train")
        evaluation.score("logme", features)
        evaluation.score("ped(lam=0.3)+logme", x, y)  # arrays (N, D) and (N,)

    name: one of `evaluation.metrics()`, a wrapper and a metric (`ped+logme`), or `package.module:score` of your own;
        options may be given in brackets.
    features, labels, source_probs, reference, untrained, boxes: see `as_sample` in samples.py. model: the network, or
        its number of parameters, for `param_count`. seed: of the metrics that draw. device: where to compute.
    options: of the metric, or of its wrapper (see `help(evaluation.transferability.find(name).score)`).
    Raises UserError for an unknown name or option, unsound input, and metrics that exist only over a zoo.
    """
    spec = parse(name, options, given=True)
    inputs = {"source_probs": source_probs, "reference": reference, "model": model, "untrained": untrained}
    sample = as_sample(features, labels, **inputs, boxes=boxes, runtime=Runtime(device=device, seed=seed))
    shared = _check_input(spec, sample)
    result = _finite(spec, compute_score(spec, sample))
    if math.isnan(result.value):
        parts = ", ".join(f"{name_of_part}={value:.4g}" for name_of_part, value in result.parts.items())
        raise UserError(
            f"{name} has no score for one model, only over a zoo (evaluation.rank); its parts here: {parts}; "
            "evaluation.evaluate_metric gives them"
        )
    for warning in (*shared, *result.warnings):
        say.warn(f"{name}: {warning}", stacklevel=2)
    return result.value


@process_kept()
def evaluate_metric(
    name: str,
    features: Any,
    labels: Any = None,
    *,
    source_probs: Any = None,
    reference: Any = None,
    model: Any = None,
    untrained: Any = None,
    boxes: Any = None,
    seed: int = Runtime.seed,
    device: str = ON_CPU.device,
    **options: Any,
) -> MetricResult:
    """Return the score with its cost, diagnostics and warnings.

        result = evaluation.evaluate_metric("logme", features)
        result.score, result.seconds, result.warnings

    name, features, labels, options and all others, and errors: as in `score`.
    """
    spec = parse(name, options, given=True)
    inputs = {"source_probs": source_probs, "reference": reference, "model": model, "untrained": untrained}
    return_freed_memory()
    runtime = Runtime(device=device, seed=seed)
    return of_sample(spec, as_sample(features, labels, **inputs, boxes=boxes, runtime=runtime))


def of_sample(spec: Spec, sample: Sample) -> MetricResult:
    """Run a parsed metric on a sample; shared quantities (scatter, eigenvectors) are computed only once.

    Raises UserError for features that the metric cannot score; warns of degenerate ones.
    """
    shared = _check_input(spec, sample)
    with PeakMemory(sample.device) as memory:
        start = time.perf_counter()
        result = compute_score(spec, sample)
        seconds = time.perf_counter() - start
    warned = (*shared, *_finite(spec, result).warnings)
    return MetricResult(spec.name, result.value, result.diagnostics, warned, result.parts, seconds, memory.peak, result)


def parse(name: str, options: Mapping[str, Any] | None = None, *, given: bool = False) -> Spec:
    """Parse a name such as `ped+logme`, and give each option to the part of the chain that has it.

    given: as of `transferability.find`.
    Raises UserError for unknown names and options, for an option given twice, and for an option of several parts that
    is not in brackets.
    """
    parts = _split(name)
    *outer, last = [find(stage, given=given) for stage, _ in parts]
    for module, (stage, _) in zip(outer, parts, strict=False):
        if not hasattr(module, "wrapped"):
            raise UserError(f"{name!r}: {stage} wraps no other metric, only {', '.join(wrappers())} do")
    functions = [*(module.wrapped for module in outer), last.score]  # their keyword arguments are the options
    options_of: list[dict[str, Any]] = [{} for _ in parts]
    for key, value in (options or {}).items():
        options_of[_owner(parts, functions, key, name)][key] = value
    for (_, inner), chosen in zip(parts, options_of, strict=True):
        twice = sorted(set(inner) & set(chosen))
        if twice:
            raise UserError(f"{name}: {twice[0]} is given twice, in brackets and as an option")
        chosen.update(inner)
    for (stage, _), chosen, function in zip(parts, options_of, functions, strict=True):
        if chosen:
            chosen.update(_texts(chosen, function))
            members.check_options(function, chosen, stage)
    return Spec(name, tuple((stage, chosen) for (stage, _), chosen in zip(parts, options_of, strict=True)))


def _owner(parts: Sequence[tuple[str, dict]], functions: Sequence[Callable], key: str, name: str) -> int:
    """Return the index of the part of the chain that has this option."""
    owners = [k for k, function in enumerate(functions) if key in members.options(function)]
    if not owners:
        options_known = [option for function in functions for option in members.options(function)]
        raise UserError(f"{name} has no option {key!r}: {members.nearest(key, options_known)}")
    if len(owners) > 1:
        written = (
            "+".join(stage + f"({key}=...)" * (k == owner) for k, (stage, _) in enumerate(parts)) for owner in owners
        )
        raise UserError(
            f"{name}: {key} is an option of {' and of '.join(parts[k][0] for k in owners)}; write it in brackets: "
            f"{' or '.join(written)}"
        )
    return owners[0]


def _split(name: str) -> list[tuple[str, dict[str, Any]]]:
    """Parse `a(x=1)+b` to [("a", {"x": 1}), ("b", {})]."""
    if not isinstance(name, str):
        raise UserError(f"a metric is named by a text, such as 'logme', before features and labels; got {type(name)}")
    stages = re.findall(r"([^+(]+)(?:\(([^)]*)\))?(?:\+|$)", name)
    if not stages or "+".join(f"{stage}({inner})" if inner else stage for stage, inner in stages) != name.replace(
        "()", ""
    ):
        raise UserError(f"{name!r} is not a metric; write NAME, NAME(option=value, ...), or ped+NAME")
    return [(stage.strip(), _values(inner, name)) for stage, inner in stages]


def _values(text: str, name: str) -> dict[str, Any]:
    options = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        key, equals, value = (piece.strip() for piece in item.partition("="))
        if not equals:
            raise UserError(f"{name!r}: {item!r} is not an option; write option=value")
        if key in options:
            raise UserError(f"{name!r}: {key} is given twice")
        options[key] = _value(value)
    return options


def _texts(given: Mapping[str, Any], function: Callable) -> dict[str, str]:
    """Return "none" for options that were read as None and take only text, such as ITM's `evaluate`."""
    declared = members.declarations(function)
    return {key: "none" for key, value in given.items() if value is None and declared[key].kind is str}


def _value(text: str) -> Any:
    plain = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in plain:
        return plain[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _check_input(spec: Spec, sample: Sample) -> tuple[str, ...]:
    """Return warnings about the sample's features. Raises UserError if an input is missing or out of range."""
    how = {
        "features": "give features (N, D)",
        "source_probs": "give source_probs (N, S), the probabilities of the classifier that the model was trained with",
        "model": "give model=, the network",
        "untrained": "give untrained (N, E), features of the same network with random weights",
        "boxes": "give boxes (N, 4), the places of the objects (data=boxes:SET of recipes/rank.py has them)",
    }
    for need in spec.needs:
        if sample.given(need) is None:
            raise UserError(f"{spec.name} needs {need}: {how[need]}")
    if not spec.reads_features:
        return ()
    check_scale(sample)
    return doubts(sample)


def _finite(spec: Spec, found: Score) -> Score:
    """Return the score. Raises UserError if it, or a part of it, is not finite."""
    over_zoo = found.parts and math.isnan(found.value)
    for value in found.parts.values() if over_zoo else [found.value]:
        if not math.isfinite(value):
            raise UserError(f"{spec.name} of these features is {value}, which cannot rank models")
    return found


def compute_score(spec: Spec, sample: Sample) -> Score:
    """Return the bare score of a parsed metric."""
    (name, options), *rest = spec.chain
    module = find(name)
    if not rest:
        return module.score(sample, **options)
    inner = replace(spec, chain=tuple(rest))
    return module.wrapped(sample, lambda moved: compute_score(inner, moved), **options)
