"""Do patches tell the parts of images apart, without labels? The dense structure estimator, and a picture.

Source: Dai et al. 2025, arXiv 2510.17299; the number and the picture of a run from given weights, by the same code.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evaluation.datasets import LABELLED, MEASURED, Reading, Split
from evaluation.features.extraction import LOADED
from evaluation.features.places import check_network
from evaluation.protocols import lidar
from evaluation.protocols.base import Judged, Subject, Terminal
from evaluation.results.result import Result
from evaluation.results.statistics import Estimate, over_groups, over_seeds
from sslkit.data.held_out import draw_keys
from sslkit.data.loader import batches_in_order, evenly
from sslkit.data.thumbnails import captions_of
from sslkit.errors import UserError
from sslkit.files.writing import name_of
from sslkit.models import patches
from sslkit.models.loading import Loading
from sslkit.models.model import Model
from sslkit.numerics.dense_structure import LOCAL, DenseStructure
from sslkit.options.settings import setting
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime
from sslkit.runtime.device import device_of
from sslkit.runtime.distributed import rank
from sslkit.terminal.say import counted

SET = patches.MEASURED  # images of one number, as in a run: its dimension is that of so many images
PARTS = tuple(field.name for field in fields(DenseStructure))
NOTE = "The first three principal components of the patches of these images."


@dataclass(frozen=True, kw_only=True)
class Options:
    n_images: int = setting(
        8 * SET, f"largest number of images, drawn by seed and name, in sets of {SET}, over which is averaged", least=2
    )
    split: str = setting(MEASURED, lidar.SPLIT)


@public(*LOADED, *LABELLED, "seed", "device", "workers", "out")
def patch_quality(
    model: Any, data: Any, *, options: Options, loading: Loading, reading: Reading, runtime: Runtime
) -> Result:
    """Return the dense structure (DSE) of a network's patches, a mean over sets of 64 images; its parts in `others`.

        evaluation.patch_quality("runs/zoo/NAME", "path/to/photos", out="runs/patches").value

    model: see `sslkit.load`. data: any source, also without labels. The number orders checkpoints of one run: pure
    noise has a high one, too, so no network is compared with another, and there is no paired test. The interval is over
    sets; no group of `columns.group=` is in two. out: the picture of some images' patches is drawn there.
    Raises UserError for a network with fewer than four places in its last map, patches all alike, and one image.
    """
    subject = Subject(loading.load(model), data, reading)
    return run(open(subject, options), options, runtime)[0]


def open(subject: Subject, options: Options) -> Subject:
    """Check the network's map and the number of images before anything is computed. Raises UserError."""
    _check(subject.model)
    split = subject.open_unlabelled(subject.require_split(options.split))
    if len(split) < 2:
        raise UserError(f"patch_quality needs 2 images or more, {split.name} ({split.split}) has {len(split)}")
    return subject


def run(opened: Subject, options: Options, runtime: Runtime) -> list[Result]:
    """Measure the patches of images that need no labels; see `patch_quality`."""
    return [measure(opened.model, opened.open_unlabelled(options.split), options, runtime)]


def beside(result: Result) -> tuple[str, ...]:
    """Nothing: the parts have no meaning of their own."""
    return ()


def measure(model: Model, split: Split, options: Options, runtime: Runtime) -> Result:
    """Measure a loaded model on a split; see `patch_quality`."""
    start, structures, unreadable = time.perf_counter(), [], []
    model.backbone.to(device_of(runtime.device)).eval()
    images = model.clean(split.images)
    for number, rows in enumerate(draw_sets(split.ids, split.groups, options.n_images, runtime.seed)):
        pixels, readable = _read(images, rows, runtime)
        unreadable += split.ids[rows[~readable]].tolist()
        if len(pixels) < 2:
            raise UserError(f"patch_quality: fewer than 2 of {len(rows)} images of {split.name} can be read")
        maps = patches.maps_of(model.backbone, model.normalize(pixels.to(device_of(runtime.device))))
        if not maps.isfinite().all():
            raise UserError(f"{model.name} returns features that are not finite: the model may have diverged")
        if (structure := patches.structure_of(maps)) is None:
            raise UserError(f"patch_quality: all patches of {model.name} are alike: the network has collapsed")
        structures.append(structure)
        if number == 0 and runtime.out is not None and rank() == 0:
            shown = evenly(len(maps), patches.SHOWN)
            columns = {model.name: patches.components(maps[shown])}
            Path(runtime.out).mkdir(parents=True, exist_ok=True)
            captions = captions_of(images, rows[readable][shown].tolist())
            patches.draw_patches(
                pixels[shown], columns, captions, picture_of(runtime.out, split.name), name=split.name, note=NOTE
            )
    parts = {name: [getattr(structure, name) for structure in structures] for name in PARTS}
    count = len(split.ids) if len(structures) == 1 else SET * len(structures)
    over = over_groups(split.groups)
    return Result.from_estimate(
        over_sets([structure.value for structure in structures], count),
        protocol="patch_quality",
        recipe=f"dense structure of {counted(len(structures), 'set')} of {min(SET, len(split))} images",
        metric="dse",
        model=model.name,
        data=split.name,
        others={name: over_sets(values, count) for name, values in parts.items()},
        seeds=[runtime.seed],
        digests={"model": model.digest, "images": split.digest},
        seconds=time.perf_counter() - start,
        details={
            "sets": len(structures),
            "places": list(maps.shape[2:]),
            "unreadable": unreadable,
            **({"groups": over} if over else {}),
        },
    )


def draw_sets(ids: np.ndarray, groups: np.ndarray | None, most: int, seed: int) -> list[np.ndarray]:
    """Return the rows of sets of SET images, in an order by seed and name; of fewer images a single smaller set.

    ids: (N,) names. groups: (N,) of images that stay together, of which a set may have a part, and the next one none.
    most: largest number of images, of all sets.
    """
    drawn = np.argsort(np.argsort(draw_keys(ids, seed, "patches"), kind="stable"))
    member = np.arange(len(ids)) if over_groups(groups) is None else np.unique(groups, return_inverse=True)[1]
    first = np.full(int(member.max()) + 1, len(ids))
    np.minimum.at(first, member, drawn)
    order = np.lexsort((drawn, first[member]))
    size, sets = min(SET, most, len(ids)), []
    while len(order) >= size and len(sets) < max(most // SET, 1):
        sets.append(order[:size])
        order = order[size:][~np.isin(member[order[size:]], member[order[:size]])]
    return sets


def over_sets(values: Sequence[float], images: int) -> Estimate:
    """Return the mean over sets with Student's t interval; none for a single one."""
    estimate = replace(over_seeds(values, unit="structure"), n=images)
    few = f"no interval, one set of images: it takes {2 * SET} images"
    return replace(estimate, kind=few if len(values) == 1 else f"t over {len(values)} sets of {SET} images")


def picture_of(folder: str | Path, data: str) -> Path:
    """Return the path of the picture of a data set."""
    return Path(folder) / f"patches-{name_of(data)}.png"


def _read(images: Any, rows: np.ndarray, runtime: Runtime) -> tuple[Tensor, np.ndarray]:
    """Return the pixels (n, C, S, S) of the rows that can be read, and (N,) bool which these are."""
    parts, readable = [], []
    for asked, batch in batches_in_order(images, rows.tolist(), patches.SHOWN, workers=runtime.workers):
        readable.append(batch["index"].numpy() == asked)  # an unreadable image is replaced by its neighbour
        parts.append(batch["images"][torch.from_numpy(readable[-1])])
    return torch.cat(parts), np.concatenate(readable)


def _check(model: Model, options: Any = None) -> None:
    rows, columns = check_network(model, "patch_quality")
    if rows * columns <= LOCAL:
        raise UserError(
            f"patch_quality: {model.name} has {rows * columns} places in its last map for images of "
            f"{model.image_size} pixels, at least {LOCAL + 1} are needed: give a larger image_size"
        )


def _remarks(judged: Sequence[Judged]) -> list[str]:
    paths = [picture_of(entry.folder, result.data) for entry in judged for result in entry.results]
    return [f"pictures  {path}" for path in dict.fromkeys(paths) if path.exists()]


terminal = Terminal(usual="clipart", fits=_check, remarks=_remarks)
