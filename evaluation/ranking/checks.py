"""Checks of a ranking before any extraction: metrics, their options, the truth, seeds and devices."""

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from numbers import Integral
from typing import Any

import numpy as np
import torch

from evaluation.ranking.inputs.candidates import Options
from evaluation.ranking.inputs.references import CARD, Reference
from evaluation.ranking.inputs.samples import ON_CPU
from evaluation.ranking.scoring import Spec, compute_score, parse
from evaluation.transferability.base import Sample, TooFewImages, check_seed
from sslkit.errors import UserError
from sslkit.runtime.context import Runtime
from sslkit.runtime.device import device_of

METRICS = ("knn",)  # of a ranking by default: nothing was significantly better, see recipes/benchmarks
OF_LABELS = ("logme",)  # likewise for several labels an image, which kNN does not score
OF_NUMBERS = ("logme(targets=regression)",)  # for one number an image
ROWS, COLUMNS, CLASSES = 12, 6, 3  # of the sample on which options are tested: small, so that it takes no time


def check_metrics(metrics: Any, *, bootstrap: int = 0, runtime: Runtime = ON_CPU) -> list[Spec]:
    """Parse the metrics, None for METRICS, and test their options on a small synthetic sample.

    Raises UserError, also for a bootstrap of 1, a seed out of range and an unavailable device.
    """
    if not isinstance(bootstrap, Integral) or isinstance(bootstrap, bool) or bootstrap < 0 or bootstrap == 1:
        raise UserError(f"bootstrap={bootstrap!r}: the number of redraws of the images must be 0 or at least 2")
    check_seed(runtime.seed), device_of(runtime.device)
    specs = [parse(metric, given=True) for metric in _as_list(METRICS if metrics is None else metrics)]
    for spec in specs:
        _try_once(spec.name)
    return specs


def check_ranking(metrics: Any, options: Options, runtime: Runtime) -> list[Spec]:
    """Check metrics as `check_metrics` does, on the device of the options, and that some metric reads what is given.

    Raises UserError for a source of LEEP and NCE, or a reference of PED that is not open yet, that none reads.
    """
    specs = check_metrics(metrics, bootstrap=options.bootstrap, runtime=replace(runtime, device=options.device))
    source, reference = options.source, options.reference
    if source is not None and not any("source_probs" in spec.needs for spec in specs):
        raise UserError(f"source={source} is for leep and nce: metrics=[leep,nce]")
    is_named = not isinstance(reference, Reference) and reference != CARD
    if is_named and not any(spec.reads_reference for spec in specs):
        raise UserError(f"reference={reference} is for ped: metrics=[ped+logme]")
    return specs


def truth_values(truth: Any, names: Sequence[str]) -> np.ndarray | None:
    """Return accuracies (M,) in the order of the models. truth: by name, in this order, or None. Raises UserError."""
    if truth is None:
        return None
    if isinstance(truth, Mapping):
        missing = [name for name in names if name not in truth]
        if missing:
            raise UserError(f"truth has no accuracy of {', '.join(missing)}; it has: {', '.join(map(str, truth))}")
        truth = [truth[name] for name in names]
    try:
        values = np.asarray(truth, dtype=float)
    except (TypeError, ValueError) as error:
        raise UserError(f"truth must be numbers, one accuracy a model: {error}") from error
    if values.shape != (len(names),) or not np.isfinite(values).all():
        raise UserError(f"truth must be one finite accuracy for each of the {len(names)} models: {', '.join(names)}")
    _check_unit(values, names)
    return values


def _check_unit(values: np.ndarray, names: Sequence[str]) -> None:
    """Raise UserError for accuracies of which some are fractions and some in percent: their order would be wrong."""
    share, percent = (values > 0) & (values < 1), (values > 1) & (values <= 100)  # 1 may be either
    if share.any() and percent.any() and ((values >= 0) & (values <= 100)).all():
        share_row, other = int(share.argmax()), int(percent.argmax())
        raise UserError(
            f"truth mixes fractions and percent: {names[share_row]} has {values[share_row]:g}, {names[other]} has "
            f"{values[other]:g}; give all as fractions from 0 to 1"
        )


def _as_list(metrics: Any) -> list[str]:
    if not isinstance(metrics, (str, Sequence)):
        raise UserError(f"metrics={metrics!r} must be names of metrics: metrics=[knn,logme]")
    listed = [metrics] if isinstance(metrics, str) else list(metrics)
    if not listed:
        raise UserError("there is no metric to rank by: metrics=[knn,logme]")
    repeated = {metric for metric in listed if listed.count(metric) > 1}
    if repeated:
        raise UserError(f"metrics names {sorted(repeated)[0]} twice")
    return listed


@cache
def _try_once(metric: str) -> None:
    """Score the synthetic sample, once for each metric as written. Raises UserError for options out of range."""
    with warnings.catch_warnings(), suppress(TooFewImages):
        warnings.simplefilter("ignore")  # caused by the twelve random rows
        compute_score(parse(metric), _synthetic_sample())


def _synthetic_sample() -> Sample:
    """Return random rows with every input that a metric may need."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, COLUMNS, generator=rng, dtype=torch.float64)
    y = torch.arange(ROWS) % CLASSES
    return Sample(
        x,
        y,
        y[:, None].double(),
        tuple(map(str, range(CLASSES))),
        source_probs=torch.rand(ROWS, CLASSES + 1, generator=rng, dtype=torch.float64).softmax(1),
        reference=(x.mean(0), x.std(0)),
        model=1,
        untrained=torch.randn(ROWS, COLUMNS, generator=rng, dtype=torch.float64),
        boxes=torch.rand(ROWS, 4, generator=rng, dtype=torch.float64),
        dim=COLUMNS,
    )
