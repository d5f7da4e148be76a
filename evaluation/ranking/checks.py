"""What a ranking can refuse before anything is extracted: metrics, their options, the truth, seeds and devices."""

import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from numbers import Integral
from typing import Any

import numpy as np
import torch

from evaluation.features.checks import device_of
from evaluation.ranking.samples import checked_seed
from evaluation.ranking.scoring import Spec, parse, scored
from evaluation.transferability.base import Sample
from sslkit.errors import UserError

METRICS = ("ped+logme", "itm", "logme", "leep")  # of a ranking, where none are named
BOOTSTRAP = 100  # redrawn sets of images of a ranking, where no number is given
ROWS, COLUMNS, CLASSES = 12, 6, 3  # of the sample that options are tried on


def checked_metrics(metrics: Any, *, bootstrap: int = 0, seed: int = 0, device: str = "cpu") -> list[Spec]:
    """The metrics, parsed, each of which has scored a small made-up sample: what its options forbid is known then.

    Raises UserError, also for a bootstrap of 1, a seed out of range and a device that is not there.
    """
    if not isinstance(bootstrap, Integral) or isinstance(bootstrap, bool) or bootstrap < 0 or bootstrap == 1:
        raise UserError(f"bootstrap={bootstrap!r}: how many times images are redrawn, 0 for never or at least 2")
    checked_seed(seed), device_of(device)
    specs = [parse(metric) for metric in _listed(metrics)]
    for spec in specs:
        _tried(spec.name)
    return specs


def truth_values(truth: Any, names: Sequence[str]) -> np.ndarray | None:
    """(M,) accuracies in the order of the models. truth: by name, or in this order, or None. Raises UserError."""
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
    return values


def _listed(metrics: Any) -> list[str]:
    listed = [metrics] if isinstance(metrics, str) else list(metrics or ())
    if not listed:
        raise UserError("there is no metric to rank by: metrics=[ped+logme,itm,logme,leep]")
    repeated = {metric for metric in listed if listed.count(metric) > 1}
    if repeated:
        raise UserError(f"metrics names {sorted(repeated)[0]} twice")
    return listed


@cache
def _tried(metric: str) -> None:
    """Score the made-up sample, once for each metric as written. Raises UserError for options out of range."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of twelve rows at random
        scored(parse(metric), _made_up())


def _made_up() -> Sample:
    """Rows at random with everything that a metric may ask for."""
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
        dim=COLUMNS,
    )
