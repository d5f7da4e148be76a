"""Which action is in a video? A linear head on a frozen video backbone, or all weights, over the official splits.

Linear: Feichtenhofer et al. 2021 (arXiv 2104.14558) on Kinetics-400. Fine-tuning: UCF101 and HMDB51, three splits. The
settings are in recipes.py. A video is classified by the mean of the softmax over its views, clips in time
times crops in space. Nothing is chosen on test videos: every number is that of the last epoch.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from evaluation.datasets import Reading
from evaluation.protocols.base import Subject
from evaluation.results.result import Result
from evaluation.tasks.action import datasets, recipes
from evaluation.tasks.action.films import add_note, rates_line, survey
from evaluation.tasks.action.opening import Opened, open_run, plan_recipe
from evaluation.tasks.action.options import SHARED, Options
from evaluation.tasks.action.output import TERMINAL
from evaluation.tasks.action.reading import EvalViews
from evaluation.tasks.action.results import fold_name, result_of
from evaluation.tasks.action.runs import Run, done
from evaluation.tasks.action.seen import seen_films
from evaluation.tuning.processes import process_group
from evaluation.tuning.recorded import open_folder
from sslkit.models.loading import Loading
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime, silent
from sslkit.runtime.device import device_of

FOLDS = (1, 2, 3)  # the official splits that a set can have
BESIDE = ("top5", *map(fold_name, FOLDS))
SHOWN = 3  # unreadable videos that a line names


@public(*SHARED)
def action(
    model: Any,
    data: str | None = None,
    *,
    options: Options,
    loading: Loading,
    reading: Reading,
    runtime: Runtime,
    say: Callable[[str], None] = silent,
) -> Result:
    """Accuracy on whole test videos, top-1 and top-5, of a classifier trained by a named recipe.

    model: see `sslkit.load`; a network of clips. data: see `datasets.open_films`; None:
        the recipe's own, or without a recipe the folder of videos that a zoo entry was pretrained on.
    What is given beside a recipe replaces its own: a rate that is not given goes with the batch size, warm-up with the
    epochs, and the result's recipe says what was changed. clips, crops, rule: see `EvalViews` in reading.py.
    features="once": after a stop they are extracted again; the result's recipe says so.
    Below `out` is `action.jsonl`, to which every finished split is added, with checkpoints: the same call takes up
    a stopped training at its last one, and ends with the same numbers. A video that is changed is trained on and
    tested anew, a copy is not. Videos that cannot be decoded are named. say: called with a line when something is done.

    Returns the accuracy on the test videos, with Wilson's interval for one split; of several the mean and its t
    interval, each split with its own interval in `others`, and values and std in `details`.
    Raises UserError for options out of range, a network of images, missing videos, and a loss that becomes infinite.
    """
    subject = Subject(loading.load(model), data, reading)
    return run(open_run(subject, options), options, replace(runtime, say=say))[0]


def open(subject: Subject, options: Options) -> Opened:
    """Check the network, the recipe, the videos and the views before anything is computed. Raises UserError."""
    return open_run(subject, options)


def run(opened: Opened, options: Options, runtime: Runtime) -> list[Result]:
    """A head or all weights of a network of clips, on videos; resumed by the same command; see `action`."""
    device_of(runtime.device)
    plan, description = plan_recipe(options)
    views = EvalViews(options.clips, options.crops, options.rule)
    with process_group(runtime) as runtime, open_folder(runtime.out) as folder:
        folder.mkdir(parents=True, exist_ok=True)
        runs = []
        for films in opened.films:
            train, test = (
                survey(films_of_split, cache=runtime.cache, on_error=opened.on_error) for films_of_split in films
            )
            counted = f"{len(train.films):,} training and {len(test.films):,} test videos"
            runtime.say(f"{test.films.name}, split {test.films.fold}: {counted}")
            for films_of_split in (train.films, test.films):
                _say_unreadable(films_of_split, runtime.say)
            if rates := rates_line(train, test):
                runtime.say(f"note: {rates}")
                test = add_note(test, rates)
            if saw := seen_films(opened.model.card, test.films.root, test.index, runtime.cache):
                runtime.say(f"note: {saw}")
                test = add_note(test, saw)
            fitted = recipes.fit_batch(plan, len(train.films), scale=options.lr is None)
            fitted = fitted if opened.mirror else recipes.without_mirror(fitted)
            runs.append(Run(opened.model, train, test, fitted, opened.shape, views, options.features, runtime))
        return [result_of(runs, done(runs, folder), plan, description)]


def beside(result: Result) -> tuple[str, ...]:
    """The top-5, and each official split."""
    return tuple(name for name in result.others if name in BESIDE)


terminal = TERMINAL


def _say_unreadable(films: datasets.Films, say: Callable[[str], None]) -> None:
    """Names videos that no decoder can read; those that the set lacks are counted in its note."""
    lines = [f"{films.name_of(path)}: {why}" for path, why in films.left_out.items() if why != "missing"]
    if lines:
        more = f"; and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
        say(f"{len(lines)} {films.split} videos cannot be read, left out: {'; '.join(lines[:SHOWN])}{more}")
