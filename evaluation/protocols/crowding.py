"""How close do the classes lie, and how wide? Distances, variances, effective ranks, uniformity.

Sources: Song et al. 2024, section IV-A (crowding); Garrido et al. 2023, arXiv 2210.02885 (RankMe); Agrawal et al.
2022 (alpha-ReQ); Wang & Isola 2020, arXiv 2005.10242 (uniformity); Rousseeuw 1987 (silhouette).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from evaluation.datasets._labels import check_classes, check_labels
from evaluation.features.table import Features, as_features
from evaluation.protocols.base import Subject, among
from evaluation.results.result import Result
from evaluation.results.statistics import Estimate, generator, interval_of, jackknife
from sslkit.data.held_out import draw_keys
from sslkit.errors import UserError
from sslkit.numerics import diagnostics
from sslkit.numerics.diagnostics import CENTROIDS, ClassGeometry, Moments
from sslkit.options.settings import MOST, setting
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime

BLOCKS = 10  # of rows, for the jackknife of what has no mean over classes: ten give a standard error within a quarter
FEWEST_CLASSES = 6  # with five, a bootstrap over classes held the mean variance of other classes in 90 to 91 %
DRAWS = 2000  # of the bootstrap over classes: the ends of a 95 % interval stand on 50 draws each


@dataclass(frozen=True, kw_only=True)
class Options:
    centroid: str = setting(
        CENTROIDS[0],
        "of a class: mean, as in the printed formula of Song et al., or unit, the l2-normalised class mean, as their "
        "table requires; the other one's numbers are shown too",
        choices=CENTROIDS,
    )
    spectrum_rows: int = setting(
        25_600,  # Garrido et al. 2023, appendix G: enough for RankMe, which grows with the number of rows
        "rows, drawn by seed and name, for rankme and alpha_req; at most all: only compare checkpoints at equal "
        "numbers",
        least=2 * BLOCKS,
        most=MOST,
    )
    pair_rows: int = setting(5_000, "the same for uniformity and silhouette", least=2 * BLOCKS, most=MOST)
    alpha_ranks: Sequence[int] = setting(
        (4, 100),  # as the authors' released code (fastssl, which weighs by 1/rank); their paper gives no range
        "first and last rank of the spectrum in the line fit of alpha_req",
        least=1,
        most=MOST,
    )


@public("seed")
def crowding(features: Any, *, options: Options, runtime: Runtime) -> Result:
    """Inter-class distance (the value), intra-class variance, effective ranks, uniformity and silhouette.

        evaluation.crowding(evaluation.extract("runs/zoo/NAME", "digits", "test")).others["rankme"]

    features: Features or (x, y), one label per image, at least two classes of two images or more.
    `others` has both kinds of centroids: inter/mean, intra/mean, fisher/mean, inter/unit, intra/unit, fisher/unit.
    Distances are between l2-normalised features; the spectrum is that of the unnormalised features. Classes of one
    image are left out of inter, intra and fisher, and counted in details. Intervals: the bootstrap over classes (at
    least 6), and the jackknife over 10 blocks of rows for ranks and uniformity, which repeated rows would bias.
    Raises UserError for several labels per image, too few classes or rows, and options out of range.
    """
    return measure(features, options, runtime.seed)


def measure(features: Any, options: Options, seed: int) -> Result:
    """The result of `crowding`."""
    start = time.perf_counter()
    features = as_features(features)
    _check(features, options.alpha_ranks)
    centroid, alpha_ranks = options.centroid, tuple(options.alpha_ranks)
    geometries = {rule: diagnostics.class_geometry(features.x, features.y, rule) for rule in CENTROIDS}
    order = np.argsort(draw_keys(features.ids, seed, "diagnostics"), kind="stable")
    numbers = {
        f"{name}/{rule}": measure for rule in CENTROIDS for name, measure in _classes(geometries[rule], seed).items()
    }
    numbers |= _spectrum(features.x[order[: options.spectrum_rows]], alpha_ranks)
    numbers |= _pairs(features.take(order[: options.pair_rows]), seed)
    return Result.from_estimate(
        numbers[f"inter/{centroid}"],
        protocol="crowding",
        recipe=f"{centroid} centroids of l2-normalised features",
        metric="inter_class_distance",
        model=features.model,
        data=features.data,
        others=numbers,
        seeds=[seed],
        digests={"features": features.digest},
        seconds=time.perf_counter() - start,
        details={
            "centroid": centroid,
            "alpha_ranks": list(alpha_ranks),
            "spectrum_rows": min(options.spectrum_rows, len(features)),
            "pair_rows": min(options.pair_rows, len(features)),
            **_counts(features, geometries[centroid]),
            "not_measured": [name for name in EXTRAS if name not in numbers],
        },
    )


def _counts(features: Features, geometry: ClassGeometry) -> dict[str, int]:
    counts = {"rows": len(features), "classes": len(geometry.labels)}
    return {**counts, "classes_of_one_image": geometry.left_out}


EXTRAS = ("fisher/mean", "fisher/unit", "rankme", "alpha_req", "uniformity", "silhouette")


def _check(features: Features, alpha_ranks: Sequence[int]) -> None:
    if features.y.ndim != 1:
        raise UserError("crowding needs one label per image; these images have several labels")
    if len(features) < 2 * BLOCKS:
        raise UserError(f"crowding needs at least {2 * BLOCKS} rows, got {len(features)}")
    if len(alpha_ranks) != 2 or not alpha_ranks[0] < alpha_ranks[1]:
        raise UserError(f"alpha_ranks must be the first and the last rank, from 1, got {alpha_ranks}")


def _classes(geometry: ClassGeometry, seed: int) -> dict[str, Estimate]:
    """inter, intra, and fisher unless all within-class variances are 0."""
    distance, variance = geometry.distance.cpu().numpy(), geometry.variance.cpu().numpy()
    k = len(variance)
    drawn = generator(seed, "bootstrap over classes").multinomial(k, np.full(k, 1 / k), DRAWS).astype(float)
    drawn = drawn[(drawn > 0).sum(1) > 1]  # inter needs two different classes
    within = drawn @ variance / k
    estimates = {
        "inter": _over_classes(geometry.inter(), mean_over_pairs(drawn, distance), k, "distance"),
        "intra": _over_classes(geometry.intra(), within, k, "squared distance"),
    }
    if within.min() > 0:
        ratio = mean_over_pairs(drawn, distance**2) / 2 / within
        estimates["fisher"] = _over_classes(geometry.fisher_ratio(), ratio, k, "ratio")
    return estimates


def mean_over_pairs(weights: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """(n,) mean of a matrix over the pairs of different classes, weighted by how often each was drawn.

    weights: (n, K). matrix: (K, K) with zeros on the diagonal. Pairs of a class with itself are excluded, since their
    distance of 0 would bias every draw.
    """
    total = ((weights @ matrix) * weights).sum(1)
    return total / (weights.sum(1) ** 2 - np.square(weights).sum(1))


def _over_classes(value: float, drawn: np.ndarray, classes: int, unit: str) -> Estimate:
    if classes < FEWEST_CLASSES:
        return Estimate(value, None, f"no interval, {classes} classes: it takes about {FEWEST_CLASSES}", classes, unit)
    return Estimate(value, interval_of(drawn, classes), "bootstrap over classes", classes, unit)


def _spectrum(x: np.ndarray, alpha_ranks: tuple[int, int]) -> dict[str, Estimate]:
    """rankme, and alpha_req if the spectrum has its first two ranks; from the Gram matrix, 0.6 s at width 2,048."""
    around = torch.from_numpy(np.mean(x, 0, dtype=np.float64))  # centring: a large offset would cost precision
    parts = [Moments.from_rows(block, around) for block in np.array_split(x, BLOCKS)]
    whole = sum(parts[1:], parts[0])
    others = [whole - block for block in parts]

    def estimate(measure: Callable[[Moments], float], unit: str) -> Estimate:
        without = [measure(other) for other in others]
        return jackknife(measure(whole), without, kind="jackknife over rows", n=len(x), unit=unit)

    estimates = {"rankme": estimate(lambda m: diagnostics.effective_rank(m.singular_values()), "rank")}
    if min(diagnostics.directions(other.eigenvalues()) for other in others) > alpha_ranks[0]:
        estimates["alpha_req"] = estimate(lambda m: diagnostics.decay(m.eigenvalues(), *alpha_ranks), "exponent")
    return estimates


def _pairs(features: Features, seed: int) -> dict[str, Estimate]:
    """uniformity, and silhouette if these rows have two classes, one of them with two images."""
    z = diagnostics.unit_rows(torch.from_numpy(features.x))
    estimates = {"uniformity": estimate_uniformity(z)}
    classes = len(np.unique(features.y))
    if 2 <= classes < len(features):
        estimates["silhouette"] = _silhouette(z.numpy(), features.y, seed)
    return estimates


def estimate_uniformity(z: torch.Tensor) -> Estimate:
    """Return the uniformity of unit rows (N, D) with its interval, the jackknife over 10 blocks of rows."""
    parts = z.tensor_split(BLOCKS)
    logs = diagnostics.log_potentials(parts)
    rows_left = [[g for g in range(BLOCKS) if g != left_out] for left_out in range(BLOCKS)]
    without = [
        diagnostics.uniformity_of(logs[rows][:, rows], len(z) - len(parts[left_out]))
        for left_out, rows in enumerate(rows_left)
    ]
    value = diagnostics.uniformity_of(logs, len(z))
    return jackknife(value, without, kind="jackknife over rows", n=len(z), unit="log")


def _silhouette(z: np.ndarray, y: np.ndarray, seed: int) -> Estimate:
    """Mean over images; the interval resamples classes with the values of the images fixed."""
    from sklearn.metrics import silhouette_samples

    values = silhouette_samples(z, y)
    _, label, count = np.unique(y, return_inverse=True, return_counts=True)
    total, k = np.bincount(label, values), len(count)
    drawn = generator(seed, "bootstrap over classes").multinomial(k, np.full(k, 1 / k), DRAWS)
    return _over_classes(float(values.mean()), drawn @ total / (drawn @ count), k, "silhouette")


def open(subject: Subject, options: Options) -> Subject:
    """Check the labels before feature extraction. Raises UserError."""
    test = subject.open_split(subject.test_split)
    check_labels(test, "crowding")
    check_classes([test], "crowding")
    if len(test) < 2 * BLOCKS:
        raise UserError(f"crowding needs at least {2 * BLOCKS} images, {test.name} ({test.split}) has {len(test)}")
    return subject


def run(opened: Subject, options: Options, runtime: Runtime) -> list[Result]:
    """Measure the test images; see `crowding`."""
    return [measure(opened.test(runtime), options, runtime.seed)]


def beside(result: Result) -> tuple[str, ...]:
    """The variance around the centroids of the main result, and the effective rank."""
    return among(result, f"intra/{result.details.get('centroid')}", "rankme")
