"""Few-shot classification on frozen features: episodes of new classes with few labelled images each.

The settings are those of the transfer papers: 5-way, 1 and 5 shot, 15 queries a class, L2 logistic regression with
C = 1 on l2-normalised features (Tian et al. 2020, arXiv 2003.11539), 2000 episodes.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from evaluation.features.table import Features, as_features
from evaluation.learners.episode_solvers import CLASSIFIERS, TOLERANCE, Solved, solve_episodes
from evaluation.learners.episodes import EpisodeTable, draw_episodes, one_label
from evaluation.learners.neighbours import unit_rows
from evaluation.protocols._option_types import AtLeastTwo, Count, Counts
from evaluation.protocols.base import Subject, among
from evaluation.results.result import Result
from evaluation.results.statistics import over_episodes
from sslkit.errors import UserError, shown
from sslkit.options.members import nearest
from sslkit.options.settings import Limits
from sslkit.runtime.callers import process_kept
from sslkit.runtime.context import Runtime

NORMALIZE = ("l2", "none")
MOST_EPISODES = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Options:
    """n_way: classes of an episode. k_shot: labelled images of each, one run for each value.

    n_query: test images of each class. episodes: how many are drawn.
    classifier: of the main result: logistic, ridge or nearest_centroid.
    on_small: classes of fewer than k_shot + n_query images: error, or drop them.
    """

    n_way: AtLeastTwo = 5
    k_shot: Counts = (1, 5)
    n_query: Count = 15
    episodes: Annotated[int, Limits(least=2, most=MOST_EPISODES)] = 2000
    classifier: Annotated[str, Limits(choices=CLASSIFIERS)] = "logistic"
    on_small: Annotated[str, Limits(choices=("error", "drop"))] = "error"

    @property
    def shots(self) -> list[int]:
        """The numbers of k_shot. Raises UserError for none."""
        found = list(self.k_shot) if isinstance(self.k_shot, Sequence) else [self.k_shot]
        if not found:
            raise UserError("protocol few_shot: k_shot must have at least one value, got []")
        return found


SETTINGS = {"n_way": Options.n_way, "k_shot": 1, "n_query": Options.n_query, "episodes": Options.episodes, "seed": 0}


@process_kept()
def few_shot(
    features: Any,
    *,
    n_way: int | None = None,
    k_shot: int | None = None,
    n_query: int | None = None,
    episodes: int | None = None,
    classifier: str = Options.classifier,
    c: float = 1.0,
    table: EpisodeTable | None = None,
    seed: int | None = None,
    on_small: str = Options.on_small,
    normalize: str = "l2",
) -> Result:
    """Mean accuracy over episodes, with its interval over episodes of this pool of images.

        pool = evaluation.extract("runs/zoo/NAME", "digits", "test")
        evaluation.few_shot(pool, n_way=5, k_shot=1).interval  # of the mean accuracy, fractions

    features: Features or a pair (x: (N, D), y: (N,)): the pool, with classes not used as labels in pretraining.
    n_way, k_shot, n_query, episodes, seed: default 5, 1, 15, 2000, 0, or those of `table`.
    classifier: of the main result, "logistic", "ridge" or "nearest_centroid"; all three are in `others`.
    c: weight of the loss relative to the squared weights, as scikit-learn's C, of logistic and ridge.
    table: the episodes, to use the same for several models (`draw_episodes`); default: drawn from `seed`.
    on_small: "error", or "drop" classes of fewer than k_shot + n_query images; `table` has its own.
    normalize: "l2" or "none".
    `outcomes` are the accuracies of the episodes, `paired_on` the digest of the table. `converged` is that of the
    logistic regression: residual of every episode at most 1e-8 (see `episode_solvers.logistic`).
    Raises UserError for invalid features, several labels per image, too small or too few classes, and a table of
    another pool.
    """
    start = time.perf_counter()
    _check_options(classifier, normalize, c)
    features = one_label(as_features(features), "few_shot")
    asked = {"n_way": n_way, "k_shot": k_shot, "n_query": n_query, "episodes": episodes, "seed": seed}
    if table is None:
        chosen = {key: SETTINGS[key] if value is None else value for key, value in asked.items()}
        table = draw_episodes(features, **chosen, on_small=on_small)
    _check_table(table, asked)
    x, rows = pool(features, table.rows(features), normalize)
    solved = solve_episodes(x, rows, table.k_shot, c)
    accuracy = episode_accuracy(solved, table)
    return Result.of(
        over_episodes(accuracy[classifier]),
        protocol="few_shot",
        recipe=_recipe(table, classifier, c, normalize),
        metric="episode_accuracy",
        model=features.model,
        data=features.data,
        others={name: over_episodes(values) for name, values in accuracy.items()},
        seeds=[table.seed],
        digests={"features": features.digest, "episodes": table.digest},
        converged=bool(solved.converged.all()),
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
        "not_converged": int((~solved.converged).sum()),
    }


def _recipe(table: EpisodeTable, classifier: str, c: float, normalize: str) -> str:
    strength = "" if classifier == "nearest_centroid" else f", c={c:g}"
    scale = "l2-normalised" if normalize == "l2" else "not normalised"
    return f"{table.n_way}-way {table.k_shot}-shot, {classifier}{strength}, {scale}"


def _check_options(classifier: str, normalize: str, c: float) -> None:
    for name, value, known in (("classifier", classifier, CLASSIFIERS), ("normalize", normalize, NORMALIZE)):
        if value not in known:
            raise UserError(f"there is no {name} {value!r}: {nearest(str(value), known)}")
    if not (np.isfinite(c) and c > 0):
        raise UserError(f"c must be a number above 0, got {shown(c)}")


def _check_table(table: EpisodeTable, asked: dict[str, int | None]) -> None:
    has = {
        "n_way": table.n_way,
        "k_shot": table.k_shot,
        "n_query": table.n_query,
        "episodes": len(table),
        "seed": table.seed,
    }
    for key, value in asked.items():
        if value is not None and value != has[key]:
            raise UserError(f"{key}={value} differs from {key}={has[key]} of the episode table; leave {key} out")


def open(subject: Subject, options: Options) -> Subject:
    """Raises UserError before feature extraction if no episodes can be drawn from the labels."""
    split = subject.opened(subject.novel_split)
    if split.y.ndim != 1:
        raise UserError(f"few_shot needs one label per image; {split.name} has several: use the linear probe")
    rows = np.arange(len(split), dtype=np.float32)[:, None]  # placeholder features: episodes depend on labels only
    labels = Features(rows, split.y, split.classes, "", split.ids, data=split.name, groups=split.groups).labelled()
    size = {"n_way": options.n_way, "n_query": options.n_query, "on_small": options.on_small}
    for shot in options.shots:
        draw_episodes(labels, k_shot=shot, episodes=2, **size)
    return subject


def run(opened: Subject, options: Options, runtime: Runtime) -> list[Result]:
    """Run each of `k_shot` on the held-out classes, if the data set has some; see `few_shot`.

    Saves the episode tables as `episodes-DIGEST.npz` beside the results, for models of other libraries.
    """
    features = one_label(as_features(opened.novel(runtime)), "few_shot")
    size = {"n_way": options.n_way, "n_query": options.n_query, "episodes": options.episodes}
    how = {"seed": runtime.seed, "on_small": options.on_small}
    tables = [draw_episodes(features, k_shot=k, **size, **how) for k in options.shots]
    for table in tables:
        table.save(Path(runtime.out) / f"episodes-{table.digest[:12]}.npz")
    chosen = {"classifier": options.classifier, "on_small": options.on_small}
    return [few_shot(features, table=table, **chosen) for table in tables]


def beside(result: Result) -> tuple[str, ...]:
    """The result of the classifier without hyper-parameters."""
    return among(result, "nearest_centroid")
