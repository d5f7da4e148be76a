"""The pictures of an evaluation: bars with intervals, and of each data set a map and the confusions."""

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from evaluation.features.plots import plot_confusion, plot_features
from evaluation.features.table import match_labels
from evaluation.protocols.base import Subject
from evaluation.protocols.knn import left_out, predict
from evaluation.results.bars import plot_results
from evaluation.results.result import Result
from sslkit.numerics.figures import NoMap
from sslkit.runtime.context import Runtime
from sslkit.terminal import say

ENOUGH = 8  # images of a class, for a map: a round number; fewer show no groups
MOST = 100  # classes, for a matrix that can be read on a page


def draw(results: Sequence[Result], subjects: Iterable[Subject], runtime: Runtime) -> list[Path]:
    """Write evaluation.png, and map-DATA.png and confusion-DATA.png of each subject; gives their paths.

    subjects: those with training and test images, one label each. The confusions are those of the 20-NN vote.
    """
    folder = Path(runtime.out)
    bars = folder / "evaluation.png"
    plot_results([replace(result, model="") for result in results], bars, title=results[0].model)
    written = [bars]
    for subject in subjects:
        train, test = match_labels(subject.train(runtime), subject.test(runtime))
        name = _free(folder, re.sub(r"[^\w.+-]+", "_", test.data), written)
        if test.y.ndim == 1 and len(test) >= ENOUGH * len(set(test.y.tolist())):
            try:
                plot_features(test, folder / f"map-{name}.png", seed=runtime.seed)
                written.append(folder / f"map-{name}.png")
            except NoMap as error:  # of a collapsed model; its numbers stand all the same
                say.warn(f"no map of {test.data}: {error}", stacklevel=2)
        if test.y.ndim == 1 and len(test.classes) <= MOST:
            excluded, most = left_out(train, test)
            k = min(20, most)
            if not k:
                continue
            voted = predict(train, test, [k], own=excluded)[k]
            title = f"{test.model}: {test.data}, confusions of {k}-NN (not of the linear probe)"
            plot_confusion(test.y, voted, test.classes, folder / f"confusion-{name}.png", title=title)
            written.append(folder / f"confusion-{name}.png")
    return written


def _free(folder: Path, name: str, written: Sequence[Path]) -> str:
    """Return the name, numbered if a picture of another data set of this name was written."""
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(
        candidate
        for candidate in names
        if not {folder / f"map-{candidate}.png", folder / f"confusion-{candidate}.png"}.intersection(written)
    )
