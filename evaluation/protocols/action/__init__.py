"""Action recognition on films: a linear head on a frozen video backbone, or all weights, over the official splits.

Linear: Feichtenhofer et al. 2021 (arXiv 2104.14558) on Kinetics-400. Fine-tuning: UCF101 and HMDB51, three splits. The
settings are in recipes.py. A film is judged by the mean of the softmax over its views, clips in time
times crops in space. Nothing is chosen on test films: every number is that of the last epoch.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import torch

from evaluation.features.checks import device_of
from evaluation.features.models import LoadedModel, load_model
from evaluation.protocols._option_types import (
    Count,
    CountOrNone,
    CountsOrNone,
    DecayOrNone,
    OnError,
    PositiveOrNone,
    Precision,
    Seconds,
)
from evaluation.protocols.action import datasets, recipes
from evaluation.protocols.action.crops import Sizes
from evaluation.protocols.action.films import survey
from evaluation.protocols.action.reading import ClipShape, EvalViews
from evaluation.protocols.action.results import result_of
from evaluation.protocols.action.runs import FEATURES, Run, done
from evaluation.protocols.action.training import RunOptions
from evaluation.protocols.base import Subject
from evaluation.results.result import Result
from evaluation.tuning.loop import PRECISIONS, whole_number
from sslkit.errors import UserError
from sslkit.members import nearest
from sslkit.settings import Limits

Frames = Annotated[int | None, Limits(least=1, most=4096)]
SHOWN = 3  # unreadable films that a line names


def action(
    model: Any,
    data: str | None = None,
    *,
    protocol: str | None = None,
    recipe: str | None = None,
    folds: Sequence[int] | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    weight_decay: float | None = None,
    dropout: float | None = None,
    frames: int | None = None,
    stride: int | None = None,
    clips: int = 10,
    crops: int = 3,
    rule: str = "slowfast",
    features: str = "live",
    precision: str = "float32",
    seed: int = 0,
    root: str | Path = "data",
    out: str | Path = "runs/evaluation",
    cache: str | Path | None = "runs/cache",
    counts: str = "raise",
    on_error: str = "skip",
    device: str = "auto",
    workers: int | str = "auto",
    save_seconds: float = 300.0,
    image_size: int | None = None,
    progress: bool = True,
    say: Callable[[str], None] = lambda line: None,
) -> Result:
    """Accuracy on whole test films, top-1 and top-5, of a classifier trained by a named recipe.

    model: see `evaluation.load_model`; a network of clips. data: see `datasets.open_films`; None:
        the recipe's own, or without a recipe the folder of films that a zoo entry was pretrained on.
    protocol: "linear" or "fine_tune". recipe: one of `RECIPES` in recipes.py; None: paper_k400 for linear,
        paper_ucf101 for fine_tune.
    folds: official splits of the data; None: those of the recipe that the data have. epochs, batch_size, lr,
        weight_decay, dropout: others than the recipe's; a rate that is not given goes with the batch size, warm-up
        with the epochs, and the result's recipe says what was changed.
    frames, stride: of a clip; None: what the model was pretrained with, else 16 and 64 // frames.
    clips, crops, rule: of a test film, see `EvalViews` in reading.py.
    features: "live", or "once" for the linear protocol on small sets: ten clips of each film pass the backbone once,
        their middle squares, without augmentation; the result's recipe says so. Nothing is kept of a split until it is
        done, so one that is stopped begins anew.
    precision: "float32", or "bfloat16" autocast. seed: of everything drawn. image_size: where the model does not say.
    out: folder of `action.jsonl`, to which every finished split is added, and of checkpoints: the same call takes up
        a stopped training at its last one, and ends with the same numbers. A film that is changed is trained on and
        judged anew. cache: folder of the index of films; None: none is kept.
    root, counts: see `open_films`. on_error: "skip" leaves out and names films that cannot be decoded, or "raise".
    device: "auto" is a GPU if there is one. workers: processes that decode. save_seconds: between two checkpoints.
    say: called with a line when something is done.

    Returns the accuracy on the test films, with Wilson's interval for one split; of several the mean and its t
    interval, each split with its own interval in `others`, and values and std in `details`.
    Raises UserError for options out of range, a network of images, missing films, and a loss that becomes infinite.
    """
    changes = {"epochs": epochs, "batch_size": batch_size, "lr": lr, "weight_decay": weight_decay, "dropout": dropout}
    plan, description = recipes.changed(recipes.chosen(protocol, recipe), changes)
    views = EvalViews(clips, crops, rule)
    _check(features, plan.protocol, precision)
    loaded = load_model(model, image_size=image_size)
    source = source_of(loaded, data, recipe) or plan.data
    used = _folds(source, folds, plan.folds)
    shape = _shape(loaded, frames, stride)
    seed = whole_number("seed", seed, 0)
    options = RunOptions(device_of(device), precision, seed, workers, float(save_seconds), progress)
    listed = [_listed(source, fold, root, counts) for fold in used]
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    runs = []
    for films in listed:
        train, test = (survey(part, cache=cache, on_error=on_error) for part in films)
        counted = f"{len(train.films):,} training and {len(test.films):,} test films"
        say(f"{test.films.name}, split {test.films.fold}: {counted}")
        for part in (train.films, test.films):
            _say_unreadable(part, say)
        fitted = recipes.fitted(plan, len(train.films), scale=lr is None)
        runs.append(Run(loaded, train, test, fitted, shape, views, features, options))
    return result_of(runs, done(runs, folder, say), plan, description)


def _say_unreadable(films: datasets.Films, say: Callable[[str], None]) -> None:
    """Names films that no decoder can read; those that the set lacks are counted in its note."""
    found = [f"{films.called(path)}: {why}" for path, why in films.left_out.items() if why != "missing"]
    if found:
        more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        say(f"{len(found)} {films.split} films cannot be read, left out: {'; '.join(found[:SHOWN])}{more}")


def open_data(subject: Subject) -> datasets.Films:
    """The training films of the subject's data, listed. Raises UserError where they are no films, or not there."""
    counts = subject.how.get("counts", "raise")
    return datasets.open_films(subject.data, "train", fold=1, root=subject.root, counts=counts)


def check(
    subject: Subject,
    *,
    protocol: str | None = None,
    recipe: str | None = None,
    folds: Sequence[int] | int | None = None,
    frames: int | None = None,
    stride: int | None = None,
    clips: int = 10,
    crops: int = 3,
    rule: str = "slowfast",
    features: str = "live",
    precision: str = "float32",
    **_options: Any,
) -> None:
    """Check the network, the recipe, the splits and the views before anything is computed. Raises UserError."""
    plan = recipes.RECIPES[recipes.chosen(protocol, recipe)]
    EvalViews(clips, crops, rule)
    _check(features, plan.protocol, precision)
    _folds(source_of(subject.model, subject.data, recipe) or plan.data, folds, plan.folds)
    _shape(subject.model, frames, stride)


def evaluate(
    subject: Subject,
    *,
    protocol: str | None = None,
    recipe: str | None = None,
    folds: CountsOrNone = None,
    epochs: CountOrNone = None,
    batch_size: CountOrNone = None,
    lr: PositiveOrNone = None,
    weight_decay: DecayOrNone = None,
    dropout: Annotated[float | None, Limits(least=0, below=1)] = None,
    frames: Frames = None,
    stride: Frames = None,
    clips: Count = 10,
    crops: Annotated[int, Limits(least=1, most=3)] = 3,
    rule: str = "slowfast",
    features: str = "live",
    precision: Precision = "float32",
    on_error: OnError = "skip",
    save_seconds: Seconds = 300.0,
) -> list[Result]:
    """A head or all weights of a network of clips, on films; resumed by the same command; see `action`."""
    options = dict(locals())
    del options["subject"]
    options |= {"root": subject.root, "out": subject.out, "seed": subject.seed}
    passed = ("cache", "counts", "device", "workers", "progress")
    options |= {name: subject.how[name] for name in passed if name in subject.how}
    return [action(subject.model, subject.data, **options)]


def _listed(source: str, fold: int, root: str | Path, counts: str) -> tuple[datasets.Films, datasets.Films]:
    """The training and the test films of one official split."""
    how = {"fold": fold, "root": root, "counts": counts}
    return datasets.open_films(source, "train", **how), datasets.open_films(source, "test", **how)


def source_of(model: LoadedModel, data: str | None, recipe: str | None) -> str | None:
    """The films that are asked for, or without a recipe those that a zoo entry was pretrained on; else None."""
    if data or recipe:
        return data
    source = str(model.entry.card.get("data", {}).get("source", "")) if model.entry else ""
    return source if source.startswith("video:") else None


def check_clips(model: LoadedModel) -> None:
    """Raises UserError for a network of images."""
    if model.frames is None:
        raise UserError(
            f"action needs a network of clips, and {model.name} takes images: give a zoo entry that was pretrained on "
            "films (recipes/train.py data=video:FOLDER), or random:slow_r50"
        )


def _folds(source: str, asked: Sequence[int] | None, usual: Sequence[int]) -> list[int]:
    """The official splits to run. Raises UserError for one that the data do not have."""
    known = datasets.folds_of(source)
    if asked is None:
        return [fold for fold in usual if fold in known]
    wanted = [asked] if isinstance(asked, int) else list(asked)
    if not wanted or len(set(wanted)) < len(wanted) or not set(wanted) <= set(known):
        raise UserError(f"folds={wanted} must be different ones of {list(known)}, the splits of {source}")
    return wanted


def _check(features: str, protocol: str, precision: str) -> None:
    for what, value, known in (("features", features, FEATURES), ("precision", precision, PRECISIONS)):
        if value not in known:
            raise UserError(f"{what}={value!r} is not an option: {nearest(str(value), known)}")
    if features == "once" and protocol != "linear":
        raise UserError("features=once is for protocol=linear: fine-tuning changes the features")


def _shape(model: LoadedModel, frames: int | None, stride: int | None) -> ClipShape:
    """Raises UserError for a network of images."""
    check_clips(model)
    length = whole_number("frames", model.frames if frames is None else frames, 1)
    own = model.entry.card["backbone"].get("stride") if model.entry else None
    usual = own or max(64 // length, 1)
    step = whole_number("stride", usual if stride is None else stride, 1)
    shape = ClipShape(length, step, Sizes.of(model.image_size))
    if not model.backbone.convolutional:
        _try(model, length, shape.sizes.test)
    return shape


@torch.no_grad()
def _try(model: LoadedModel, length: int, size: int) -> None:
    """Raises UserError for a network that cannot take the test crops, which are larger than what it was trained on."""
    try:
        model.net(torch.zeros(1, model.in_chans, length, size, size))
    except (RuntimeError, AssertionError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{model.name} cannot take the test clips of {length} frames of {size} px: {reason}") from error
