"""Output of successive halving: a line for each round, the choice, how sure it is, what it cost, a file, a picture."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.datasets import AS_USUAL
from evaluation.features.zoo_members import lines_of
from evaluation.protocols.fine_tune import Options
from evaluation.ranking.choice.halving import Halving, successive_halving
from evaluation.ranking.choice.rounds import Arm, Round
from evaluation.ranking.inputs.task_names import file_names, task_name
from evaluation.results.names import short
from sslkit.data.columns import Columns
from sslkit.decision import LABEL, USE
from sslkit.errors import UserError
from sslkit.files.writing import exclusive, write_text
from sslkit.models.using import line_to_predict, lines_to_load
from sslkit.numerics.figures import FIRST, INK, OTHERS, QUIET, SMALL, better, panel, save_figure
from sslkit.numerics.wilson import independent_rows, wilson
from sslkit.terminal import say
from sslkit.terminal.say import words

GAP = 0.045  # between two names, of the height of the picture
FEW = 100  # held-out images; with fewer, the stated probabilities rest on a handful of choices, see recipes/benchmarks


def choose(zoo: Any, data: Any, *, out: str | Path, pictures: bool, **how: Any) -> Halving:
    """Choose a model and print the outcome; called by `recipes/choose.py`. Arguments: see `successive_halving`.

    out: folder of NAME.json, NAME.png, and the finished runs.
    """
    if not zoo:
        raise UserError("name the models to choose from: zoo=runs/zoo, or zoo=[runs/zoo,efficientnet_lite0]")
    halving = successive_halving(zoo, data, out=out, say=lambda line: say.line(f"          {line}"), **how)
    name = file_names([str(data)])[str(data)]
    for line in lines(halving):
        say.line(line)
    file = Path(out) / f"{name}.json"
    with exclusive(file, "a choice"):
        written = [write(halving, file)]
        if pictures:
            written.append(plot(halving, Path(out) / f"{name}.png"))
    say.line(f"written   {', '.join(map(str, written))}")
    for line in use_lines(halving):
        say.line(line)
    say.line(f"next      {next_command(halving, data, how)}")
    return halving


def use_lines(found: Halving) -> list[str]:
    """Return how the winner is used: the tuned model, where it is kept, else the weights that it began from."""
    taken = bool(found.decision.taken)
    if found.winner not in found.entries:
        return list(found.use) if taken else []
    folder = str(found.entries[found.winner].folder)
    others = f", and {len(found.entries) - 1} others beside it" if len(found.entries) > 1 else ""
    loading = lines_to_load(USE, folder) if taken else []
    return [
        f"kept      {folder}, tuned on all {found.train + found.held_out} images{others}",
        *loading,
        line_to_predict(folder),
    ]


def lines(found: Halving) -> list[str]:
    """Return the rounds, the choice with its probability, and the cost beside that of tuning every model."""
    text = []
    for number, level in enumerate(found.rounds, 1):
        text += _round(number, level, found.held_out, number == len(found.rounds))
    text += [f"note      {note}" for note in found.ranking.notes]
    text += lines_of(found.ranking.left_out)
    last = found.rounds[-1]
    text.append(f"{LABEL}{found.data}: {found.decision}")
    first, n = len(found.rounds[0].arms), len(found.ranking.models)
    if first < n and not math.isnan(found.within):
        text.append(
            f"          the best of all {n} is among the {first} tuned with {100 * found.within:.0f} %, by the metrics"
        )
    spent, whole = found.steps, found.whole_steps
    text.append(f"cost      {spent:,} steps of fine-tuning, {found.seconds:.0f} s")
    if whole > spent:
        text[-1] += (
            f"; every model with each rate, and with its best one each seed, takes {whole:,} ({whole / spent:.1f} "
            "times as many)"
        )
    if last.arms[0].right is not None:
        text.append(
            f"note      the winner's accuracy on {found.held_out} held-out images of train is optimistic, as it was "
            "chosen by it"
        )
        if found.held_out < FEW:
            text.append(f"note      {found.held_out} held-out images are few: the probabilities are uncertain")
    return text


def _round(number: int, one: Round, n: int, last: bool) -> list[str]:
    text = [
        f"round {number}   {one.steps} steps, {len(one.seeds)} seed{'s' * (len(one.seeds) > 1)}, {n} held-out images"
    ]
    for rank, arm in enumerate(one.arms):
        goes = "dropped" if rank >= one.kept else "chosen" if last else "kept"
        value = f"{100 * arm.value:5.1f} %" if len(arm.values) else "diverged"
        rate = arm.lrs[0] if arm.lrs else math.nan
        lost = f"{100 * one.regret[arm.model]:.1f}" if arm.model in one.regret else "-"
        sure = f"  regret {lost:>4}  best {100 * one.best.get(arm.model, 0):3.0f} %" if one.best else ""
        text.append(f"  {value}{sure}  lr {rate:<7g} {goes:<8} {arm.model}")
    return text


def next_command(found: Halving, data: Any, how: Mapping[str, Any]) -> str:
    """Return the command that measures the winner on test images, with its learning rate. how: the options here."""
    grid = {"lr": [found.lr], "weight_decay": [how["weight_decay"]], "optimizer": how["optimizer"]}
    tuned = {f"fine_tune.{name}": how[name] for name in ("steps", "batch_size", "seeds", "crop")}
    tuned |= {"fine_tune.precision": how["precision"]} if how["precision"] != Options.precision else {}
    unusual = {name: how[name] for name in ("image_size", "trust") if how[name]}
    usual = {"root": AS_USUAL.root, **AS_USUAL.values, "mirror": AS_USUAL.mirror}
    unusual |= {name: how[name] for name in usual if how[name] != usual[name]}
    unusual |= Columns(**how["columns"]).words
    asked = {"checkpoint": found.checkpoint, "data": data, "protocols": ["fine_tune"], "fine_tune.grid": grid}
    return f"python recipes/evaluate.py {words({**asked, **tuned, **unusual})}"


def write(found: Halving, path: Path) -> Path:
    """Write the outcome as JSON, atomically, and return its path."""
    rounds = [
        {
            "steps": level.steps,
            "seeds": list(level.seeds),
            "kept": [arm.model for arm in level.arms[: level.kept]],
            "models": {arm.model: _arm(arm) | _chances(level, arm) for arm in level.arms},
        }
        for level in found.rounds
    ]
    content = {
        "data": found.data,
        "winner": found.winner,
        "lr": found.lr,
        "probability": None if math.isnan(found.probability) else found.probability,
        "within": None if math.isnan(found.within) else found.within,
        "steps": found.steps,
        "whole_steps": found.whole_steps,
        "seconds": found.seconds,
        "images": {"train": found.train, "held_out": found.held_out},
        "ranked": found.ranking.order,
        "notes": list(found.ranking.notes),
        "left_out": dict(found.ranking.left_out),
        "rounds": rounds,
    }
    write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")
    return path


def _arm(arm: Arm) -> dict[str, Any]:
    return {"lrs": list(arm.lrs), "values": list(map(float, arm.values)), "steps": arm.steps, "seconds": arm.seconds}


def _chances(one: Round, arm: Arm) -> dict[str, float | None]:
    """Return regret and probability to be the best of a model; none for several labels, no regret if it diverged."""
    return {"regret": one.regret.get(arm.model), "best": one.best.get(arm.model, 0.0)} if one.best else {}


def plot(found: Halving, path: Path) -> Path:
    """Plot accuracy on the held-out images against the steps of the rounds, a line for each model."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 0.8 + max(2.6, 0.28 * len(found.rounds[0].arms))), layout="constrained")
    axis = figure.subplots()
    for arm in reversed(found.rounds[0].arms):
        points = _curve(found, arm.model)
        won = arm.model == found.winner
        if not points:
            continue
        steps, values = map(np.array, zip(*points, strict=True))
        units = found.held_out if arm.groups is None else independent_rows(arm.groups)
        whiskers = _whiskers(values, units) if arm.right is not None else None
        style = {"color": FIRST if won else OTHERS, "markersize": 4, "elinewidth": 0.9, "zorder": 2 + won}
        axis.errorbar(steps, values, yerr=whiskers, fmt="o-", **style)
    _label(axis, found)
    axis.set_xscale("log", base=2)
    ticks = [level.steps for level in found.rounds]
    axis.set_xticks(ticks, list(map(str, ticks)))
    axis.minorticks_off()
    axis.set_xlim(ticks[0] * 0.9, ticks[-1] * 2)
    axis.set_xlabel("steps of fine-tuning in the round, log scale", fontsize=SMALL)
    axis.set_ylabel(f"accuracy, %; {better()}", fontsize=SMALL)
    lines = "; lines: 95 % intervals" if found.rounds[0].arms[0].right is not None else ""
    words = f"blue: the choice, {short(found.winner)}; {found.held_out} held-out images{lines}"
    panel(axis, f"Fine-tuned on {task_name(found.data)}", words)
    save_figure(figure, path)
    return path


def _whiskers(values: np.ndarray, n: int) -> np.ndarray:
    """The lengths (2, R) of 95 % intervals below and above accuracies (R,) in percent of n images."""
    ends = 100 * np.array([wilson(value / 100, n) for value in values])
    return np.abs(ends - values[:, None]).T


def _curve(found: Halving, model: str) -> list[tuple[int, float]]:
    """Return the steps and the accuracy in percent of the rounds in which a model did not diverge."""
    return [
        (level.steps, 100 * arm.value)
        for level in found.rounds
        for arm in level.arms
        if arm.model == model and len(arm.values)
    ]


def _label(axis: Any, found: Halving) -> None:
    """Write each model's name beside its last point, moved up where names would overlap."""
    low, high = axis.get_ylim()
    last = [(*_curve(found, arm.model)[-1], arm.model) for arm in found.rounds[0].arms if _curve(found, arm.model)]
    height: dict[int, float] = {}
    for steps, value, model in sorted(last):
        height_of_label = height[steps] = max(value, height.get(steps, -math.inf) + GAP * (high - low))
        colour = INK if model == found.winner else QUIET
        axis.text(steps * 1.06, height_of_label, short(model), fontsize=7, va="center", color=colour, parse_math=False)
