"""Settings of a pretraining run that depend on each other."""

from typing import TYPE_CHECKING

from sslkit.errors import UserError, shown

if TYPE_CHECKING:
    from sslkit.training.config import Config, DataConfig, OptimizerConfig

LEAST_POINTS = 5  # images of a t-SNE


def check(config: "Config") -> None:
    """Check the settings that depend on each other; `overlaid` has checked each one alone."""
    name = config.method if isinstance(config.method, str) else config.method.get("name")
    if not isinstance(name, str):
        raise UserError(f'method needs a name: {{"name": "byol+dsa", ...}}, got {shown(config.method)}')
    few = min(config.eval.tsne, config.eval.max_images)
    if 0 < few < LEAST_POINTS:
        name = "tsne" if few == config.eval.tsne else "max_images"
        raise UserError(
            f"eval.{name}={few} is too few for the picture: at least {LEAST_POINTS}, or eval.tsne=0 for none"
        )
    if config.eval.max_images < config.eval.k:
        raise UserError(
            f"eval.max_images={config.eval.max_images} must be at least eval.k={config.eval.k}, the kNN neighbours"
        )
    check_optimizer(config.optimizer, config.epochs)
    if config.freeze_norm and config.init is None:
        raise UserError("freeze_norm=true keeps the batch normalisation of init=: give init=, or leave it out")
    _check_videos(config.data)


def check_optimizer(optimizer: "OptimizerConfig", epochs: float) -> None:
    """Raises UserError for a rate that falls before it has risen, and for LARS without one."""
    if optimizer.schedule == "step" and max(optimizer.drops, default=0) >= epochs:
        raise UserError(
            f"optimizer.drops={shown(list(optimizer.drops))} are epochs before the end, and the run has {epochs:g}: "
            "the learning rate would fall before its first step; give later ones, such as optimizer.drops=[2,1]"
        )
    if optimizer.name == "lars" and optimizer.lr is None:
        raise UserError(
            "optimizer.name=lars needs optimizer.lr: a step moves a matrix by about lr / 1000 of its length "
            "(published: 0.3 for SimCLR, 0.2 for BYOL, both with optimizer.lr_scaling=linear)"
        )


def _check_videos(data: "DataConfig") -> None:
    if data.is_video and data.channels not in (None, 3):
        raise UserError(f"data.channels={data.channels}: videos are read as RGB, 3 channels")
    for name, usual in (("range", None), ("pages", "first"), ("max_pixels", None)):
        if data.is_video and (value := getattr(data, name)) != usual:
            raise UserError(f"data.{name}={value} is for images, and data={data.source!r} are videos: leave it out")
    given = [name for name in ("frames", "stride", "clips", "decoder") if getattr(data, name) is not None]
    if given and not data.is_video:
        raise UserError(f"data.{given[0]} is for videos, and data={data.source!r} are images: write data=video:FOLDER")
