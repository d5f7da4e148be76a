"""What each metric of the ranking study says of made-up features: its fingerprint, see `../fingerprints.py`."""

import numpy as np

import evaluation
from evaluation.ranking.scoring import needs, parse

IMAGES, CLASSES, WIDTH, SOURCE_CLASSES = 120, 6, 16, 10
PREFIX = "metric "  # of the part's name


def part_of(metric: str) -> str:
    return PREFIX + metric


def of_metric(metric: str) -> dict[str, list[float]]:
    """The score, and the parts that scores of a whole zoo are made from."""
    result = evaluation.evaluate_metric(metric, **make_inputs(metric))
    parts = {name: [float(value)] for name, value in sorted(result.parts.items())}
    return parts if np.isnan(result.score) else {"score": [float(result.score)], **parts}


def make_inputs(metric: str) -> dict[str, object]:
    """The inputs that a metric needs, of one network: classes that overlap, sources that go with them, boxes."""
    rng = np.random.default_rng(0)
    y = np.arange(IMAGES) % CLASSES
    centres, sources = rng.normal(size=(CLASSES, WIDTH)), rng.normal(size=(CLASSES, SOURCE_CLASSES))
    x = np.maximum(centres[y] + rng.normal(size=(IMAGES, WIDTH)), 0)
    logits = sources[y] + rng.normal(size=(IMAGES, SOURCE_CLASSES))
    corners = rng.uniform(0.1, 0.4, (IMAGES, 2))
    inputs = {
        "features": x,
        "labels": y,
        "source_probs": np.exp(logits) / np.exp(logits).sum(1, keepdims=True),
        "model": 1_000_000,
        "untrained": np.maximum(rng.normal(size=(IMAGES, WIDTH)), 0),
        "boxes": np.concatenate([corners, corners + rng.uniform(0.2, 0.5, (IMAGES, 2))], 1),
    }
    wanted = {"features", "labels", *needs(parse(metric).metric)}
    chosen = {name: value for name, value in inputs.items() if name in wanted}
    if "ped" in metric:
        chosen["reference"] = (np.full(WIDTH, 0.4), np.full(WIDTH, 0.6))
    return chosen
