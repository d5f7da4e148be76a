"""Without labels: is the other view of an image found among those of all? Also alignment, uniformity, LiDAR.

Sources: Wang & Isola 2020, arXiv 2005.10242 (alignment, uniformity); Thilak et al. 2023, arXiv 2312.04000 (LiDAR).
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from evaluation.datasets import LABELLED, MEASURED, Reading, Split
from evaluation.features.extraction import LOADED
from evaluation.protocols import lidar
from evaluation.protocols.base import Subject, Task, Terminal, among
from evaluation.protocols.crowding import estimate_uniformity
from evaluation.results.result import Result, rows_digest
from evaluation.results.statistics import bootstrap_mean, share
from sslkit.data.image_options import MOST_PIXELS
from sslkit.data.views.recipe import PAIR
from sslkit.models.loading import Loading
from sslkit.models.model import Model
from sslkit.numerics import diagnostics
from sslkit.numerics.view_retrieval import FEWEST, MOST, find_other_views
from sslkit.options.settings import setting
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime

BESIDE = ("alignment", "uniformity", "lidar")


@dataclass(frozen=True, kw_only=True)
class Options:
    n_images: int = setting(
        MOST, "largest number of images, drawn by seed and name; finding one of few is easy", least=FEWEST
    )
    split: str = setting(MEASURED, lidar.SPLIT)
    view_size: int | None = setting(
        None,
        "pixels at which views are drawn, then scaled for each network; null: the largest that one of them takes",
        least=8,
        most=MOST_PIXELS,
    )


@public(*LOADED, *LABELLED, "seed", "device")
def view_retrieval(
    model: Any, data: Any, *, options: Options, loading: Loading, reading: Reading, runtime: Runtime
) -> Result:
    """Return the share of images whose other view is the nearest of all by cosine; a tie is not right.

        evaluation.view_retrieval("runs/zoo/NAME", "path/to/photos").others["uniformity"]

    model: see `sslkit.load`. data: any source, also without labels; an opened `Split` is taken as it is.
    Two views of SimCLR, unmirrored, of each image. Others: alignment, uniformity of the first views, LiDAR of both.
    Compare at equal numbers of images only. It says whether features know an image again, not what a task gains.
    Raises UserError as `evaluation.protocols.lidar.view_features` does.
    """
    loaded = loading.load(model)
    split = data if isinstance(data, Split) else Subject(loaded, data, reading).open_unlabelled(options.split)
    return measure(loaded, split, options, runtime)


def measure(model: Model, split: Split, options: Options, runtime: Runtime) -> Result:
    """Measure a loaded model; see `view_retrieval`."""
    start = time.perf_counter()
    size = options.view_size or model.image_size
    views = lidar.view_features(model, split, PAIR, options.n_images, runtime, size=size)
    pairs = torch.from_numpy(views.x).double().unflatten(0, (-1, 2))
    first, second = pairs.unbind(1)
    is_first = find_other_views(first, second).numpy()
    groups = None if split.groups is None else split.groups[views.rows]
    aligned = bootstrap_mean(lidar.alignment_by_image(pairs).numpy(), seed=runtime.seed, unit="squared distance")
    others = (aligned, estimate_uniformity(diagnostics.unit_rows(first)), lidar.estimate_lidar(pairs))
    return Result.from_estimate(
        share(is_first, groups),
        protocol="view_retrieval",
        recipe=f"2 views of {size} pixels of each of {len(is_first)} images",
        metric="recall_at_1",
        model=model.name,
        data=split.name,
        others=dict(zip(BESIDE, others, strict=True)),
        seeds=[runtime.seed],
        digests={"model": model.digest, "images": split.digest},
        seconds=time.perf_counter() - start,
        details={"images": len(is_first), "size": size, "unreadable": views.unreadable},
        outcomes=is_first,
        groups=groups,
        paired_on=rows_digest(views.ids, np.array([size, runtime.seed])),
    )


def open(subject: Subject, options: Options) -> Subject:
    """Check the number of images before views are drawn. Raises UserError."""
    lidar.check_count(subject.open_unlabelled(subject.require_split(options.split)), "view_retrieval")
    return subject


def run(opened: Subject, options: Options, runtime: Runtime) -> list[Result]:
    """Measure views of images that need no labels; unreadable images are left out; see `view_retrieval`."""
    return [measure(opened.model, opened.open_unlabelled(options.split), options, runtime)]


def beside(result: Result) -> tuple[str, ...]:
    """Alignment, uniformity and LiDAR."""
    return among(result, *BESIDE)


def _agree(models: Sequence[Model], task: Task) -> Task:
    """The task with the size of the views, one for all networks, so that all see the same."""
    size = task.options.view_size or max(model.image_size for model in models)
    return replace(task, options=replace(task.options, view_size=size))


terminal = Terminal(agreed=_agree)
