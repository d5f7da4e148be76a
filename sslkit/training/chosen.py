"""Settings that are chosen for a run where they are not given: for small images, short runs and the small network.

They were measured on the embedded Fashion-MNIST: learning rates by recipes/benchmarks/objectives, on held-out training
images, where the 11 objectives of narrow_resnet were all best with this one of 0.001, 0.003, 0.009.
"""

from dataclasses import replace
from math import sqrt

from sslkit.composition.method import Method, classes, signature
from sslkit.data.views.recipe import SMALL, View
from sslkit.training.config import Config
from sslkit.training.data import Data
from sslkit.training.given import OPTIONS, filled, given

RATE = 0.002
NARROW, NARROW_RATE, NARROW_BATCH = "narrow_resnet", 0.009, 128  # with adamw
SMALL_SCALE = (0.2, 1.0)  # 8 % of 28 x 28 pixels, the papers' smallest crop at 224, would be 8 x 8 of them
MEMORY = 8  # the teacher averages the last 1 / MEMORY of a short run
MOMENTA = 0.9, 0.996  # of a teacher: least, and BYOL's, which runs of 2,000 steps have


def batches(config: Config, data: Data) -> int:
    """Batches of an epoch, each full."""
    return len(data.train) // config.data.batch_size


def steps(config: Config, data: Data) -> int:
    """Optimiser steps of the whole run."""
    return config.epochs * -(-batches(config, data) // config.trainer.accumulate)


def with_options(config: Config, data: Data) -> Config:
    """The settings with the method's options that are chosen by the data: crops and teacher's momentum.

    Crops of at least a fifth of the area for images of at most 64 pixels, if the recipe has the papers' 8 %; a momentum
    of 1 - 8 / steps for an objective with momentum=None, from 0.9 to 0.996.
    """
    chosen, name = {}, config.method_name
    if signature(name)["objective"].get("momentum", 0) is None:
        least, most = MOMENTA
        chosen["objective", "momentum"] = min(most, max(least, round(1 - MEMORY / max(1, steps(config, data)), 3)))
    views = classes(name)["objective"].views.views
    if data.image_size <= SMALL and data.clips is None and all(view.scale == View.scale for view in views):
        chosen["views", "scale"] = list(SMALL_SCALE)
    return filled(config, chosen)


def with_rate(config: Config, method: Method) -> Config:
    """The settings with a learning rate: more for a narrow_resnet from random weights, if batches are not small."""
    if config.optimizer.lr is not None:
        return config
    recipe, rate = method.backbone.recipe, RATE
    own = recipe.name == NARROW and recipe.origin is None
    if own and config.optimizer.name == "adamw" and config.optimizer.lr_scaling == "none":
        rate = max(RATE, float(f"{NARROW_RATE * min(1, sqrt(config.data.batch_size / NARROW_BATCH)):.2g}"))
    return replace(config, optimizer=replace(config.optimizer, lr=rate))


def line(asked: Config, config: Config) -> list[str]:
    """A line on what was chosen; empty if nothing was. asked: the settings that were given."""
    known = {path: given(config, path) for path in OPTIONS if given(asked, path) is None}
    scale, momentum = known.get(("views", "scale")), known.get(("objective", "momentum"))
    is_own = asked.optimizer.lr is None and config.optimizer.lr != RATE
    parts = [f"learning rate {config.optimizer.lr:g} for {NARROW}"] if is_own else []
    parts += [f"crops from {100 * scale[0]:g} % of the area for small images"] if scale else []
    parts += [f"teacher's momentum {momentum:g} for the run's length"] if momentum else []
    return [f"chosen    {'; '.join(parts)}"] if parts else []
