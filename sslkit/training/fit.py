"""pretrain(config) -> ZooEntry, the function behind recipes/train.py."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from sslkit import objectives
from sslkit.composition.method import Method, classes, method, parse
from sslkit.composition.step_checks import check_batch, check_clips
from sslkit.errors import UserError, nearest
from sslkit.options import members
from sslkit.terminal import say
from sslkit.training import checkpoint_files, chosen, origin, own_data, run
from sslkit.training.config import Config
from sslkit.training.data import Data, normalization, open_data, rescale, settled, withhold
from sslkit.training.given import as_in
from sslkit.zoo.entry import CARD, ZooEntry


def pretrain(config: Mapping[str, Any] | Config, *, backbone: nn.Module | None = None) -> ZooEntry | None:
    """Pretrain a backbone and write a zoo entry; every setting and its default is in `sslkit.training.config`.

    config: {"method": "byol+dsa", "data": "path/or/name", "epochs": 100, "trainer.devices": 2, ...}, keys as on the
        command line, or nested as in config.yaml. "data" may also be a list of folders, a map-style Dataset, or images
        of `sslkit.open_images`.
    backbone: a module object instead of config["backbone"].
    config["init"]: the weights to start from, see `sslkit.zoo.start`; they name the backbone.
    Returns the entry on rank 0, None on other ranks. Raises UserError for bad input, before anything is computed.
    """
    config, own = (config, None) if isinstance(config, Config) else own_data.named(config)
    config = config if isinstance(config, Config) else Config.from_mapping(config)
    from sslkit.training import train, trainer  # load Fabric, too slow for `--help`

    check_parts(config)
    trainer.check_trainer(config)
    data = open_data(config, own)
    asked, config = config, chosen.with_options(config, data)
    model = build_method(config, data, backbone)
    _ = data.train.listing  # refuse a file that has gone before a folder is made
    config, folder, resumed = _started(asked, chosen.with_rate(config, model), data, model)
    if config.resume and run.finished(folder):
        return _finished(folder, data)
    is_rescaled = rescale(data, config)
    if is_rescaled or config.method_options() != chosen.with_options(asked, data).method_options():  # an older run's
        model = build_method(config, data, backbone)
    return train.train(config, data, model, folder, resumed, asked)


def _finished(folder: Path, data: Data) -> ZooEntry:
    """The entry of a finished run. Raises UserError for other images, and a damaged one, with the way to rewrite it."""
    if run.is_main():
        run.sweep(folder)
        checkpoint_files.tidy(folder)
    try:
        entry = ZooEntry.load(folder)
    except UserError as error:
        raise UserError(f"{error}; remove {folder / CARD} and resume=true writes it again") from error
    if run.is_main() and entry.card.get("data", {}).get("digest") != data.train.digest:
        raise UserError(f"{folder} is finished, but the images have changed since: start a new run")
    say.line(f"{folder} is already finished; nothing to do")
    return entry


def build_method(config: Config, data: Data, backbone: nn.Module | None = None) -> Method:
    """The method of a config for its data. Raises UserError if it needs labels and the data has none."""
    options = config.method_options()
    member = objectives.find(parse(config.method_name)[0])
    if member.needs_labels:
        options["objective"] = _with_classes(options.get("objective") or {}, data, config)
        withhold(data)
    body = origin.started(config, data, backbone)
    loaded = origin.tensors(body) if body else {}
    built = method(
        config.method_name,
        backbone=body or backbone or config.backbone,
        image_size=data.image_size,
        in_chans=data.train.channels,
        frames=getattr(data.train, "frames", None),
        normalize=body.recipe.origin.normalize if body else normalization(data.train),
        seed=config.seed,
        **options,
    )
    origin.check_kept(built, loaded)
    _set_network(config, built)
    check_batch(built, config.data.batch_size)
    if data.clips is not None:
        check_clips(built, data.clips)
    built.check(data.train if data.clean is None else data.clean)
    return built


def _set_network(config: Config, built: Method) -> None:
    """Apply the settings that not every network has. Raises UserError for one that has not."""
    from sslkit.training import optimizers, recomputing  # load Lightning

    if config.optimizer.layer_decay is not None:
        optimizers.layer_rates(built, config.optimizer.layer_decay)
    if config.trainer.checkpoint_activations:
        recomputing.recompute(built.backbone)


def check_parts(config: Config) -> None:
    """Check the method's name and options before any data is read.

    Raises UserError for an unknown part or option and for a value out of range.
    """
    name, options = config.method_name, config.method_options()
    parts = classes(name)
    for part, given in options.items():
        if part not in (*parts, "views"):
            raise UserError(f"{name!r} has no part {part!r}: {nearest(part, [*parts, 'views'])}")
        if part != "views" and given is not None:
            members.check_options(parts[part], given, part)


def _with_classes(options: Mapping[str, Any], data: Data, config: Config) -> dict[str, Any]:
    """Options with `classes`: the number of classes of the data, unless a larger one is given."""
    if data.train.labels is None or len(data.train.classes) < 2:
        known = data.train.classes if data.train.labels is not None else None
        found = f"one class, {known[0]!r}" if known else "none"
        found = found if data.train.multi_labels is None else "several an image"
        raise UserError(
            f"method={config.method_name} learns from labels, one an image, and data {config.data.source!r} has "
            f"{found}: give at least two class folders, y_train in a .npz file, .cls, .json or .txt members in shards, "
            "a column label in a Hugging Face data set or a list, or targets of a Dataset"
        )
    found, asked = len(data.train.classes), options.get("classes")
    if asked is not None and asked < found:
        raise UserError(f"method.objective.classes={asked}, but {config.data.source!r} has {found} classes")
    return {**options, "classes": asked or found}


def _started(asked: Config, config: Config, data: Data, model: Method) -> tuple[Config, Path, Path | None]:
    """The settled config, the run's folder, and the checkpoint to go on from, None for a new run.

    asked: the settings as given. config: with those chosen for a new run.
    """
    out = Path(config.out)
    name = run.base_name(config, model.backbone.recipe.name)
    last = run.newest(out, name)
    if config.resume or (run.is_requeued() and last is not None and not run.finished(last)):
        begun = None if last is None else run.settings_of(last)
        config = settled(config if begun is None else as_in(asked, begun), data, last)
        return config, *run.to_resume(out, name, config)
    config = settled(config, data, None)
    folder = run.fresh(out, name)
    if run.is_main():
        run.create(folder, config)
    return config, folder, None
