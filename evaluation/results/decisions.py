"""The decision on results of one protocol on the same images: paired tests between models, and with what costs nothing.

decision, pairs = decide([byol, simclr, pixels])
str(decision)  # "take byol: 90.1 % ± 2.0; better than simclr; above raw pixels with 70.2 %"
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from evaluation.results.comparison import Comparison, adjust, compare
from evaluation.results.numbers import R2
from evaluation.results.result import Result
from evaluation.results.tables import value_of, with_interval
from sslkit.backbones.words import PIXELS, START, is_null
from sslkit.decision import LARGEST, LEVEL, MEAN, RAW, Candidate, Decision, Difference
from sslkit.decision import START as ITS_START
from sslkit.errors import UserError

BEST_FIRST = ("fine_tune", "linear", "knn")  # protocols, of which the first on a data set says which model to take
WITHOUT_LABELS = ("view_retrieval", "lidar")  # protocols that say something where no other does
GUESS = "a guess"  # of an episode's classes


def deciding(compared: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return of (data, protocol) the one with the best protocol for each data set: it says which model to take."""
    best: dict[str, str] = {}
    for data, protocol in sorted(compared, key=lambda pair: order(pair[1])):
        best.setdefault(data, protocol)
    return set(best.items())


def order(protocol: str) -> tuple[int, str]:
    """Return a sort key of protocols, those that decide first, and last those that need no labels."""
    if protocol in WITHOUT_LABELS:
        return len(BEST_FIRST) + 1 + WITHOUT_LABELS.index(protocol), protocol
    return BEST_FIRST.index(protocol) if protocol in BEST_FIRST else len(BEST_FIRST), protocol


def decide(results: Sequence[Result], decides: bool = True) -> tuple[Decision, list[Comparison]]:
    """Return the decision on results of one protocol, and the paired tests that it rests on.

        decision, pairs = evaluation.decide(evaluation.evaluate(a, data) + evaluation.evaluate("pixels", data))

    results: with `outcomes` on the same rows; those of `pixels` and `random:NAME` are nulls, and so is always answering
    the largest class. Each model is compared with the others and with each null; p is after Holm over all of these.
    decides: False beside a better protocol on the same data; a measure without labels never does.
    Raises UserError for results that cannot be paired, see `evaluation.compare`, and for none.
    """
    if not results:
        raise UserError("there is no result to decide on")
    models = [result for result in results if not is_null(result.model)]
    nulls = [result for result in results if is_null(result.model)] if models else []
    models = models or list(results)
    nulls += largest_class(models[0])
    pairs = [(a, b) for a, b in itertools.combinations(models, 2)] + list(itertools.product(models, nulls))
    compared = adjust([compare(a, b) for a, b in pairs])
    between = {frozenset((id(a), id(b))): test for (a, b), test in zip(pairs, compared, strict=True)}
    first, *others = sorted(models, key=lambda result: -result.value)
    tests = {id(other): between[frozenset((id(first), id(other)))] for other in (*others, *nulls)}
    is_tied = {id(other): tests[id(other)].decisive_p >= LEVEL for other in others}
    against = [(candidate_of(null), difference_of(first, tests[id(null)])) for null in nulls]
    has_labels = first.protocol not in WITHOUT_LABELS
    decision = Decision(
        candidate_of(first),
        [candidate_of(other) for other in others if is_tied[id(other)]],
        [candidate_of(other) for other in others if not is_tied[id(other)]],
        [null for null, difference in against if difference.is_above],
        [(null, difference) for null, difference in against if not difference.is_above],
        decides and has_labels,
        first.leaky,
        has_labels,
    )
    return decision, compared


def largest_class(result: Result) -> list[Result]:
    """Return the result of always answering the largest class of the images, the mean, or of a guess in episodes.

    [] where it is not known: for results that were not made by `evaluation.evaluate`.
    """
    about = {"others": {}, "groups": result.groups, "interval": None, "details": {}}
    if result.largest is not None:
        value = float(result.largest.mean())
        model = MEAN if result.metric == R2 else LARGEST
        return [replace(result, model=model, value=value, outcomes=result.largest, **about)]
    chance = 1 / result.details["n_way"] if "n_way" in result.details else result.details.get("largest_class")
    if result.outcomes is None or result.outcomes.dtype == bool or not isinstance(chance, float):
        return []
    model = GUESS if "n_way" in result.details else LARGEST
    return [replace(result, model=model, value=chance, outcomes=np.full(len(result.outcomes), chance), **about)]


def candidate_of(result: Result) -> Candidate:
    """Return a model, or a null, as a decision names it."""
    name = RAW if result.model == PIXELS else result.model
    name = f"{ITS_START} {name.removeprefix(START)}" if name.startswith(START) else name
    fact = with_interval(result.estimate) if is_null(result.model) else value_of(result)
    return Candidate(name, fact, result.details.get("multiply_adds", math.nan))


def difference_of(first: Result, test: Comparison) -> Difference:
    """Return what a result has more than the other of a comparison."""
    test = test if test.a == first.model else test.reverse
    return Difference(test.difference, test.decisive_p, test.n, test.detectable)


def by_chance(groups: Sequence[Sequence[Comparison]]) -> str:
    """Return how many groups of pairs find a difference beside how many would without any, "" for fewer than two.

    groups: of each protocol and data set its paired tests, see `decide`: Holm's p finds a difference in one of
    twenty groups without any.
    """
    if len(groups) < 2:
        return ""
    count = sum(any(pair.decisive_p < LEVEL for pair in pairs) for pairs in groups)
    return (
        f"{count} of {len(groups)} comparisons, of a protocol on a data set each, find a difference between models; "
        f"without any about {LEVEL * len(groups):.2g} would by chance"
    )
