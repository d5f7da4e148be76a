"""Tune several models in rounds, with twice the steps each time; the better half goes on."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from evaluation.datasets import Split
from evaluation.ranking.choice.beliefs import beliefs
from evaluation.ranking.choice.rounds import Arm, Round, count_runs, rounds_of
from evaluation.tuning.classifier import Setting
from evaluation.tuning.estimate import announce
from evaluation.tuning.outcomes import best, in_groups, mean_record, unpack
from evaluation.tuning.task import open_task
from evaluation.tuning.trials import Trial, open_runner
from sslkit.errors import UserError
from sslkit.models.model import Model
from sslkit.runtime.context import Runtime
from sslkit.terminal.say import counted, lasting


def tune_in_rounds(
    models: Mapping[str, Model],
    splits: Mapping[str, Split],
    settings: Sequence[Setting],
    seeds: Sequence[int],
    sure: float,
    runtime: Runtime,
) -> tuple[Round, ...]:
    """Tune the models in rounds until one is left, or one is the best with probability `sure`.

    splits: "train" to tune on, "test" to compare on. settings: of the last round, one for each rate.
    Raises UserError if every model diverges.
    """
    alive = {name: tuple(setting.lr for setting in settings) for name in models}
    runs, steps = count_runs(len(models), len(settings), len(seeds), settings[0].steps)
    announce([(model, steps // len(models)) for model in models.values()], runs, settings[0].batch_size, runtime)
    rounds: list[Round] = []
    count = rounds_of(len(models))
    for left in reversed(range(count)):  # rounds after this one
        steps, now = settings[0].steps // 2**left, tuple(seeds if left == 0 else seeds[:1])
        runs = counted(sum(map(len, alive.values())) * len(now), "run")
        told = f"{counted(len(alive), 'model')}, {runs} of {counted(steps, 'step')}, {counted(len(now), 'seed')}"
        runtime.say(f"round {count - left} of {count}: {told}")
        arms = []
        for name, rates in alive.items():
            plans = [replace(settings[0], lr=lr, steps=steps) for lr in rates]
            arms.append(_arm(name, models[name], splits, plans, now, runtime))
            runtime.say(_progress_line(arms, list(alive.values())))
        rounds.append(_order_arms(Round(tuple(arms), steps, len(arms), now), rounds, count))
        sound = sum(len(arm.values) > 0 for arm in arms)
        if not sound:
            raise UserError(f"{splits['train'].name}: every learning rate of every model diverged; give lower ones")
        left_over = 1 if left == 0 else min((len(arms) + 1) // 2, sound)
        first = rounds[-1].arms[0].model
        left_over = 1 if sure < 1 and rounds[-1].best.get(first, 0) >= sure else left_over
        rounds[-1] = replace(rounds[-1], kept=left_over)
        if left_over == 1:
            break
        on = rounds[-1].arms[:left_over]
        alive = {arm.model: arm.lrs[: 1 if left == 1 else (len(arm.lrs) + 1) // 2] for arm in on}
    return tuple(rounds)


def _order_arms(one: Round, before: Sequence[Round], planned: int) -> Round:
    """Return the round with its arms in order: by `beliefs`, else by accuracy; diverged ones last."""
    estimate = beliefs([*before, one], planned)
    if estimate is None:
        return replace(one, arms=tuple(sorted(one.arms, key=lambda arm: -arm.value)))
    places = {name: rank for rank, name in enumerate(estimate.order())}
    arms = sorted(one.arms, key=lambda arm: places.get(arm.model, len(places)))
    return replace(one, arms=tuple(arms), best=estimate.best, regret=estimate.regret)


def _progress_line(arms: Sequence[Arm], rates: Sequence[Sequence[float]]) -> str:
    """Say what the last model took, and how long the others of the round take at this pace. rates: of all models."""
    arm, done = arms[-1], len(arms)
    left = sum(earlier.seconds for earlier in arms) / sum(map(len, rates[:done])) * sum(map(len, rates[done:]))
    to_go = f", about {lasting(left)} to go in this round" if left else ""
    return f"model {done} of {len(rates)}: {arm.model}, {lasting(arm.seconds)}{to_go}"


def _arm(
    name: str,
    model: Model,
    splits: Mapping[str, Split],
    settings: Sequence[Setting],
    seeds: Sequence[int],
    runtime: Runtime,
) -> Arm:
    """Tune one model with every setting and seed."""
    task = open_task(model, splits)
    rows = task.rows()
    trials = [Trial("halving", replace(setting, seed=seed), rows) for setting in settings for seed in seeds]
    with open_runner(task, "halving", runtime) as runner:
        records = runner.run(trials, f"{name}, {settings[0].steps} steps")
    seconds, steps = sum(record["seconds"] for record in records), sum(trial.setting.steps for trial in trials)
    sound = [runs for runs in in_groups(records, len(seeds)) if not any(record["diverged"] for record in runs)]
    if not sound:
        return Arm(name, (), np.zeros(0), None, seconds, steps)
    ordered = []
    left = list(sound)
    while left:
        ordered.append(left.pop(best([mean_record(runs) for runs in left], name)))
    values = np.array([record["value"] for record in ordered[0]])
    has_right = all(record["right"] is not None for record in ordered[0])
    right = np.stack([unpack(record["right"], len(task.test)) for record in ordered[0]]) if has_right else None
    rates, beta = tuple(runs[0]["lr"] for runs in ordered), mean_record(ordered[0])["beta"]
    return Arm(name, rates, values, right, seconds, steps, task.test.groups, beta)
