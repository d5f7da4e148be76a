"""One sentence for every comparison of models: which to take, how good it is, from which others it is not told apart.

str(Verdict("a", "90.1 %", ["b"], ["c"]))  # "take a: 90.1 %; not told apart from b; better than c"
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evaluation.results.comparison import LEVEL, Comparison
from evaluation.results.result import Result
from evaluation.results.tables import value_of
from sslkit.backbones.words import is_untrained

BEST_FIRST = ("fine_tune", "linear", "knn")  # protocols, of which the first on a data set says which model to take
MOST_NAMED = 3  # models that are named among many


@dataclass(frozen=True)
class Verdict:
    """first: the model to take, by `facts`. tied: models that may be as good. worse: the others.

    decides: False beside a better protocol on the same data, whose first model is the one to take, and for a ranking
        of which nobody knows whether it agrees with fine-tuning.
    """

    first: str
    facts: str
    tied: Sequence[str] = ()
    worse: Sequence[str] = ()
    decides: bool = True

    @property
    def lead(self) -> str:
        return f"take {self.first}" if self.decides else f"{self.first} is first"

    @property
    def rest(self) -> str:
        """All but the lead: "64 % to be the best; not told apart from b; better than c"."""
        trained = [name for name in self.worse if not is_untrained(name)]
        tied = f"not told apart from {list_names(self.tied)}" if self.tied else ""
        worse = f"better than {list_names(trained)}" if trained else ""
        return "; ".join(filter(None, (self.facts, tied, worse)))

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.lead, self.rest)))


def deciding(compared: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return of (data, protocol) the one with the best protocol for each data set: it says which model to take."""
    best: dict[str, str] = {}
    for data, protocol in sorted(compared, key=lambda one: order(one[1])):
        best.setdefault(data, protocol)
    return set(best.items())


def order(protocol: str) -> tuple[int, str]:
    """Return a sort key of protocols, those that decide first."""
    return BEST_FIRST.index(protocol) if protocol in BEST_FIRST else len(BEST_FIRST), protocol


def of_pairs(results: Sequence[Result], pairs: Sequence[Comparison], decides: bool = True) -> Verdict:
    """Return the verdict on results of one protocol. pairs: their paired tests, see `compare_all`."""
    between = dict(zip(map(frozenset, itertools.combinations(range(len(results)), 2)), pairs, strict=True))
    first, *others = sorted(range(len(results)), key=lambda k: -results[k].value)
    tied = [k for k in others if between[frozenset((first, k))].decisive_p >= LEVEL]
    models = [[results[k].model for k in some] for some in (tied, [k for k in others if k not in tied])]
    return Verdict(results[first].model, value_of(results[first]), *models, decides)


def by_chance(groups: Sequence[Sequence[Comparison]]) -> str:
    """Return how many groups of pairs find a difference beside how many would without any, "" for fewer than two.

    groups: of each protocol and data set its paired tests, see `compare_all`: Holm's p finds a difference in one of
    twenty groups without any.
    """
    if len(groups) < 2:
        return ""
    count = sum(any(pair.decisive_p < LEVEL for pair in pairs) for pairs in groups)
    return (
        f"{count} of {len(groups)} comparisons, of a protocol on a data set each, find a difference between models; "
        f"without any about {LEVEL * len(groups):.2g} would by chance"
    )


def list_names(names: Sequence[str]) -> str:
    """Return names in words; of many, the first and the number of the others."""
    if len(names) > MOST_NAMED + 1:
        return f"{', '.join(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} others"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
