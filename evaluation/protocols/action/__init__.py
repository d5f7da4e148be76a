"""Action recognition on videos: a linear head on a frozen video backbone, or all weights, over the official splits.

Linear: Feichtenhofer et al. 2021 (arXiv 2104.14558) on Kinetics-400. Fine-tuning: UCF101 and HMDB51, three splits. The
settings are in recipes.py. A video is classified by the mean of the softmax over its views, clips in time
times crops in space. Nothing is chosen on test videos: every number is that of the last epoch.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evaluation.datasets import parted
from evaluation.features.checks import device_of, whole_number
from evaluation.features.models import load_model
from evaluation.features.seen import seen_films
from evaluation.protocols.action import datasets, recipes
from evaluation.protocols.action.films import noted, rates_line, survey
from evaluation.protocols.action.opening import Opened, opened, planned
from evaluation.protocols.action.options import Options, Place
from evaluation.protocols.action.output import TERMINAL
from evaluation.protocols.action.reading import EvalViews
from evaluation.protocols.action.results import fold_name, result_of
from evaluation.protocols.action.runs import Run, done
from evaluation.protocols.base import Subject
from evaluation.results.result import Result
from evaluation.tuning.processes import process_group
from sslkit.runtime.callers import process_kept
from sslkit.runtime.context import Runtime

FOLDS = (1, 2, 3)  # the official splits that a set can have
BESIDE = ("top5", *map(fold_name, FOLDS))
SHOWN = 3  # unreadable videos that a line names


@process_kept()
def action(
    model: Any,
    data: str | None = None,
    *,
    protocol: str | None = Options.protocol,
    recipe: str | None = Options.recipe,
    folds: Sequence[int] | None = Options.folds,
    epochs: int | None = Options.epochs,
    batch_size: int | None = Options.batch_size,
    lr: float | None = Options.lr,
    weight_decay: float | None = Options.weight_decay,
    dropout: float | None = Options.dropout,
    frames: int | None = Options.frames,
    stride: int | None = Options.stride,
    clips: int = Options.clips,
    crops: int = Options.crops,
    rule: str = Options.rule,
    features: str = Options.features,
    precision: str = Options.precision,
    seed: int = Place.seed,
    root: str | Path = Place.root,
    out: str | Path = Place.out,
    cache: str | Path | None = Place.cache,
    counts: str = Place.counts,
    mirror: bool | None = Place.mirror,
    on_error: str = Options.on_error,
    device: str = Place.device,
    workers: int | str = Place.workers,
    save_seconds: float = Options.save_seconds,
    image_size: int | None = Place.image_size,
    progress: bool = Place.progress,
    say: Callable[[str], None] = Place.say,
) -> Result:
    """Accuracy on whole test videos, top-1 and top-5, of a classifier trained by a named recipe.

    model: see `evaluation.load_model`; a network of clips. data: see `datasets.open_films`; None:
        the recipe's own, or without a recipe the folder of videos that a zoo entry was pretrained on.
    protocol: "linear" or "fine_tune". recipe: one of `RECIPES` in recipes.py; None: paper_k400 for linear,
        paper_ucf101 for fine_tune.
    folds: official splits of the data; None: those of the recipe that the data have. epochs, batch_size, lr,
        weight_decay, dropout: others than the recipe's; a rate that is not given goes with the batch size, warm-up
        with the epochs, and the result's recipe says what was changed.
    frames, stride: of a clip; None: what the model was pretrained with, else 16 and 64 // frames.
    clips, crops, rule: of a test video, see `EvalViews` in reading.py.
    features: "live", or "once" for the linear protocol on small sets: ten clips of each video pass the backbone once,
        their middle squares, without augmentation; the result's recipe says so. After a stop they are extracted
        again.
    precision: "float32", or "bfloat16" autocast. seed: of everything drawn. image_size: where the model does not say.
    out: folder of `action.jsonl`, to which every finished split is added, and of checkpoints: the same call takes up
        a stopped training at its last one, and ends with the same numbers. A video that is changed is trained on and
        tested anew, a copy is not. cache: folder of the index and the digests of videos; None: none is kept.
    root, counts: see `open_films`. mirror: training clips at random; None: unless classes differ by left and right.
    on_error: "skip" leaves out and names videos that cannot be decoded, or "raise".
    device: "auto" is a GPU if there is one. workers: processes that decode. save_seconds: between two checkpoints.
    progress: show lines meanwhile. say: called with a line when something is done.

    Returns the accuracy on the test videos, with Wilson's interval for one split; of several the mean and its t
    interval, each split with its own interval in `others`, and values and std in `details`.
    Raises UserError for options out of range, a network of images, missing videos, and a loss that becomes infinite.
    """
    changes = {"epochs": epochs, "batch_size": batch_size, "lr": lr, "weight_decay": weight_decay, "dropout": dropout}
    seen = {"frames": frames, "stride": stride, "clips": clips, "crops": crops, "rule": rule, "features": features}
    how = {"precision": precision, "on_error": on_error, "save_seconds": save_seconds}
    options = Options(protocol=protocol, recipe=recipe, folds=folds, **changes, **seen, **how)
    read = {
        "root": root,
        "cache": cache,
        "counts": counts,
        "mirror": mirror,
        "workers": workers,
        "image_size": image_size,
    }
    place = Place(seed=seed, out=out, device=device, progress=progress, say=say, **read)
    return asked(model, data, options, place)


def asked(model: Any, data: str | None, options: Options, place: Place) -> Result:
    """Run for a call from Python; see `action`."""
    reading, runtime = parted(vars(place))
    subject = Subject(load_model(model, image_size=place.image_size), data, reading)
    return run(opened(subject, options), options, runtime)[0]


def open(subject: Subject, options: Options) -> Opened:
    """Check the network, the recipe, the videos and the views before anything is computed. Raises UserError."""
    return opened(subject, options)


def run(opened: Opened, options: Options, runtime: Runtime) -> list[Result]:
    """A head or all weights of a network of clips, on videos; resumed by the same command; see `action`."""
    seed = whole_number("seed", runtime.seed, 0)
    device_of(runtime.device)
    plan, description = planned(options)
    views = EvalViews(options.clips, options.crops, options.rule)
    folder = Path(runtime.out)
    folder.mkdir(parents=True, exist_ok=True)
    with process_group(runtime) as runtime:
        own = {"precision": options.precision, "save_seconds": float(options.save_seconds)}
        own = replace(runtime, seed=seed, **own)
        runs = []
        for films in opened.films:
            train, test = (survey(part, cache=runtime.cache, on_error=options.on_error) for part in films)
            counted = f"{len(train.films):,} training and {len(test.films):,} test videos"
            runtime.say(f"{test.films.name}, split {test.films.fold}: {counted}")
            for part in (train.films, test.films):
                _say_unreadable(part, runtime.say)
            if rates := rates_line(train, test):
                runtime.say(f"note: {rates}")
                test = noted(test, rates)
            if saw := seen_films(opened.model.card, test.films.root, test.index, runtime.cache):
                runtime.say(f"note: {saw}")
                test = noted(test, saw)
            fitted = recipes.fitted(plan, len(train.films), scale=options.lr is None)
            fitted = fitted if opened.mirror else recipes.unmirrored(fitted)
            runs.append(Run(opened.model, train, test, fitted, opened.shape, views, options.features, own))
        return [result_of(runs, done(runs, folder), plan, description)]


def beside(result: Result) -> tuple[str, ...]:
    """The top-5, and each official split."""
    return tuple(name for name in result.others if name in BESIDE)


terminal = TERMINAL


def _say_unreadable(films: datasets.Films, say: Callable[[str], None]) -> None:
    """Names videos that no decoder can read; those that the set lacks are counted in its note."""
    found = [f"{films.called(path)}: {why}" for path, why in films.left_out.items() if why != "missing"]
    if found:
        more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        say(f"{len(found)} {films.split} videos cannot be read, left out: {'; '.join(found[:SHOWN])}{more}")
