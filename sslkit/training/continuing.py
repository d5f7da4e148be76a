"""Whether to go on from the weights of init=, before it is done: `dry=true`, and a pilot of some minutes on request."""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
from torch import Tensor

from sslkit.backbones import norm_statistics
from sslkit.composition.method import Method
from sslkit.data.cached_images import CachedImages
from sslkit.data.loader import evenly
from sslkit.decision import LABEL, Continuing
from sslkit.errors import UserError
from sslkit.numerics import diagnostics
from sslkit.numerics.accuracy import knn_hits
from sslkit.numerics.paired import Paired
from sslkit.options.durations import seconds_of
from sslkit.terminal import say
from sslkit.terminal.say import lasting
from sslkit.training.config import Config
from sslkit.training.data import Data, cap, too_few
from sslkit.training.estimate import measure_epoch
from sslkit.training.machine import ranks_of
from sslkit.training.quick_evaluation import embed_all, features, shrink

IMAGES = 200  # of each part: a ViT-B/16 passes over both in about a minute of two cores
Pilot = Callable[[Config], Mapping[str, Paired]]  # a run with these settings, and what it gains over its start


@say.print_by_default()
def announce_continuing(asked: Config, config: Config, data: Data, built: Method, train: Pilot) -> None:
    """Print how far the images are from what the weights know, the time, and whether to go on.

    asked: the settings as given. config: with what was chosen. Raises UserError for a pilot of less than an epoch.
    """
    images = take_evenly(data.bank or cap(data.train.clean(data.image_size), config))
    x, y = features(built, images)
    uniformity = diagnostics.uniformity(x)
    say.line(f"start     {describe_start(built, data, len(x), uniformity)}")
    if data.bank is not None and (told := describe_labels(built, data, x, y, config.eval.k)):
        say.line(f"labels    {told}")
    seconds = measure_epoch(config, data, built)
    say.line(f"time      about {lasting(seconds)} an epoch of {len(data.train):,} {data.unit}, by a measured step")
    gains = train(pilot_settings(asked, seconds)) if config.pilot is not None else {}
    how = {"gains": gains, "has_labels": data.bank is not None}
    say.line(f"{LABEL}{Continuing(uniformity, built.backbone.is_vit, len(data.train), **how)}")


def take_evenly(images: CachedImages) -> CachedImages:
    """At most `IMAGES` of these, evenly spaced."""
    return CachedImages(images.images, images.rows[evenly(len(images.rows), IMAGES)])


def describe_start(built: Method, data: Data, n: int, uniformity: float) -> str:
    """What the first weights make of n images, in words."""
    told = f"features of {n:,} {data.unit} have a uniformity of {uniformity:.2f} (lower: further apart)"
    if not norm_statistics.has_statistics(built.backbone.net, data.train.item):
        return told
    rows = evenly(len(data.train), norm_statistics.IMAGES)
    pixels = data.train.clean(data.image_size).__getitems__(rows)["images"]
    distance = norm_statistics.distance(built.backbone.net, pixels, *built.normalize)
    return (
        f"{told}; {distance:.1f} from what batch normalisation remembers of its training (logarithm of the divergence; "
        "of efficientnet_lite0 -3.3 on photographs, -1.2 on letters)"
    )


def describe_labels(built: Method, data: Data, x: Tensor, y: Tensor, k: int) -> str:
    """How well features x (N, D) with classes y (N,) answer for others by kNN, beside raw pixels; "" of too few."""
    query = take_evenly(data.query)
    asked, asked_y = features(built, query)
    if too_few(y.numpy(), asked_y.numpy()):
        return ""
    k = min(k, len(x))
    right = knn_hits(x, y, asked, asked_y, k=k).mean()
    pixels = knn_hits(*embed_all(take_evenly(data.bank), shrink), *embed_all(query, shrink), k=k).mean()
    largest = np.bincount(asked_y.numpy()).max() / len(asked)
    beside = f"raw pixels {100 * pixels:.1f} %, the largest class {100 * largest:.1f} %"
    return f"{k}-NN {100 * right:.1f} % of {len(asked):,} {data.unit} by {len(x):,} others, {beside}"


def check_pilot(asked: Config) -> None:
    """Raises UserError for a pilot of no time, without dry=true or init=, or of several processes."""
    seconds_of("pilot", asked.pilot)
    if not (asked.dry and asked.init):
        raise UserError(f"pilot={asked.pilot} tries before a run whether init= pays: add dry=true and init=")
    if ranks_of(asked) > 1:
        raise UserError(f"pilot={asked.pilot} is one process: give trainer.devices=1")


def pilot_settings(asked: Config, seconds: float) -> Config:
    """The settings of a run as long as `pilot=`. seconds: of an epoch. Raises UserError where none fits."""
    epochs = int(seconds_of("pilot", asked.pilot) / seconds)
    if epochs < 1:
        raise UserError(f"pilot={asked.pilot}: an epoch takes about {lasting(seconds)}: give a longer time")
    judged = dataclasses.replace(asked.eval, tsne=0, every=epochs)
    shorter = {"epochs": min(epochs, asked.epochs), "eval": judged, "progress": False}
    return dataclasses.replace(asked, dry=False, pilot=None, resume=False, **shorter)
