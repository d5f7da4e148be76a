"""An entry whose weights lie between two others, as those before and after a training: WiSE-FT (arXiv 2109.01903)."""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from sslkit.backbones.base import Backbone
from sslkit.data.images import Images
from sslkit.data.loader import read_spaced
from sslkit.errors import UserError
from sslkit.layers.precise_bn import recompute_statistics
from sslkit.numerics.state_dicts import interpolate as between
from sslkit.zoo.entry import ZooEntry, save
from sslkit.zoo.start import start as open_start

IMAGES, BATCH = 1024, 64  # for means and variances, as at the end of a run
UNMEASURED = (  # fields of a card that hold for its weights alone
    *("before", "after", "pixels", "gains", "views", "elsewhere", "diagnostics", "features"),
    *("source_heads", "classifier", "kept", "missing"),
)


def interpolate(
    start: str | Path | ZooEntry,
    end: str | Path | ZooEntry,
    share: float,
    out: str | Path,
    images: Images | None = None,
) -> ZooEntry:
    """Write an entry with (1 - share) start + share end of the weights of one network.

        sslkit.zoo.interpolate("efficientnet_lite0", "runs/zoo/NAME", 0.5, "runs/zoo/NAME-half", images=images)

    start: an entry, or a word of `init=`. end: an entry, whose card the new one has, without what was measured.
    share: of the end, from 0 to 1. out: the new entry's folder. images: of `sslkit.open_images`, as those that the end
        was trained on: where the two have other means and variances of batch normalisation, these are made anew on
        them. A run with init= chooses the share itself by held-out images.
    Raises UserError for weights of two networks, with the first tensor that differs, for a share beyond 0 to 1, for a
    folder that has an entry already, and where images are needed.
    """
    if not 0 <= share <= 1:
        raise UserError(f"share is {share:g}, and what lies between start and end has one from 0 to 1")
    end = end if isinstance(end, ZooEntry) else ZooEntry.load(end)
    if Path(out).exists():
        raise UserError(f"out={out} is there already: name a new folder")
    about, norm = end.fields("backbone", "normalize")
    word = str(start.folder if isinstance(start, ZooEntry) else start)
    how = {"image_size": about["image_size"], "in_chans": about["in_chans"], "frames": about.get("frames")}
    body, last = open_start(word, **how), end.state_dict()
    first = {name: value.clone() for name, value in body.export().items()}
    weights = between(first, last, share)
    moved = any("running_" in name and not first[name].equal(value) for name, value in last.items())
    if moved and share not in (0, 1):
        if images is None:
            raise UserError(
                f"{word} and {end.folder} have other means and variances of batch normalisation: give images=, "
                "sslkit.open_images of those that were trained on, to make them anew"
            )
        body.net.load_state_dict(weights)
        recompute_statistics(body.net, _batches(body, images, norm["mean"], norm["std"]))
        weights = body.export()
    card = {name: value for name, value in end.card.items() if name not in UNMEASURED}
    return save(out, weights, card | {"interpolation": {"share": share, "start": word, "end": str(end.folder)}})


def _batches(body: Backbone, images: Images, mean: list[float], std: list[float]) -> Iterator[Tensor]:
    """Clean images, normalised, in whole batches in which classes are mixed."""
    pixels = read_spaced(images.clean(body.image_size), IMAGES)
    pixels = pixels[torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))]
    size = min(BATCH, len(pixels))
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (mean, std))
    for some in pixels[: len(pixels) // size * size].split(size):
        yield (some.float() / 255 - mean) / std
