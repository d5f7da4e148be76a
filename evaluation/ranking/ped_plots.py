"""Plots of PED: the potential energy as the classes move apart, and a map of the features before and after."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.ranking.samples import as_sample
from evaluation.transferability.ped import moves
from sslkit.errors import UserError
from sslkit.numerics.figures import (
    NAMED,
    NEIGHBOURS,
    PANEL,
    SMALL,
    line_style,
    noted,
    panel,
    purity,
    reduced,
    save_figure,
    scatter,
    titled,
    tsne,
)
from sslkit.runtime.callers import process_kept

SEPARATE = "The two maps are independent: compare the numbers, not positions."


@process_kept()
def plot_energy(energies: Mapping[str, Sequence[float]], path: str | Path) -> Path:
    """Plot the potential energy after each step, as a share of the initial energy, a line for each model.

    energies: {model: (steps + 1,)}, the "potential_energy" in the diagnostics of `ped+...`. Models without overlapping
    classes have energy 0 and appear only in the legend. path: of the PNG. Raises UserError without a model.
    """
    from matplotlib.figure import Figure

    if not energies:
        raise UserError("there is no model whose energy could be drawn")
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axis = figure.subplots()
    for k, (name, values) in enumerate(energies.items()):
        start = values[0]
        shares = [value / start for value in values] if start > 0 else []
        label = name if start > 0 else f"{name} (no overlap)"
        axis.plot(range(len(shares)), shares, label=label, **line_style(k))
    panel(axis, "PED: potential energy of the classes", "share of that at first; falls as the classes move apart")
    axis.set(ylim=(0, 1.05))
    axis.set_xlabel("step of PED", fontsize=SMALL)
    axis.set_ylabel("potential energy / that at first", fontsize=SMALL)
    axis.locator_params(axis="x", integer=True)
    axis.legend(fontsize=SMALL, frameon=False)
    save_figure(figure, Path(path))
    return Path(path)


@process_kept()
def plot_moves(
    features: Any,
    labels: Any = None,
    path: str | Path = "ped.png",
    *,
    reference: Any = None,
    n_classes: int = 8,
    per_class: int = 100,
    seed: int = 0,
    **options: Any,
) -> Path:
    """Plot t-SNE of some classes before and after PED moved them, side by side, with the neighbours' purity.

    features, labels, reference: see `evaluation.score`. options: of ped (lam, dt, ...). All classes move; the
    n_classes (at most 12) with the most images are shown, per_class images of each. The two maps are independent:
    compare the purity, not positions.
    """
    from matplotlib.figure import Figure

    if not 2 <= n_classes <= NAMED:
        raise UserError(f"n_classes={n_classes}: must be from 2 to {NAMED}, the number of colours")
    sample = as_sample(features, labels, reference=reference)
    after, trajectory = moves(sample, **options)
    rows = _shown(sample.labels.numpy(), n_classes, per_class, seed)
    y = sample.labels.numpy()[rows]
    figure = Figure(figsize=(12.4, 5.2), layout="constrained")
    parts = {"before": sample, f"after {trajectory.steps} steps": after}
    for axis, (title, part) in zip(figure.subplots(1, 2), parts.items(), strict=True):
        x = part.features.numpy()[rows]
        flat, _ = tsne(reduced(x, seed), seed)
        scatter(axis, flat, y, sample.classes, legend=axis is figure.axes[-1])
        axis.set_title(
            f"{title}: {100 * purity(x, y):.0f} % of {NEIGHBOURS} neighbours of the same class", fontsize=PANEL
        )
    titled(figure, "PED: the features before and after the classes moved apart")
    note = f"Neighbours are those in the features. {SEPARATE}"
    noted(figure, [note])
    save_figure(figure, Path(path))
    return Path(path)


def _shown(y: np.ndarray, n_classes: int, per_class: int, seed: int) -> np.ndarray:
    order = np.argsort(-np.bincount(y), kind="stable")[:n_classes]
    rng = np.random.default_rng(seed)
    rows = [rng.permutation(np.flatnonzero(y == label))[:per_class] for label in np.sort(order)]
    return np.sort(np.concatenate(rows))
