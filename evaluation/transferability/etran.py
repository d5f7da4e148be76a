"""ETran: energy and a discriminant, each scaled to [0, 1] over a zoo of models."""

import math
from collections.abc import Mapping, Sequence

from evaluation.results.choice import equal_scores
from evaluation.transferability import etran_classification, etran_energy
from evaluation.transferability.base import Sample, Score
from sslkit.errors import UserError
from sslkit.options.ranges import Share


def minmax(values: Sequence[float]) -> list[float]:
    """Scale to [0, 1]; all 0 if all are equal up to rounding."""
    low, high = min(values), max(values)
    if equal_scores(low, high):
        return [0.0] * len(values)
    return [(value - low) / (high - low) for value in values]


def over_zoo(parts: Sequence[Mapping[str, float]]) -> list[float]:
    """Return (1 - w) minmax(classification) + w minmax(energy) for each model, from its `parts`."""
    classification, energy = (minmax([scores[name] for scores in parts]) for name in ("classification", "energy"))
    weights = [scores["energy_weight"] for scores in parts]
    if len(set(weights)) > 1:
        raise UserError(f"the models of a zoo were scored with different energy_weight: {sorted(set(weights))}")
    return [(1 - w) * c + w * e for w, c, e in zip(weights, classification, energy, strict=True)]


def score(
    sample: Sample,
    *,
    variant: etran_classification.Variant = "paper",
    percent: etran_energy.Percent = 0.5,
    energy_weight: Share = 0.15,
) -> Score:
    """0.85 minmax(classification) + 0.15 minmax(energy), each scaled to [0, 1] over the models of a zoo.

    A single model has no score (nan), only `parts`, from which `over_zoo` computes the scores.
    variant: of etran_classification, "paper" or "official". percent: of etran_energy. energy_weight: 0.15, as in the
        authors' code; the classification part has the rest. The paper's formula adds both parts with weight 1.
    Range: 0 to 1 within a zoo. Higher is better. Cost: of etran_classification, and O(N D).
    Source: Gholami et al., ETran, ICCV 2023, eq. 8, and its code for the weights.
    Not for: comparing scores of different zoos, zoos of one or two models, or models whose features differ in scale,
    which moves both parts.
    """
    classification = etran_classification.score(sample, variant=variant)
    energy = etran_energy.score(sample, percent=percent)
    parts = {"classification": classification.value, "energy": energy.value, "energy_weight": float(energy_weight)}
    diagnostics = {**classification.diagnostics, **energy.diagnostics}
    return Score(math.nan, diagnostics, classification.warnings, parts=parts)
