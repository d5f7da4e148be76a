"""Successive halving: fine-tune the first models of a ranking for a few steps, then the better half for twice as many.

found = successive_halving("runs/zoo", "clipart", first=8, steps=200)
found.winner, found.probability, found.steps
"""

import math
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from evaluation.datasets import Reading, Split, find_published
from evaluation.datasets._copies import divide, near_across
from evaluation.datasets._readable import readable
from evaluation.features.checks import as_list, check_value, different_seeds
from evaluation.features.extraction import check
from evaluation.features.using import use_it
from evaluation.features.zoo_members import lines_of, load_member, members, open_all
from evaluation.protocols.fine_tune import settings_of
from evaluation.ranking.checks import check_metrics
from evaluation.ranking.choice.elimination import tune_in_rounds
from evaluation.ranking.choice.rounds import Arm, Round, rounds_of
from evaluation.ranking.inputs.candidates import draw_images
from evaluation.ranking.inputs.regions import parts, recipe_for
from evaluation.ranking.inputs.runs import SHARED, Runs
from evaluation.ranking.rank import rank
from evaluation.ranking.ranking import Ranking
from evaluation.results.comparison import compare
from evaluation.results.decisions import LARGEST, candidate_of, difference_of
from evaluation.results.measures import right_by_largest
from evaluation.results.result import Result
from evaluation.tuning import ALL, BEST
from evaluation.tuning.classifier import Setting
from evaluation.tuning.keeping import keep_tuned
from evaluation.tuning.task import open_task
from evaluation.tuning.trials import Trial, open_runner
from sslkit.decision import Candidate, Decision
from sslkit.errors import UserError
from sslkit.models.loading import Loading, name_of
from sslkit.models.model import Model
from sslkit.options.settings import MOST, MOST_SEED, setting
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime, silent
from sslkit.zoo.entry import ZooEntry


@dataclass(frozen=True, eq=False)
class Halving:
    """The outcome. data: the task. ranking: by metrics, of all models. rounds: of fine-tuning, with growing steps.

    probability: that the winner is the best of the tuned models (`evaluation.ranking.choice.beliefs`); nan for
        several labels per image.
    within: that the best model of the zoo is among the tuned ones, by the ranking; nan if it has no probabilities.
    train, held_out: numbers of images. checkpoint: the winner on a command line.
    use: the Python that loads the winner's weights before tuning, in lines.
    whole_steps: of tuning every ranked model with every rate, and with its best rate every seed.
    right_by_largest: (N,) bool, of the held-out images by always answering their largest class; None for
        several labels per image.
    entries: of tuned models that are kept, by name.
    """

    data: str
    ranking: Ranking
    rounds: tuple[Round, ...]
    probability: float
    within: float
    train: int
    held_out: int
    checkpoint: str
    whole_steps: int
    use: tuple[str, ...] = ()
    right_by_largest: np.ndarray | None = None
    entries: Mapping[str, ZooEntry] = field(default_factory=dict)

    @property
    def decision(self) -> Decision:
        """The decision on the winner: taken if above the largest class, by the paired t test on held-out images."""
        arm, sure = self.rounds[-1].arms[0], self.probability
        fact = f"lr {self.lr:g}" + ("" if math.isnan(sure) else f", {100 * sure:.0f} % to be the best of those tuned")
        if arm.right is None:
            return Decision(Candidate(self.winner, fact))
        tuned, null = map(_result, (arm, replace(arm, model=LARGEST, right=self.right_by_largest[None])))
        difference = difference_of(tuned, compare(tuned, null))
        difference = replace(difference, p=min(1.0, difference.p * len(self.rounds[0].arms)))  # the best of so many
        missed = [] if difference.is_above else [(candidate_of(null), difference)]
        above = [candidate_of(null)] if difference.is_above else []
        return Decision(Candidate(self.winner, fact), above=above, missed=missed)

    @property
    def winner(self) -> str:
        return self.rounds[-1].arms[0].model

    @property
    def lr(self) -> float:
        """The winner's best learning rate."""
        return self.rounds[-1].arms[0].lrs[0]

    @property
    def steps(self) -> int:
        return sum(arm.steps for level in self.rounds for arm in level.arms)

    @property
    def seconds(self) -> float:
        """Seconds of fine-tuning, without the ranking's."""
        return sum(arm.seconds for level in self.rounds for arm in level.arms)


@dataclass(frozen=True, kw_only=True)
class Options(Runs):
    first: int = setting(8, "models that are fine-tuned, the first by the metrics", least=2, most=10**6)
    steps: int = setting(200, "steps of the last round; each round before it has half of the next", least=1, most=MOST)
    lr: float | Sequence[float] = setting(
        (3e-2, 1e-2, 3e-3, 1e-3), "learning rates of the first round; each round keeps the better half", above=0
    )
    seeds: int | Sequence[int] = setting(
        (0, 1, 2), "of the last round; the others have the first", least=0, most=MOST_SEED
    )
    sure: float = setting(0.95, "stop once a model is the best with this probability; 1: never", least=0.5, most=1)
    weight_decay: float = setting(0.01, "of all weights", least=0)
    rank_images: int | None = setting(500, "of these for the metrics; null: all", least=2, most=MOST)


@public(*SHARED, "out")
def successive_halving(
    zoo: Any,
    data: Any,
    metrics: Sequence[str] | None = None,
    *,
    options: Options,
    loading: Loading,
    reading: Reading,
    runtime: Runtime,
    say: Callable[[str], None] = silent,
) -> Halving:
    """Rank a zoo by metrics, then fine-tune its first models in rounds, of which each keeps the better half.

    zoo, metrics: see `evaluation.rank`. data: a source of `evaluation.open_split`; only its training split is used, of
        which a fifth of each class is held out to compare the models.
    Each round keeps the better half of each model's rates, the last but one the best. Two models have a single round,
    of every rate and seed. Below `out` is halving.jsonl, with a line for each finished run, from which a stopped call
    goes on.
    The accuracy of the winner was used to choose it, so it is optimistic; `evaluation.fine_tune` measures on test
    images. Source: Jamieson and Talwalkar, Non-stochastic Best Arm Identification and Hyperparameter Optimization,
    AISTATS 2016.
    Raises UserError before any computation for bad options, metrics, models and data; before any tuning if no metric
    scores every model, or fewer than 2 can be ranked; and if all models diverge.
    """
    seeds, rates = tuple(different_seeds(options.seeds)), as_list("lr", options.lr)
    grid = {"lr": rates, "weight_decay": [options.weight_decay], "optimizer": options.optimizer}
    steps, first = options.steps, options.first
    settings = settings_of(grid, steps=steps, **options.how(runtime.precision))
    check_value("steps", steps, int, least=2 ** (rounds_of(first) - 1))
    check(runtime), check_metrics(metrics)
    in_zoo = members(zoo)
    models = open_all(in_zoo, lambda one: load_member(one, loading))
    _at_least_two(models, models.left_out)
    whole = _open(data, reading, options.max_images)
    train, held = divide(whole, seeds[0], "to compare models")
    if line := near_across(train, held, f"held-out images of {train.name}", reading.columns, is_given=False):
        say(line)
    settings = [replace(setting, mirror=reading.mirrors(train)) for setting in settings]
    ranked = draw_images(train, options.rank_images, seeds[0])
    ranking = rank(models, ranked, metrics, seed=seeds[0], say=say, cache=runtime.cache, progress=runtime.progress)
    _at_least_two(ranking.models, ranking.left_out)
    asked = [ranking.best, *ranking.order[1:first]]
    runtime = replace(runtime, workers=options.workers, say=say)
    chosen = {name: load_member(models[name]) for name in asked}
    rounds = tune_in_rounds(chosen, {"train": train, "test": held}, settings, seeds, options.sure, runtime)
    names = [ranking.models.index(name) for name in asked]
    within = float(ranking.consensus.best[names].sum())
    winner = rounds[-1].arms[0].model
    return Halving(
        data=str(data),
        ranking=ranking,
        rounds=rounds,
        probability=rounds[-1].best.get(winner, math.nan),
        within=within,
        train=len(train),
        held_out=len(held),
        checkpoint=name_of(in_zoo[winner], chosen[winner]),
        use=tuple(use_it(in_zoo[winner], chosen[winner], loading.image_size, loading.trust)),
        whole_steps=len(ranking.models) * (len(rates) + len(seeds)) * steps,
        right_by_largest=right_by_largest(held.y) if held.y.ndim == 1 else None,
        entries=_keep(rounds[-1], chosen, {"train": whole, "test": held}, settings[0], options.keep, data, runtime),
    )


def _keep(
    last: Round,
    models: Mapping[str, Model],
    splits: Mapping[str, Split],
    setting: Setting,
    keep: str,
    data: Any,
    runtime: Runtime,
) -> dict[str, ZooEntry]:
    """Tune models of the last round once more, on all images, those held out too, and keep them.

    Nothing without a folder; a line of a network that no entry can hold.
    """
    arms = [arm for arm in last.arms if len(arm.values)] if keep == ALL else last.arms[: keep == BEST]
    entries = {}
    for arm in arms if runtime.out else ():
        task = open_task(models[arm.model], splits)
        trial = Trial("keep", replace(setting, lr=arm.lrs[0], steps=last.steps, seed=last.seeds[0]), task.rows())
        value = f"{100 * arm.value:.1f} % on {len(splits['test'])} held-out ones, by which it was chosen"
        about = {"made": f"all weights tuned on {len(task.train)} images; without a fifth of them it had {value}"}
        try:
            with open_runner(task, "halving", runtime) as runner:
                entries[arm.model] = keep_tuned(runner, trial, beta=arm.beta, source=str(data), about=about)
        except UserError as error:
            runtime.say(f"{arm.model} is not kept: {error}")
    return entries


def _result(arm: Arm) -> Result:
    """The accuracy on held-out images, by groups of them."""
    each = arm.by_unit
    about = {"model": arm.model, "n": len(each), "outcomes": each, "paired_on": "held-out images"}
    return Result("fine_tune", "", "top1", float(each.mean()), **about)


def _at_least_two(models: Sized, left_out: Mapping[str, str]) -> None:
    if len(models) < 2:
        why = "".join(f"; {line}" for line in lines_of(left_out))
        raise UserError(f"the zoo has {len(models)} usable model: successive halving chooses among at least 2{why}")


def _open(data: Any, reading: Reading, max_images: int | None) -> Split:
    if data is None:
        raise UserError("name the task: data=clipart, or data=PATH/TO/IMAGES")
    if prefix_and_set := parts(data):
        recipe, _ = recipe_for(prefix_and_set[0])
        raise UserError(f"{data}: only classifiers are tuned here; rank with data={data}, then use recipes/{recipe}.py")
    entry = find_published(data)
    return readable(draw_images(reading.open(data, entry.train if entry else "train"), max_images, 0))
