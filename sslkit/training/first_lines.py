"""The first lines of a run: its method, its data, and every choice made automatically."""

from pathlib import Path

from sslkit import backbones
from sslkit.composition.method import Method, parse
from sslkit.options import members
from sslkit.terminal import say
from sslkit.terminal.columns import printable
from sslkit.terminal.plurals import counted
from sslkit.training import chosen, launched, origin, run
from sslkit.training.config import Config
from sslkit.training.data import Data
from sslkit.training.precision import precision
from sslkit.training.schedules import images_of_step, peak_lr


def announce(config: Config, data: Data, method: Method, folder: Path, checkpoint: Path | None, asked: Config) -> None:
    """Print the first lines of a run: method, data and every choice made automatically. asked: settings as given."""
    if not run.is_main():
        return
    body = method.backbone
    train = data.train
    use = "to learn from" if method.objective.needs_labels else "only to judge"
    known = train.labels is not None and (data.bank is not None or method.objective.needs_labels)
    several = train.multi_labels is not None
    without = f"{len(train.classes)} classes, several an image (not read here)" if several else "no labels"
    labels = f"{len(train.classes)} classes ({use})" if known else without
    size = f"{data.image_size} px, {counted(train.channels, 'channel')}"
    epochs = counted(config.epochs, "epoch")
    batches = chosen.batches(config, data)
    steps = counted(batches, "step")
    parameters = sum(p.numel() for p in body.parameters()) / 1e6
    lines = [
        f"{'resuming' if checkpoint else 'run'}       {folder}",
        f"method    {method.name}, seed {config.seed}",
        f"data      {config.data.source}: {len(train):,} {data.unit}, {size}, {labels}",
        *_clips(data),
        *origin.lines(method),
        f"backbone  {body.recipe.name}{_chosen(config, method, data)}: {parameters:.2f} M parameters, "
        f"{body.width} features, stem {body.recipe.stem}",
        f"training  {epochs} of {steps} x {config.data.batch_size} {data.unit}{_shared(config)}, {_computed(config)}",
        f"{config.optimizer.name:<9} {_optimizer(config, batches)}",
    ]
    lines += chosen.line(asked, config)
    lines += [f"{name:<9} {text}" for name, text in method.describe().items()]
    lines += [f"note      {body.unseen} (data.image_size)"] if body.unseen else []
    lines += _oversized(config, method, data)
    say.lines("\n".join(printable(line, keep="") for line in lines))


def _shared(config: Config) -> str:
    """The processes that share each batch, if there are several."""
    ranks = launched.processes(config)
    return f" ({config.data.batch_size // ranks} on each of {ranks} processes)" if ranks > 1 else ""


def _computed(config: Config) -> str:
    """The precision, and what changes the way in which the network is run."""
    trainer = config.trainer
    ways = {"compiled": trainer.compile, "activations recomputed": trainer.checkpoint_activations}
    return ", ".join([precision(trainer.precision, trainer.accelerator), *(way for way, used in ways.items() if used)])


def _optimizer(config: Config, batches: int) -> str:
    """The learning rate as used, and the weight decay. batches: of an epoch."""
    own, images = config.optimizer, images_of_step(config, batches)
    factor = {"none": "", "linear": f" = {own.lr:g} x {images}/256", "sqrt": f" = {own.lr:g} x sqrt({images}/256)"}
    decay = f"{own.weight_decay:g}" + ("" if own.weight_decay_end is None else f" to {own.weight_decay_end:g}")
    parts = [f"lr {peak_lr(config, batches):.4g}{factor[own.lr_scaling]}"]
    if own.layer_decay is not None:
        parts.append(f"x {own.layer_decay:g} from each layer to the one before")
    if config.trainer.accumulate > 1:
        parts.append(_accumulated(config, batches, images))
    return ", ".join([*parts, f"weight decay {decay}"])


def _accumulated(config: Config, batches: int, images: int) -> str:
    """The images and batches of an optimiser step, and of the last one of an epoch where it has fewer."""
    unit = "videos" if config.data.is_video else "images"
    asked = config.trainer.accumulate
    many = min(asked, batches)
    told = f"a step of {images} {unit} every {f'{many} batches' if many > 1 else 'batch'}"
    if asked > batches:
        return f"{told}, as an epoch has no more (trainer.accumulate={asked})"
    left = batches % asked
    return f"{told}, the last of an epoch of {left * config.data.batch_size}" if left else told


def _chosen(config: Config, method: Method, data: Data) -> str:
    """A note if the network was chosen automatically."""
    fitting = backbones.default(method.objective.families[0], data.image_size, method.backbone.frames)
    asked = config.backbone != "auto" or config.init or method.backbone.recipe.name != fitting
    return "" if asked else f" (for {parse(method.name)[0]} at {data.image_size} px)"


def _clips(data: Data) -> list[str]:
    """A line on the clips read from each video."""
    if data.clips is None:
        return []
    train = data.train
    return [
        f"clips     {data.clips} of each video in a step, {train.frames} frames, stride {train.options.stride}, "
        f"decoded by {train.reader.name}"
    ]


def _oversized(config: Config, method: Method, data: Data) -> list[str]:
    """Notes on defaults made for ImageNet that do not suit these images."""
    given = config.method_options().get("objective") or {}
    options = {**members.options(type(method.objective)), **given}
    rows = len(data.train)
    return [
        f"note      {option}={options[option]:,} suits more than {rows:,} {data.unit}: set method.objective.{option}, "
        f"or take experiment={parse(method.name)[0]}"
        for option in ("queue_size", "prototypes")
        if options.get(option, 0) > rows
    ]
