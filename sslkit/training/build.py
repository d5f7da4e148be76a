"""The method of a run: the settings that are chosen where none are given, its network, the weights it starts from.

The choices are for small images, short runs and the small network. They were measured on the embedded Fashion-MNIST:
learning rates by recipes/benchmarks/objectives, on held-out training images, where the 11 objectives of narrow_resnet
were all best with this one of 0.001, 0.003, 0.009.
"""

from collections.abc import Mapping
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn

from sslkit import backbones
from sslkit.backbones import norm_statistics, tune, tuning, words
from sslkit.backbones.base import Backbone
from sslkit.composition.method import Method, method
from sslkit.composition.step_checks import check_batch, check_clips
from sslkit.data.images import Images
from sslkit.data.loader import batches_in_order, read_spaced
from sslkit.data.mirror import is_mirrored
from sslkit.data.views.recipe import SMALL, SMALL_SCALE, for_item
from sslkit.errors import UserError, nearest
from sslkit.options import members
from sslkit.options.members import classes, signature
from sslkit.runtime.device import use_seed
from sslkit.runtime.hardware import is_cpu, recompute
from sslkit.terminal.say import counted
from sslkit.training.config import Config
from sslkit.training.data import CPU_SIZE, PUBLISHED_SIZE, Data, withhold
from sslkit.training.optimizers import layer_rates
from sslkit.training.settled import NOT_GIVEN, Choice, value_at
from sslkit.training.unfreezing import SHARE, count_steps
from sslkit.zoo.start import start

# AdamW's peak for other networks: a round number between those tried for the narrow one, not tuned itself
RATE = 0.002
GENTLE = 3e-5  # AdamW's for given weights: chosen on a held-out fifth of clip art, benchmarks/LOG.md
# with adamw; tuned on held-out images of Fashion-MNIST: recipes/benchmarks/objectives and constants.json
NARROW, NARROW_RATE, NARROW_BATCH = "narrow_resnet", 0.009, 128
LORA_TIMES = 10  # Schulman 2025, LoRA Without Regret: ten times the rate of all weights; not measured here
_AT_ONCE = 128  # images of a batch for statistics
MEMORY = 8  # the teacher averages the last 1 / MEMORY of a short run: a round number
MOMENTA = 0.9, 0.996  # of a teacher: least, and BYOL's, which runs of 2,000 steps have


def batches(config: Config, data: Data) -> int:
    """Batches of an epoch, each full."""
    return len(data.train) // config.batch_size


def steps(config: Config, data: Data) -> int:
    """Optimiser steps of the whole run."""
    return config.epochs * -(-batches(config, data) // config.trainer.accumulate)


def heads_first(config: Config, data: Data, method: Method) -> int:
    """Steps of the run in which the new parts learn alone."""
    return count_steps(config.unfreeze, method, steps(config, data), config.epochs)


def describe_tuned(config: Config, data: Data, method: Method) -> list[str]:
    """A line on what is trained of given weights, and when; none for random ones."""
    if method.backbone.recipe.origin is None:
        return []
    count, first = steps(config, data), heads_first(config, data, method)
    alone = f"new parts alone for {first:,} of {counted(count, 'step')}, then " if first else ""
    learned, every = (
        sum(p.numel() for p in method.backbone.parameters() if p.requires_grad or whole) / 1e6 for whole in (0, 1)
    )
    return [f"tuned     {alone}{method.backbone.tuned}: {learned:.2f} M of {every:.2f} M parameters"]


def choose(asked: Config, data: Data, module: nn.Module | None = None) -> dict[str, Choice]:
    """What a new run chooses of the settings that are not given, by their paths, with the reasons to be told.

    The network; views of files of a size that the machine finishes; a higher learning rate for a new narrow_resnet, if
    batches are not small; crops of at least a fifth of the area for images of at most 64 pixels, if the recipe has the
    papers' 8 %; no mirror images where these are of another class; a teacher's momentum of 1 - 8 / steps, from 0.9 to
    0.996, for an objective with momentum=None; and the scale of the images as it was found.
    module: of `sslkit.pretrain`.
    """
    objective, scale = classes(asked.method_name)["objective"], data.train.scale
    network = _network(asked, objective, data) if asked.init is None and module is None else None
    choices = {"backbone": Choice(network), "optimizer.lr": _rate(asked, network, objective.rate)}
    if asked.init:
        new = max(RATE, asked.optimizer.lr or 0) if asked.optimizer.name == "adamw" else None
        choices |= {"tune": Choice(tune.ALL), "unfreeze": Choice(SHARE), "optimizer.head_lr": Choice(new)}
    if data.image_size <= SMALL and for_item(objective.views, data.train.item).has_papers_scale():
        share = f"crops from {100 * SMALL_SCALE[0]:g} % of the area for small images"
        choices["method.views.scale"] = Choice(list(SMALL_SCALE), share)
    if data.train.view_size is None:
        finishes = f"{CPU_SIZE} px, which a CPU finishes (as published: image_size={PUBLISHED_SIZE})"
        choices["image_size"] = Choice(data.image_size, finishes if data.image_size == CPU_SIZE else "")
    if not is_mirrored(asked.mirror, data.train.classes, str(asked.data.source), data.train.mirror):
        choices["method.views.flip"] = Choice(0.0, "no mirror images")
    if signature(asked.method_name)["objective"].get("momentum", 0) is None:
        least, most = MOMENTA
        momentum = min(most, max(least, round(1 - MEMORY / max(1, steps(asked, data)), 3)))
        told = f"teacher's momentum {momentum:g} for the run's length"
        choices["method.objective.momentum"] = Choice(momentum, told)
    for option, value in objective.continued.items() if asked.init is not None else ():
        choices[f"method.objective.{option}"] = Choice(value, f"{option} {value} to continue")
    range = scale.range and [int(value) if value.is_integer() else value for value in scale.range]
    choices |= {"range": Choice(range), "opacity": Choice(scale.opacity), "fill": Choice(scale.fill)}
    chosen = {path: choice for path, choice in choices.items() if choice.value is not None}
    return {path: choice for path, choice in chosen.items() if value_at(asked, path) in NOT_GIVEN}


def _rate(asked: Config, network: str | None, published: float | None) -> Choice:
    """The learning rate of this network. network: None: one that is given. published: the objective's own, if any."""
    optimizer = asked.optimizer
    if asked.init and optimizer.name == "adamw":
        is_lora = asked.tune is not None and tune.parse(asked.tune).kind == tune.LORA
        return Choice(GENTLE * (LORA_TIMES if is_lora else 1))
    if published and optimizer.name == "adamw" and optimizer.lr_scaling == "none":
        return Choice(published, f"learning rate {published:g} as published")
    if network == NARROW and optimizer.name == "adamw" and optimizer.lr_scaling == "none":
        rate = float(f"{NARROW_RATE * min(1, sqrt(asked.batch_size / NARROW_BATCH)):.2g}")
        if rate > RATE:
            return Choice(rate, f"learning rate {rate:g} for {NARROW}")
    return Choice(RATE)


def check_parts(config: Config) -> None:
    """Check the method's name and options before any data is read.

    Raises UserError for an unknown part or option and for a value out of range.
    """
    name, options = config.method_name, config.method_options()
    parts = classes(name)
    for piece, chosen in options.items():
        if piece not in (*parts, "views"):
            raise UserError(f"{name!r} has no part {piece!r}: {nearest(piece, [*parts, 'views'])}")
        if piece != "views" and chosen is not None:
            members.check_options(parts[piece], chosen, piece)


def build_method(config: Config, data: Data, backbone: nn.Module | None = None) -> Method:
    """The method of a config for its data. Raises UserError if it needs labels and the data has none.

    Raises it too for a setting that the network does not have.
    """
    options = config.method_options()
    if classes(config.method_name)["objective"].needs_labels:
        options["objective"] = _with_classes(options.get("objective") or {}, data, config)
        withhold(data)
    if "images" in members.options(classes(config.method_name)["objective"]):
        options["objective"] = _with_images(options.get("objective") or {}, data, config)
    body = None if config.init is None else start_network(config, data, backbone)
    loaded = {name: value.clone() for name, value in body.net.state_dict().items()} if body else {}
    built = method(
        config.method_name,
        backbone=body or backbone or _network(config, classes(config.method_name)["objective"], data),
        image_size=data.image_size,
        in_chans=data.train.channels,
        frames=data.train.item.frames,
        normalize=body.recipe.origin.normalize if body else normalization(data.train),
        seed=config.seed,
        **options,
    )
    if body:
        check_kept(built, loaded)
    if built.anchors.last_epoch >= config.epochs:
        raise UserError(f"prior=epoch:{built.anchors.last_epoch}: the run ends after {config.epochs} epochs, before it")
    if config.optimizer.layer_decay is not None:
        layer_rates(built, config.optimizer.layer_decay)  # refuses a network without layers
    if config.trainer.checkpoint_activations:
        recompute(built.backbone.net, built.backbone.recipe.name)
    if config.trainer.strategy == "fsdp":
        check_shares(config, built)
    check_batch(built, config.batch_size)
    check_clips(built, data.train.item.of_row)
    built.check(data.fixed)
    return built


def check_shares(config: Config, built: Method) -> None:
    """Raises UserError for what `trainer.strategy=fsdp` cannot put into shares, with the reason."""
    scalars = [name for name, p in built.named_parameters() if not p.dim()]
    reasons = {
        f"backbone {built.backbone.recipe.name} is no ViT: its weights are small beside its activations": (
            not built.backbone.is_vit
        ),
        "optimizer.name=lars needs the norm of each whole weight": config.optimizer.name == "lars",
        "precision=float16 scales the gradients of whole weights: take bfloat16": (config.precision == "float16"),
        f"{built.name} sets weights to the images' features before the first step": built.objective.fits_weights,
        "trainer.compile=true compiles blocks whose weights are whole": config.trainer.compile,
        f"tune={config.tune} computes each weight from a whole one and its update": (
            tune.parse(config.tune or tune.ALL).kind == tune.LORA
        ),
        f"{built.name} learns a single number, {', '.join(scalars)}, which has no shares": bool(scalars),
    }
    for reason, holds in reasons.items():
        if holds:
            raise UserError(f"trainer.strategy=fsdp: {reason}; trainer.strategy=ddp does it")


def _network(config: Config, objective: type, data: Data) -> str:
    """The network's name; on a CPU `auto` is a smaller one than as published, which finishes."""
    if config.backbone != words.AUTO:
        return config.backbone
    frames, on_cpu = data.train.item.frames, is_cpu(config.device)
    return backbones.default(objective.families[0], data.image_size, frames, on_cpu=on_cpu)


def normalization(images: Images) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """None (ImageNet's) for three channels, otherwise mean and std of up to 2,000 images, evenly spaced."""
    if images.channels == 3:
        return None
    rows = torch.linspace(0, len(images) - 1, min(len(images), 2000)).long().unique().tolist()
    read = [batch["images"] for _, batch in batches_in_order(images, rows, _AT_ONCE)]
    pixels = torch.cat(read).float().transpose(0, 1).flatten(1) / 255
    mean, std = pixels.mean(1), pixels.std(1).clamp_min(1e-3)
    return tuple(round(v, 4) for v in mean.tolist()), tuple(round(v, 4) for v in std.tolist())


def _with_classes(options: Mapping[str, Any], data: Data, config: Config) -> dict[str, Any]:
    """Options with `classes`: the number of classes of the data, unless a larger one is given."""
    if data.train.labels is None or len(data.train.classes) < 2:
        names = data.train.classes if data.train.labels is not None else None
        labels = f"one class, {names[0]!r}" if names else "none"
        labels = labels if data.train.multi_labels is None else "several an image"
        raise UserError(
            f"method={config.method_name} learns from labels, one an image, and data {config.data.source!r} has "
            f"{labels}: give at least two class folders, y_train in a .npz file, .cls, .json or .txt members in "
            "shards, a column label in a Hugging Face data set or a list, or targets of a Dataset"
        )
    in_data, asked = len(data.train.classes), options.get("classes")
    if asked is not None and asked < in_data:
        raise UserError(f"method.objective.classes={asked}, but {config.data.source!r} has {in_data} classes")
    return {**options, "classes": asked or in_data}


def _with_images(options: Mapping[str, Any], data: Data, config: Config) -> dict[str, Any]:
    """Options with `images`: the number of images of the data, unless a larger one is given."""
    count, asked = len(data.train), options.get("images")
    if asked is not None and asked < count:
        raise UserError(f"method.objective.images={asked}, but {config.data.source!r} has {count}: leave it out")
    return {**options, "images": asked or count}


def start_network(config: Config, data: Data, module: nn.Module | None) -> Backbone:
    """The network that init= names, with its weights. module: of `sslkit.pretrain`.

    Raises UserError as `sslkit.zoo.start` and `sslkit.backbones.tune` do, and if a module object is given too.
    """
    if module is not None:
        raise UserError(f"init={config.init} names the network: leave out the module object given as backbone")
    body = start(
        config.init,
        image_size=data.image_size,
        in_chans=data.train.channels,
        frames=data.train.item.frames,
        backbone=config.backbone,
    )
    if words.parse(config.init, "").kind and norm_statistics.has_statistics(body.net, data.train.item):
        pixels = read_spaced(data.train.clean(data.image_size), norm_statistics.IMAGES)
        note = norm_statistics.contradiction(body.net, pixels, *body.recipe.origin.normalize)
        norm_statistics.warn(f"init={config.init}", note)
    with use_seed(config.seed):  # of what LoRA draws
        body.tuned = tuning.train_part(body, tune.parse(config.tune or tune.ALL))
    return body


def check_kept(method: Method, loaded: dict[str, Tensor]) -> None:
    """Raises UserError, with the tensors, if making the objective has replaced weights that were loaded."""
    now = method.backbone.net.state_dict()
    lost = [name for name, value in loaded.items() if name not in now or not torch.equal(now[name], value)]
    if lost:
        learned = lost == ["pos_embed"] and "position" in members.options(type(method.objective))
        remedy = "set method.objective.position=learned" if learned else "take another objective"
        source = method.backbone.recipe.origin.source
        raise UserError(f"method={method.name} would replace {', '.join(lost[:4])} of init={source}: {remedy}")
