"""The lines of a run: what is trained and every automatic choice, and at the end results and next steps."""

import math
from pathlib import Path

from sslkit import backbones
from sslkit.composition.method import Method
from sslkit.options import members
from sslkit.options.members import parse
from sslkit.runtime import processes
from sslkit.runtime.hardware import precision
from sslkit.terminal import say
from sslkit.terminal.say import counted, printable, words
from sslkit.training.build import batches, describe_tuned, steps
from sslkit.training.choosing import describe_choice
from sslkit.training.config import Config
from sslkit.training.data import Data
from sslkit.training.following import following, gentler_settings
from sslkit.training.machine import compile_hint, describe_share, reading
from sslkit.training.optimizers import images_of_step, layer_decay, peak_lr
from sslkit.training.results import decide, gains_of, list_results
from sslkit.training.settled import Settled
from sslkit.zoo.entry import WEIGHTS, ZooEntry

# optimiser steps of a run, up to which a note says so: a round number; the rate has then hardly been at its peak
FEW_STEPS = 100
PICTURES = ("views.png", "loss.png", "embedding.png", "patches.png")


def announce(settled: Settled, data: Data, method: Method, folder: Path, checkpoint: Path | None) -> None:
    """Print the first lines of a run: method, data and every choice made automatically."""
    if not processes.is_main():
        return
    config, asked = settled.config, settled.asked
    body = method.backbone
    train = data.train
    use = "to learn from" if method.objective.needs_labels else "only to evaluate"
    uses_labels = train.labels is not None and (data.bank is not None or method.objective.needs_labels)
    several = train.multi_labels is not None
    without = f"{len(train.classes)} classes, several an image (not read here)" if several else "no labels"
    labels = f"{len(train.classes)} classes ({use})" if uses_labels else without
    size = f"{data.image_size} px, {counted(train.channels, 'channel')}"
    count = batches(config, data)
    parameters = sum(p.numel() for p in body.parameters()) / 1e6
    lines = [
        f"{'resuming' if checkpoint else 'run'}       {folder}",
        f"method    {method.name}, seed {config.seed}",
        f"data      {config.data.source}: {len(train):,} {data.unit}, {size}, {labels}",
        *train.describe(),
        *_init(method),
        f"backbone  {body.recipe.name}{_chosen(asked, method, data)}: {parameters:.2f} M parameters, "
        f"{body.width} features, stem {body.recipe.stem}",
        f"training  {_training(config, data, count)}",
        *reading(config, data),
        f"{config.optimizer.name:<9} {_optimizer(config, method, count, data.unit)}",
        *describe_tuned(config, data, method),
    ]
    lines += describe_choice(config, data)
    reasons = [choice.reason for choice in settled.chosen.values() if choice.reason]
    lines += [f"chosen    {'; '.join(reasons)}"] if reasons else []
    lines += [f"{name:<9} {text}" for name, text in method.describe().items()]
    lines += [f"note      {body.unseen} (image_size)"] if body.unseen else []
    lines += [*_notes_on_size(config, method, data), *_few(config, data)]
    lines += compile_hint(config, method, steps(config, data))
    say.lines("\n".join(printable(line, keep="") for line in lines))


def _init(method: Method) -> list[str]:
    """Lines on the initial weights; none for a random start."""
    origin = method.backbone.recipe.origin
    if origin is None:
        return []
    mean, std = (", ".join(f"{value:.4g}" for value in values) for values in origin.normalize)
    notes = (*origin.notes, f"pixels normalised by their mean {mean} and std {std}")
    return [f"init      {origin.source}, sha256 {origin.sha256}", *(f"          {note}" for note in notes)]


def _training(config: Config, data: Data, batches: int) -> str:
    """Epochs, steps and who shares a batch; the precision, and what changes the way in which the network is run."""
    trainer, size = config.trainer, config.batch_size
    steps = (
        f"{counted(config.epochs, 'epoch')} of {counted(batches, 'step')} x {size} {data.unit}{describe_share(config)}"
    )
    ways = {"compiled": trainer.compile, "activations recomputed": trainer.checkpoint_activations}
    ways = [way for way, used in ways.items() if used]
    return ", ".join([steps, precision(config.precision, config.device), *ways])


def _optimizer(config: Config, method: Method, batches: int, unit: str) -> str:
    """The learning rates as used, and the weight decay. batches: of an epoch. unit: of the data."""
    optimizer, images = config.optimizer, images_of_step(config, batches)
    factor = {
        "none": "",
        "linear": f" = {optimizer.lr:g} x {images}/256",
        "sqrt": f" = {optimizer.lr:g} x sqrt({images}/256)",
    }
    decay = f"{optimizer.weight_decay:g}" + (
        "" if optimizer.weight_decay_end is None else f" to {optimizer.weight_decay_end:g}"
    )
    parts = [f"lr {peak_lr(config, batches):.4g}{factor[optimizer.lr_scaling]}"]
    if optimizer.head_lr is not None:
        parts.append(f"new parts {peak_lr(config, batches) * optimizer.head_lr / optimizer.lr:.4g}")
    if (falls := layer_decay(method, optimizer)) is not None:
        parts.append(f"x {falls:g} from each layer to the one before")
    if config.trainer.accumulate > 1:
        parts.append(_describe_accumulation(config, batches, images, unit))
    return ", ".join([*parts, f"weight decay {decay}"])


def _describe_accumulation(config: Config, batches: int, images: int, unit: str) -> str:
    """The images and batches of an optimiser step, and of the last one of an epoch where it has fewer."""
    asked = config.trainer.accumulate
    many = min(asked, batches)
    told = f"a step of {images} {unit} every {f'{many} batches' if many > 1 else 'batch'}"
    if asked > batches:
        return f"{told}, as an epoch has no more (trainer.accumulate={asked})"
    left = batches % asked
    return f"{told}, the last of an epoch of {left * config.batch_size}" if left else told


def _chosen(asked: Config, method: Method, data: Data) -> str:
    """A note if the network was chosen automatically."""
    family, size, frames = method.objective.families[0], data.image_size, method.backbone.item.frames
    fitting, smaller = (backbones.default(family, size, frames, on_cpu=on_cpu) for on_cpu in (False, True))
    name = method.backbone.recipe.name
    if asked.backbone != "auto" or asked.init or name not in (fitting, smaller):
        return ""
    published = "" if name == fitting else f" on a CPU; as published backbone={fitting}"
    return f" (for {parse(method.name)[0]} at {size} px{published})"


def _notes_on_size(config: Config, method: Method, data: Data) -> list[str]:
    """Notes on defaults made for ImageNet that do not suit these images."""
    chosen = config.method_options().get("objective") or {}
    options = {**members.options(type(method.objective)), **chosen}
    rows = len(data.train)
    return [
        f"note      {option}={options[option]:,} suits more than {rows:,} {data.unit}: set method.objective.{option}, "
        f"or take experiment={parse(method.name)[0]}"
        for option in ("queue_size", "prototypes")
        if options.get(option, 0) > rows
    ]


def _few(config: Config, data: Data) -> list[str]:
    """A note on a run of few steps."""
    count = steps(config, data)
    if count >= FEW_STEPS:
        return []
    epochs = math.ceil(FEW_STEPS * config.epochs / count)
    return [
        f"note      {counted(count, 'step')} in all {'is' if count == 1 else 'are'} few: try epochs={epochs} or more"
    ]


def summary(entry: ZooEntry, data: Data, asked: Config, elapsed: float) -> str:
    """The lines printed at the end of a run. Commands are written as in a clone; see `say.as_started`.

    asked: the settings as given, from which the next command is made. elapsed: seconds since the run was started or
        resumed, with evaluation and pictures.
    """
    card, folder = entry.card, entry.folder
    is_whole = card["seconds"] <= elapsed  # a resumed run has trained before, too
    took = f"in {elapsed:.0f} s, {card['seconds']:.0f} s of them" if is_whole else f"after {card['seconds']:.0f} s of"
    lines = ["", f"done {took} training: {folder}", *list_results(card, data), *decide(folder.name, card, data)]
    gentler = {}
    if worse := [f"{name} {gain}" for name, gain in gains_of(card).items() if gain.high < 0]:
        gentler = gentler_settings(asked)
        ways = ", ".join(filter(None, (words(gentler), "more epochs")))
        lines += ["", f"  worse than before training, on the same images: {', '.join(worse)}", f"  try       {ways}"]
    if paths := card.get("unreadable"):
        shown = paths[:5] + ([f"... all in {folder / 'card.json'}"] if len(paths) > 5 else [])
        unit = data.unit if len(paths) > 1 else data.unit.removesuffix("s")
        names = [f"    {printable(path, keep='')}" for path in shown]
        lines += ["", f"  {len(paths)} unreadable {unit} left out:", *names]
    pictures = [name for name in PICTURES if (folder / name).is_file()]
    lines += ["", f"  weights   {WEIGHTS}; card.json says how to load it without sslkit"]
    lines += [f"  pictures  {', '.join([*pictures, 'metrics.csv'])}"]
    return "\n".join([*lines, *following(entry, data, asked, gentler)])
