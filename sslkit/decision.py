"""The only place that says which model to take, and whether any is worth it; all commands and pages say it so.

str(decision)  # "take a: 90.1 %; not told apart from b, which is cheaper; better than c; above raw pixels with 70.2 %"
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sslkit.numerics.paired import Paired
from sslkit.numerics.wilson import with_interval

LEVEL = 0.05  # of a test: the convention
POWER = 2.8  # standard errors that are told in 80 % of samples: the normal's quantiles of 97.5 and 80 %
MOST_NAMED = 3  # models that are named among many
NULLS = ("pixels", "untrained")  # beside the largest class: raw pixels, and the network with random weights
LABEL, USE = "decision  ", "use it    "  # of a terminal's lines
RAW, START, LARGEST = "raw pixels", "its start", "the largest class"  # the nulls, as they are named
MEAN = "the mean"  # of numbers
READY = "ready-made weights"
ADVICE = f"train longer, label more, or take {READY}"
UNLABELLED = "measured without labels, which does not say what is best for a task"
GO_ON, LEAVE, UNDECIDED = "go on from these weights", "leave these weights as they are", "not told whether to go on"
FEW = 1000  # images, up to which diet was the best of four objectives in the public study of PRECEDENTS


@dataclass(frozen=True)
class Candidate:
    """A model; or a null: what costs nothing, which a model must be above to be worth anything.

    name: as it is said. fact: its value in words. cost: multiply-adds of an image; nan if not known.
    """

    name: str
    fact: str = ""
    cost: float = math.nan

    def __str__(self) -> str:
        return f"{self.name} with {self.fact}" if self.fact else self.name


@dataclass(frozen=True)
class Difference:
    """What the first model has more than another, on the same images.

    value: a share. p: two-sided, after adjustment for all that were compared. n: images. detectable: the smallest
    difference that n such images tell in 80 % of samples; None where that is not known.
    """

    value: float
    p: float
    n: int = 0
    detectable: float | None = None

    @classmethod
    def of_shares(cls, share: float, other: float, n: int, tests: int) -> "Difference":
        """Return the difference of two shares of n unlike images each; p after Bonferroni over the tests."""
        value, error = share - other, math.sqrt((share * (1 - share) + other * (1 - other)) / n)
        p = math.erfc(abs(value) / error / math.sqrt(2)) if error else float(value == 0)
        return cls(value, min(1.0, tests * p), n, POWER * error)

    @property
    def is_above(self) -> bool:
        return self.value > 0 and self.p < LEVEL

    @property
    def images_to_tell(self) -> int | None:
        """Images that would tell a difference of this size, to two digits; None where more are of no use."""
        if self.value <= 0 or not self.detectable:
            return None
        count = self.n * (self.detectable / self.value) ** 2
        digits = max(0, math.floor(math.log10(count)) - 1)
        return math.ceil(count / 10**digits) * 10**digits


@dataclass(frozen=True)
class Decision:
    """first: the model with the least expected regret. tied: models that may be as good. worse: the others.

    above: the nulls that the first is above. missed: those it is not above, with the difference to each.
    decides: False beside a better measure of the same data, which says what to take, and for a ranking of which nobody
        knows whether it agrees with fine-tuning.
    leaky: test images were trained on, or chose the first.
    has_labels: False for a measure without labels, which decides nothing, and says what it is above and what not.
    """

    first: Candidate
    tied: Sequence[Candidate] = ()
    worse: Sequence[Candidate] = ()
    above: Sequence[Candidate] = ()
    missed: Sequence[tuple[Candidate, Difference]] = ()
    decides: bool = True
    leaky: bool = False
    has_labels: bool = True

    @property
    def taken(self) -> str:
        """The name of the model to take; "" where none is."""
        return self.first.name if self.decides and not self.missed else ""

    @property
    def lead(self) -> str:
        if not (self.has_labels or self.tied or self.worse):
            return self.first.name
        if not self.decides:
            return f"{self.first.name} is first"
        if not self.missed:
            return f"take {self.first.name}"
        return "take none"

    @property
    def rest(self) -> str:
        """All but the lead: "64 %; not told apart from b; better than c; above raw pixels with 41 %"."""
        return "; ".join(filter(None, self._remedies() if self.decides and self.missed else self._reasons()))

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.lead, self.rest)))

    def _reasons(self) -> list[str]:
        tied = (
            f"not told apart from {list_names([other.name for other in self.tied])}{self._cheaper}" if self.tied else ""
        )
        worse = f"better than {list_names([other.name for other in self.worse])}" if self.worse else ""
        above = f"above {list_names(list(map(str, self.above)))}" if self.above else ""
        missed = f"not above {list_names([str(null) for null, _ in self.missed])}" if self.missed else ""
        unlabelled = () if self.has_labels else (missed, UNLABELLED)
        leaks = "beware: test images were trained on, or chose it" if self.leaky else ""
        return [self.first.fact, tied, worse, above, *unlabelled, leaks]

    @property
    def _cheaper(self) -> str:
        """Which of the models that may be as good is the cheapest, if it is cheaper than the first."""
        cheaper = [other for other in self.tied if other.cost < self.first.cost]
        if not cheaper:
            return ""
        least = min(cheaper, key=lambda other: other.cost)
        return ", which is cheaper" if len(self.tied) == 1 else f", of which {least.name} is the cheapest"

    def _remedies(self) -> list[str]:
        null, difference = min(self.missed, key=lambda pair: pair[1].value)  # the null that is furthest ahead
        if difference.value <= 0:
            count = 1 + len(self.tied) + len(self.worse)
            behind = f"none of {count} models" if count > 1 else str(self.first)
            return [f"{behind} {'is' if count > 1 else 'is not'} above {null}", ADVICE]
        few = f"{self.first} is not told apart from {null}"
        if images := difference.images_to_tell:
            points = f"{100 * difference.value:.1f} points"
            few += f": {difference.n:,} images do not tell {points}, about {images:,} would"
        return [few, ADVICE]


def decide_shares(shares: Mapping[str, float], n: int, nulls: Mapping[str, float], **how: Any) -> Decision:
    """Return the decision on shares of n images, without what each image says: models, and controls, by their names.

    how: of `Decision`. Shares are tested as of unlike images, which is cautious: on the same ones chance moves both.
    """
    first, *others = sorted(shares, key=lambda name: -shares[name])
    tests = math.comb(len(shares), 2) + len(shares) * len(nulls)

    def ahead(share: float) -> Difference:
        return Difference.of_shares(shares[first], share, n, tests)

    against = [(Candidate(null, f"{100 * share:.1f} %"), ahead(share)) for null, share in nulls.items()]
    return Decision(
        Candidate(first, with_interval(shares[first], n)),
        [Candidate(name) for name in others if not ahead(shares[name]).is_above],
        [Candidate(name) for name in others if ahead(shares[name]).is_above],
        [null for null, difference in against if difference.is_above],
        [(null, difference) for null, difference in against if not difference.is_above],
        **how,
    )


def list_names(names: Sequence[str]) -> str:
    """Return names in words; of many, the first and the number of the others."""
    if len(names) > MOST_NAMED + 1:
        return f"{', '.join(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} others"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


@dataclass(frozen=True)
class Precedent:
    """What became of kNN in cases of a public study. least: uniformity of their features. rose: in how many it rose."""

    least: float
    rose: int
    cases: int
    lead: str


PRECEDENTS = (  # the limits were chosen on the cases: benchmarks/LOG.md
    Precedent(-1.4, 27, 27, GO_ON),
    Precedent(-2.4, 5, 11, UNDECIDED),
    Precedent(-math.inf, 1, 7, LEAVE),
)
STUDY = "a public study of 15 sets by DINOv3, CLIP and MAE, ViT-B/16"


@dataclass(frozen=True)
class Continuing:
    """Whether to go on from given weights on one's own images.

    uniformity: of their features of these images (Wang & Isola 2020), which lie close together where images are unlike
    those of the weights. is_vit: the study has no other networks. images: to learn from. gains: what a pilot gained
    over the start by its measures; {} without a pilot.
    """

    uniformity: float
    is_vit: bool
    images: int
    gains: Mapping[str, Paired] = field(default_factory=dict)
    has_labels: bool = True

    @property
    def lead(self) -> str:
        if not self.gains:
            return self._precedent.lead if self.is_vit else UNDECIDED
        if any(gain.high < 0 for gain in self.gains.values()):
            return LEAVE
        return GO_ON if self.has_labels and any(gain.low > 0 for gain in self.gains.values()) else UNDECIDED

    @property
    def _precedent(self) -> Precedent:
        return next(precedent for precedent in PRECEDENTS if self.uniformity >= precedent.least)

    def __str__(self) -> str:
        return f"{self.lead}: {'; '.join(filter(None, (self._reason, self._few, self._caution)))}"

    @property
    def _reason(self) -> str:
        if self.gains:
            measured = ", ".join(f"{name} {gain}" for name, gain in self.gains.items())
            return f"the pilot changed {measured}{'' if self.has_labels else f', {UNLABELLED}'}"
        if not self.is_vit:
            return f"nothing is known of such networks before a pilot; uniformity tells it of ViTs alone, in {STUDY}"
        cases = f"kNN rose in {self._precedent.rose} of {self._precedent.cases} cases with features like these"
        return f"{cases} (uniformity {self.uniformity:.1f}; {STUDY}, whose cases also chose the limits)"

    @property
    def _few(self) -> str:
        return f"of {self.images:,} images, diet was the best of four objectives there" if self.images <= FEW else ""

    @property
    def _caution(self) -> str:
        return "this is about frozen features: fine-tuned accuracy fell there in most cases, by 1 to 5 points"
