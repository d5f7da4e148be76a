"""Does a defect look unlike all normal images? Nearest patches: AUROC of images, AUPRO of pixels, few-shot.

Patches of normal images are the only training (PatchCore, Roth et al. 2022, arXiv 2106.08265); the distance is 1 -
cosine to the nearest, and an image has the mean of its highest 1 % (AnomalyDINO, Damm et al. 2025, arXiv 2405.14529).
"""

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from evaluation.datasets import AS_USUAL, Reading, Split
from evaluation.datasets.defects import Defects, open_defects, read_mask
from evaluation.features.extraction import LOADED
from evaluation.features.places import check_network
from evaluation.learners.defect_scores import LIMIT, aupro, auroc, nearest_distance
from evaluation.protocols._heat_maps import draw_heat_maps
from evaluation.protocols.base import Subject, Terminal, among
from evaluation.results.result import Result, rows_digest
from evaluation.results.statistics import Estimate, over_seeds
from sslkit.data.held_out import draw_keys
from sslkit.data.image_options import MOST_PIXELS, VALUES
from sslkit.data.images import Images
from sslkit.data.loader import batches_of_parts
from sslkit.data.sources.column_values import refuse
from sslkit.errors import UserError
from sslkit.files.blocks import Parts
from sslkit.files.store import key_of
from sslkit.models.loading import Loading
from sslkit.models.model import Model
from sslkit.models.places import place_features
from sslkit.options.settings import MOST, setting
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime
from sslkit.runtime.device import device_of
from sslkit.runtime.distributed import rank
from sslkit.runtime.kept_arrays import load_or_compute
from sslkit.runtime.waiting import from_first, together
from sslkit.terminal.say import counted

BATCH = 16  # images whose maps are computed at a time
TOP = 0.01  # share of an image's patches whose distances are averaged, AnomalyDINO's
BLUR = 4.0  # pixels of a 256-pixel map, by which distances are smoothed, as both papers do
SIDE = 256  # of the map that BLUR is for
PATCHES = "the patches"  # in messages


@dataclass(frozen=True, kw_only=True)
class Options:
    objects: Sequence[str] = setting((), "objects of the set, by name; []: all")
    shots: Sequence[int] = setting((1, 2, 4, 8), "few-shot: numbers of normal images, in others", least=1, most=MOST)
    draws: int = setting(3, "draws of the normal images of each few-shot number", least=2, most=100)
    side: int = setting(SIDE, "pixels of the square maps on which AUPRO is measured", least=16, most=MOST_PIXELS)
    heat_maps: int = setting(
        6, "images in the wrong place whose heat maps are drawn where there is out=; 0: none", least=0
    )


@dataclass(frozen=True)
class Opened:
    """A model and the objects that it is judged on."""

    subject: Subject
    objects: Sequence[Defects]


@public(*LOADED, "root", *VALUES, "cache", "columns", "seed", "device", "workers", "progress", "out")
def anomaly(
    model: Any, data: Any, *, options: Options, loading: Loading, reading: Reading, runtime: Runtime
) -> list[Result]:
    """Return the image AUROC of distances to normal patches, a result for each object, and of several their mean.

        [result] = evaluation.anomaly("runs/zoo/NAME", "path/to/mvtec/bottle")
        result.others["aupro"], result.others["auroc, 4 shots"]

    data: a folder, see `evaluation.datasets.defects`. Images are squeezed to the network's square. Patches are the
    positions of its last map, all of all images: 4 bytes x width x places each in the cache, from which a stopped run
    goes on; 64 MB of them are in memory at a time. columns.group: a pattern of the images' names.
    Others: AUPRO of pixels to a false-positive rate of 0.3 where defects have masks, and AUROC by few normal images,
    the mean of draws by seed and name. The interval is over test images, of AUPRO over images with defects, or groups.
    Raises UserError for a network with one place, and data that cannot be judged, before anything is computed.
    """
    subject = Subject(loading.load(model), data, reading)
    return run(open(subject, options), options, runtime)


def open(subject: Subject, options: Options) -> Opened:
    """Check network, images and masks before feature extraction. Raises UserError."""
    if not isinstance(subject.data, (str, Path)):
        raise UserError("anomaly needs data=FOLDER of normal images and defects, see evaluation/datasets/defects.py")
    check_network(subject.model, "anomaly")
    columns = subject.reading.columns
    refuse(replace(columns, group=None), str(subject.data), "is read by its folders of normal images and defects")
    key, groups_of = ("defects", tuple(options.objects)), partial(_groups_of, subject.reading)
    return Opened(subject, subject.once(key, lambda: open_defects(subject.data, options.objects, groups_of)))


def run(opened: Opened, options: Options, runtime: Runtime) -> list[Result]:
    """Measure each object; see `anomaly`."""
    subject = opened.subject
    with tempfile.TemporaryDirectory() as scratch:
        folder = from_first(PATCHES, lambda: scratch) if runtime.cache is None else runtime.cache
        places = partial(_patches, subject.model, subject.reading, runtime=runtime, folder=Path(folder))
        results = [_measure(subject.model, places, data, options, runtime) for data in opened.objects]
        with together(PATCHES):  # before the first rank removes its scratch folder
            pass
    return [*results, _mean(results, Path(subject.data).name)] if len(results) > 1 else results


def beside(result: Result) -> tuple[str, ...]:
    """AUPRO, and AUROC by few normal images."""
    return among(result, "aupro", *(name for name in result.others if name.startswith("auroc")))


terminal = Terminal(usual=None, fits=lambda model, options: check_network(model, "anomaly") and None)


def _measure(
    model: Model,
    patches: Callable[[Sequence[Path]], np.ndarray],
    data: Defects,
    options: Options,
    runtime: Runtime,
) -> Result:
    start, grid = time.perf_counter(), check_network(model, "anomaly")
    train, test = patches(data.train), patches(data.test)
    distance = _distances(test, train)
    score = image_scores(distance)
    estimate, by_image = auroc(score, data.is_defect, data.groups)
    others = {}
    maps = np.array([_smooth(row.reshape(grid), options.side) for row in distance])
    masks = [read_mask(mask, (options.side, options.side)) for mask in data.masks]
    if data.has_masks:
        others["aupro"] = aupro(maps, masks).estimate(data.groups)
    others |= _few_shot(train, test, data, options, runtime.seed)
    if options.heat_maps and runtime.out is not None and rank() == 0:
        draw_heat_maps(data, score, maps, masks, options.heat_maps, model.name, Path(runtime.out))
    names = [f"{path.parent.name}/{path.name}" for path in data.test]
    return Result.from_estimate(
        estimate,
        protocol="anomaly",
        recipe=f"nearest patch of {counted(len(train), 'normal image')} by cosine, {grid[0]} x {grid[1]} places",
        metric="auroc",
        model=model.name,
        data=data.name,
        others=others,
        seeds=[runtime.seed],
        digests={"model": model.digest, "images": rows_digest(np.array(names), data.is_defect)},
        seconds=time.perf_counter() - start,
        details={
            "normal": len(data.train),
            "defects": int(data.is_defect.sum()),
            "masks": data.has_masks,
            "side": options.side,
            "limit": LIMIT,
            "chance": {"auroc": 0.5, **({"aupro": LIMIT / 2} if data.has_masks else {})},
        },
        outcomes=by_image,
        groups=data.groups,
        paired_on=rows_digest(np.array(names), data.is_defect),
    )


def image_scores(distance: np.ndarray) -> np.ndarray:
    """Return (M,) the mean of the highest 1 % of the distances (M, P) of an image, at least of one."""
    count = max(1, round(TOP * distance.shape[1]))
    return np.sort(distance, 1)[:, -count:].mean(1)


def _distances(test: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Return (M, P) the distance of each test patch to the nearest normal one. test, train: (M, P, F), (N, P, F)."""
    return nearest_distance(test.reshape(-1, test.shape[2]), train.reshape(-1, train.shape[2])).reshape(test.shape[:2])


def _few_shot(train: np.ndarray, test: np.ndarray, data: Defects, options: Options, seed: int) -> dict[str, Estimate]:
    """Return AUROC by few normal images, those up to all of them, with its interval over draws."""
    orders = [
        np.argsort(draw_keys([path.name for path in data.train], seed + draw, "shots"), kind="stable")
        for draw in range(options.draws)
    ]
    estimates = {}
    for shots in sorted({count for count in options.shots if count < len(train)}):
        scores = [image_scores(_distances(test, train[order[:shots]])) for order in orders]
        estimate = over_seeds([auroc(score, data.is_defect)[0].value for score in scores])
        name = f"auroc, {counted(shots, 'shot')}"
        estimates[name] = replace(estimate, kind=f"t over {options.draws} draws of normal images")
    return estimates


def _patches(model: Model, reading: Reading, paths: Sequence[Path], *, runtime: Runtime, folder: Path) -> np.ndarray:
    """Return features (N, P, F) float32 of each image's places, memory-mapped: computed once, in blocks of images."""
    files, rows = _open_files(replace(reading, columns=AS_USUAL.columns), paths)
    how = {"image_size": model.image_size, "channels": model.in_chans, "fit": "squash"}
    images = model.with_scale(files.images, **how)
    key = key_of(model.digest, model.mean, model.std, how, images.digest, np.array(rows))
    compute = partial(_compute, model, images, rows, runtime)
    x = load_or_compute(folder / f"patches-{key}.npy", len(rows), compute, what=PATCHES, unit=BATCH)
    return x.reshape(len(rows), -1, x.shape[1] // math.prod(check_network(model, "anomaly")))


def _compute(
    model: Model, images: Images, rows: Sequence[int], runtime: Runtime, parts: Sequence[Sequence[int]]
) -> Iterator[np.ndarray]:
    """Yield the features (n, P F) of the images in each part of `rows`."""
    device = device_of(runtime.device)
    model.backbone.to(device)
    asked_of = Parts(len(parts), lambda part: [rows[number] for number in parts[part]])
    for asked, batch in batches_of_parts(images, asked_of, workers=runtime.workers, device="cpu"):
        if (batch["index"].numpy() != asked).any():
            raise UserError(f"anomaly: one of {', '.join(images.path(row) for row in asked)} cannot be read")
        with torch.inference_mode():
            places = place_features(model.backbone, model.normalize(batch["images"].to(device)), 1)
        if not places.isfinite().all():
            raise UserError(f"{model.name} returns features that are not finite: the model may have diverged")
        yield places.flatten(2).transpose(1, 2).flatten(1).cpu().numpy()


def _open_files(reading: Reading, paths: Sequence[Path]) -> tuple[Split, list[int]]:
    """Open image files, and return the row of each path."""
    files = reading.open(sorted(map(str, paths)), "all", needs_labels=False)
    row_of = {str(Path(files.images.path(row)).resolve()): row for row in range(len(files.images))}
    return files, [row_of[str(path.resolve())] for path in paths]


def _groups_of(reading: Reading, paths: Sequence[Path]) -> np.ndarray | None:
    """Return (N,) the group of each file by `columns.group`; None where that is not given."""
    if reading.columns.group is None:
        return None
    files, rows = _open_files(reading, paths)
    return files.groups[rows]


def _smooth(distance: np.ndarray, side: int) -> np.ndarray:
    """Return a map (side, side) of distances (h, w), enlarged linearly and smoothed."""
    from scipy.ndimage import gaussian_filter

    large = torch.nn.functional.interpolate(
        torch.from_numpy(np.ascontiguousarray(distance))[None, None], (side, side), mode="bilinear"
    )
    return gaussian_filter(large[0, 0].numpy(), BLUR * side / SIDE)


def _mean(results: Sequence[Result], name: str) -> Result:
    """Return the mean over objects, with its interval over these."""
    kind = {"kind": f"t over {len(results)} objects"}
    shared = [key for key in results[0].others if all(key in result.others for result in results)]
    others = {key: replace(over_seeds([result.others[key].value for result in results]), **kind) for key in shared}
    values = np.array([result.value for result in results])
    first = results[0]
    return Result.from_estimate(
        replace(over_seeds(values.tolist()), **kind),
        protocol="anomaly",
        recipe=f"mean over {len(results)} objects",
        metric="auroc",
        model=first.model,
        data=name,
        others=others,
        seeds=first.seeds,
        digests={result.data: result.digests["images"] for result in results} | {"model": first.digests["model"]},
        seconds=sum(result.seconds for result in results),
        details={"objects": [result.data for result in results], "chance": first.details["chance"]},
        outcomes=values,
        paired_on=rows_digest(np.array([result.paired_on for result in results]), np.arange(len(results))),
    )
