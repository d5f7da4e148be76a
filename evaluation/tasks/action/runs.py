"""Runs of action recognition: one training and test on one official split, each recorded once."""

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.results import unseen
from evaluation.results.measures import measure
from evaluation.results.records import Records
from evaluation.tasks.action.cached import train_head
from evaluation.tasks.action.classifier import build_classifier
from evaluation.tasks.action.films import SurveyedVideos, in_train
from evaluation.tasks.action.reading import ClipShape, EvalViews, FilmViews, TrainingClips
from evaluation.tasks.action.recipes import Recipe
from evaluation.tasks.action.testing import FilmScores, score_films, view_features
from evaluation.tasks.action.training import train
from evaluation.tuning.checkpoint import Checkpoint
from evaluation.tuning.loop import Diverged, State
from evaluation.tuning.outcomes import pack
from evaluation.tuning.recorded import checkpoint_of, each_recorded, of_ranks
from sslkit.errors import UserError
from sslkit.models.model import Model
from sslkit.runtime.context import Runtime
from sslkit.runtime.distributed import rank
from sslkit.runtime.waiting import from_first

NEEDS = ("value", "interval", "kind", "n", "unit", "others", "right", "seconds", "in_train", "leaky")  # of every record
FEATURES = ("live", "once")
ONCE = EvalViews(clips=10, crops=1, rule="endpoints")  # of a training film whose features are extracted once


@dataclass(frozen=True)
class Run:
    """One official split of a set, and how a classifier is trained and judged on it.

    features: "live", clips are drawn and augmented at every step; "once", see `cached`.
    """

    model: Model
    train: SurveyedVideos
    test: SurveyedVideos
    recipe: Recipe
    shape: ClipShape
    views: EvalViews
    features: str
    runtime: Runtime

    @property
    def key(self) -> dict[str, Any]:
        """Everything that the result depends on: equal keys give equal results."""
        model, films = self.model, self.test.films
        return {
            "model": model.name,
            "weights": model.digest,
            "input": [model.image_size, list(model.mean), list(model.std)],
            "data": films.name,
            "fold": films.fold,
            "train": self.train.films.digest,
            "test": films.digest,
            "content": from_first("the content of the videos", lambda: [self.train.content, self.test.content]),
            "decoder": self.train.reader.name,
            "recipe": asdict(self.recipe),
            "shape": asdict(self.shape),
            "views": asdict(self.views),
            "features": self.features,
            "precision": self.runtime.precision,
            "seed": self.runtime.seed,
            **of_ranks(),
        }

    def values(self, checkpoint: Checkpoint) -> dict[str, Any]:
        """Train and test; return the values of the record, on ranks other than 0 nothing.

        Its seconds include those before a stop, of which the checkpoint tells.
        Raises UserError where the loss becomes infinite, and where no test film can be read.
        """
        started = time.perf_counter()
        try:
            state, scores = self._done(checkpoint)
        except Diverged as error:
            checkpoint.remove()
            where = f"{self.recipe.protocol} on {self.test.films.name}, split {self.test.films.fold}"
            raise UserError(f"{where}: {error} at lr {self.recipe.lr:g}; give a lower lr") from error
        if scores is None:
            return {}
        return {
            **self._evaluate(scores),
            "losses": [loss for _, loss in state.losses],
            "unreadable": {
                **{self.train.films.name_of(path): "while training" for path in state.notes},
                **{
                    self.test.films.name_of(self.test.films.paths[row]): reason
                    for row, reason in scores.unreadable.items()
                },
            },
            "seconds": state.before + time.perf_counter() - started,
            "device": self.runtime.device.type,
        }

    def _done(self, checkpoint: Checkpoint) -> tuple[State, FilmScores | None]:
        """The state of the training and, on rank 0, the scores of the test films."""
        recipe, films = self.recipe, self.train.films
        net = build_classifier(
            self.model, recipe.protocol, len(films.classes), dropout=recipe.dropout, seed=self.runtime.seed
        )
        if self.features == "once":
            state = self._train_once(net, checkpoint)
        else:
            clips = TrainingClips(self.train, self.shape, self.runtime.seed)
            state = train(net, self.model, clips, recipe, self.runtime, checkpoint)
        if rank() != 0:
            return state, None
        return state, score_films(net, self.model, FilmViews(self.test, self.shape, self.views), self.runtime)

    def _train_once(self, net: Any, checkpoint: Checkpoint) -> State:
        views, films = FilmViews(self.train, self.shape, ONCE), self.train.films
        views_read = list(view_features(net.backbone, self.model, views, self.runtime, "features"))
        read = [(row, features.clone()) for row, features, _ in views_read if features is not None]
        if not read:
            raise UserError(f"{films.name}: none of the {len(films)} training videos can be read")
        y = films.y[[row for row, _ in read]]
        state = train_head(net, [features for _, features in read], y, self.recipe, self.runtime, checkpoint)
        state.notes = [films.paths[row] for row, features, _ in views_read if features is None]
        return state

    def _evaluate(self, scores: FilmScores) -> dict[str, Any]:
        films = self.test.films
        if not len(scores.rows):
            raise UserError(f"{films.name}: none of the {len(films)} test videos can be read")
        y = films.y[scores.rows]
        estimate, others, right = measure(scores.probabilities, y, "top1")
        seen = in_train(self.train, self.test)[scores.rows]
        others |= unseen.beside(seen, lambda rows: measure(scores.probabilities[rows], y[rows], "top1")[0])
        return {
            **asdict(estimate),
            "others": {name: asdict(other) for name, other in others.items()},
            "right": pack(np.asarray(right)),
            **unseen.details(seen),
            "leaky": unseen.is_leaky(seen),
            "left_out": [films.paths[row] for row in scores.unreadable],
        }


def done(runs: list[Run], folder: Path) -> list[dict[str, Any]]:
    """Return the record of every run, in order; those in `folder`/action.jsonl are not done again.

    Several processes may work there: each does the runs that no other has. A stopped run goes on from its checkpoint.
    """
    records, keys = Records(folder / "action.jsonl"), [run.key for run in runs]

    def work(number: int) -> dict[str, Any]:
        run = runs[number]
        values = run.values(checkpoint_of(records.path, keys[number], run.runtime.save_seconds))
        if values:
            films, losses = run.test.films, values["losses"]
            loss = f"loss {losses[0]:.3f} to {losses[-1]:.3f}"
            told = f"{loss}, top-1 {100 * values['value']:.1f} % in {values['seconds']:.0f} s"
            run.runtime.say(f"{films.name}, split {films.fold}: {told}")
        return values

    return each_recorded(keys, records, work, NEEDS)
