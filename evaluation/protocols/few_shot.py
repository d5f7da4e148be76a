"""Are new classes told apart by a few images each? Episodes on frozen features.

The settings are those of the transfer papers: 5-way, 1 and 5 shot, 15 queries a class, L2 logistic regression with
C = 1 on l2-normalised features (Tian et al. 2020, arXiv 2003.11539), 2000 episodes.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evaluation.features.table import Features, as_features, one_label
from evaluation.learners.episode_solvers import CLASSIFIERS, TOLERANCE, Solved, solve_episodes
from evaluation.learners.episodes import Drawing, EpisodeTable, draw_episodes
from evaluation.protocols.base import Subject, among
from evaluation.results import unseen
from evaluation.results.result import Result
from evaluation.results.statistics import over_episodes
from sslkit.data.copies import near_within
from sslkit.errors import UserError
from sslkit.numerics.logistic import STRENGTH
from sslkit.numerics.neighbours import unit_rows
from sslkit.options.settings import MOST, setting
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime

NORMALIZE = ("l2", "none")


@dataclass(frozen=True, kw_only=True)
class Options(Drawing):
    k_shot: int | Sequence[int] = setting(
        (1, 5), "labelled images of each class, one run for each value", least=1, most=MOST
    )
    classifier: str = setting(
        "logistic", "of the main result: logistic, ridge or nearest_centroid; all are in others", choices=CLASSIFIERS
    )
    c: float = setting(
        STRENGTH, "of logistic and ridge: weight of the loss beside the squared weights, as scikit-learn's C", above=0
    )
    normalize: str = setting("l2", "of the features: l2 or none", choices=NORMALIZE)

    @property
    def shots(self) -> list[int]:
        """The numbers of k_shot. Raises UserError for none."""
        counts = list(self.k_shot) if isinstance(self.k_shot, Sequence) else [self.k_shot]
        if not counts:
            raise UserError("protocol few_shot: k_shot must have at least one value, got []")
        return counts

    def draw(self, features: Features, k_shot: int, seed: int) -> EpisodeTable:
        """Draw the episodes of one number of labelled images."""
        drawing = {field.name: getattr(self, field.name) for field in fields(Drawing)} | {"k_shot": k_shot}
        return draw_episodes(features, seed=seed, **drawing)


@public("seed")
def few_shot(
    features: Any,
    *,
    k_shot: int = Drawing.k_shot,
    table: EpisodeTable | None = None,
    options: Options,
    runtime: Runtime,
) -> Result:
    """Mean accuracy over episodes, with its interval over episodes of this pool of images.

        pool = evaluation.extract("runs/zoo/NAME", "digits", "test")
        evaluation.few_shot(pool, n_way=5, k_shot=1).interval  # of the mean accuracy, fractions

    features: Features or a pair (x: (N, D), y: (N,)): the pool, with classes not used as labels in pretraining.
    k_shot: labelled images of each class, one number: a call gives one result, the protocol one for each of several.
    table: the episodes, to use the same for several models (`draw_episodes`); None: drawn. A table has its own numbers
        and seed, which need not be given again, and has dropped its small classes.
    `outcomes` are the accuracies of the episodes, `paired_on` the digest of the table. `converged` is that of the
    logistic regression: residual of every episode at most 1e-8 (see `episode_solvers.logistic`).
    Raises UserError for invalid features, several labels per image, too small or too few classes, and a table of
    another pool.
    """
    features = one_label(as_features(features), "few_shot")
    if table is None:
        table = options.draw(features, k_shot, runtime.seed)
    else:
        _check_table(table, replace(options, k_shot=k_shot), runtime.seed)
    return solve(features, table, options)


def solve(features: Features, table: EpisodeTable, options: Options) -> Result:
    """The result of the episodes of a table; see `few_shot`."""
    start = time.perf_counter()
    classifier, c, normalize = options.classifier, options.c, options.normalize
    x, rows = pool(features, table.rows(features), normalize)
    solved = solve_episodes(x, rows, table.k_shot, c)
    accuracy = episode_accuracy(solved, table)
    return Result.from_estimate(
        over_episodes(accuracy[classifier]),
        protocol="few_shot",
        recipe=_recipe(table, classifier, c, normalize),
        metric="episode_accuracy",
        model=features.model,
        data=features.data,
        others={name: over_episodes(values) for name, values in accuracy.items()},
        seeds=[table.seed],
        digests={"features": features.digest, "episodes": table.digest},
        converged=bool(solved.has_converged.all()),
        seconds=time.perf_counter() - start,
        details=_details(table, solved, classifier, c, normalize, features),
        outcomes=accuracy[classifier],
        paired_on=table.digest,
    )


def pool(features: Features, rows: np.ndarray, normalize: str) -> tuple[Tensor, Tensor]:
    """Features of the images in episodes, (n, D) float32 if normalised, else float64, and the episodes' rows of them.

    They are centred: this changes no classifier here (a shift changes only the intercept) and reduces rounding.
    Raises UserError for rows of zeros that cannot be normalised.
    """
    used, inverse = np.unique(rows, return_inverse=True)
    x = features.x[used]
    x = unit_rows(x, "few_shot", used) if normalize == "l2" else x.astype(np.float64)
    x = x - x.mean(0, dtype=np.float64).astype(x.dtype)
    return torch.from_numpy(x), torch.from_numpy(inverse.reshape(rows.shape))


def episode_accuracy(solved: Solved, table: EpisodeTable) -> dict[str, np.ndarray]:
    """{classifier: (E,) accuracy on the queries of each episode}."""
    way = torch.arange(table.n_way).repeat_interleave(table.n_query)
    return {name: (labels == way).double().mean(1).numpy() for name, labels in solved.labels.items()}


def _details(
    table: EpisodeTable, solved: Solved, classifier: str, c: float, normalize: str, features: Features
) -> dict[str, Any]:
    return {
        "n_way": table.n_way,
        "k_shot": table.k_shot,
        "n_query": table.n_query,
        "episodes": len(table),
        "classifier": classifier,
        "c": float(c),
        "normalize": normalize,
        "images": len(features),
        "classes": len(np.unique(features.y)) - len(table.left_out),
        "left_out": list(table.left_out),
        "steps": solved.steps,
        "tolerance": TOLERANCE,
        "not_converged": int((~solved.has_converged).sum()),
        **unseen.within(near_within(features.likeness, features.together)),
    }


def _recipe(table: EpisodeTable, classifier: str, c: float, normalize: str) -> str:
    strength = "" if classifier == "nearest_centroid" else f", c={c:g}"
    scale = "l2-normalised" if normalize == "l2" else "not normalised"
    return f"{table.n_way}-way {table.k_shot}-shot, {classifier}{strength}, {scale}"


def _check_table(table: EpisodeTable, options: Options, seed: int) -> None:
    """Raises UserError for a number that is given, and is not that of the table."""
    has = {"n_way": table.n_way, "k_shot": table.k_shot, "n_query": table.n_query, "episodes": len(table)}
    usual = {**vars(Options()), "k_shot": 1, "seed": 0}
    for name, value in {**has, "seed": table.seed}.items():
        asked = seed if name == "seed" else getattr(options, name)
        if asked not in (value, usual[name]):
            raise UserError(f"{name}={asked} differs from {name}={value} of the episode table; leave {name} out")


def open(subject: Subject, options: Options) -> Subject:
    """Raises UserError before feature extraction if no episodes can be drawn from the labels."""
    split = subject.open_split(subject.novel_split)
    if split.y.ndim != 1:
        raise UserError(f"few_shot needs one label per image; {split.name} has several: use the linear probe")
    rows = np.arange(len(split), dtype=np.float32)[:, None]  # placeholder features: episodes depend on labels only
    labels = Features(rows, split.y, split.classes, "", split.ids, data=split.name, groups=split.groups).labelled()
    for shot in options.shots:
        replace(options, episodes=2).draw(labels, shot, 0)
    return subject


def run(opened: Subject, options: Options, runtime: Runtime) -> list[Result]:
    """Run each of `k_shot` on the held-out classes, if the data set has some; see `few_shot`.

    Saves the episode tables as `episodes-DIGEST.npz` beside the results, for models of other libraries.
    """
    features = one_label(as_features(opened.novel(runtime)), "few_shot")
    tables = [options.draw(features, k, runtime.seed) for k in options.shots]
    for table in tables:
        table.save(Path(runtime.out) / f"episodes-{table.digest[:12]}.npz")
    return [solve(features, table, options) for table in tables]


def beside(result: Result) -> tuple[str, ...]:
    """The result of the classifier without hyper-parameters."""
    return among(result, "nearest_centroid")
