"""The members of a zoo prepared for a ranking: the features of each on the same images."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from evaluation.datasets import Reading, Split
from evaluation.features.extraction import CROPPED, LABELLED, LOADED, features_of
from evaluation.features.seen import Judged, seen
from evaluation.features.source_probs import source_probs
from evaluation.features.table import Features
from evaluation.features.untrained import with_random_weights
from evaluation.features.zoo_members import Closed, Members, load_member, open_all
from evaluation.ranking.inputs.references import CARD
from evaluation.ranking.inputs.samples import ON_CPU, as_sample
from evaluation.ranking.inputs.source_heads import CLUSTER_COUNT, SOURCES, SourceHead, check_source, source_head
from evaluation.transferability.base import Sample
from evaluation.transferability.param_count import param_count
from sslkit.data.columns import NEAR_COPIES
from sslkit.data.copies import line_within, near_within
from sslkit.data.held_out import draw_keys
from sslkit.data.image_options import ImageOptions
from sslkit.data.subsets import label_subset
from sslkit.errors import UserError
from sslkit.models.loading import Loading
from sslkit.models.model import Model
from sslkit.options.settings import MOST, setting
from sslkit.runtime.context import Runtime
from sslkit.zoo.heads import LABELS

CIRCULAR = "its source head was fitted to the labels of these very images; source=clusters takes no labels"
MAX_IMAGES = 500  # of data by name: recipes/benchmarks/ranking scored 100 to 500, which ranked models in seconds
OF_METRICS = {"device", "seed", "bootstrap", "say", "progress"}  # options that given features take too


@dataclass(frozen=True, eq=False)
class Candidate:
    """One model on the task. name: for tables. sample: input of the metrics. notes: about its images, and whether the
    network saw them in its pretraining.

    source: the head behind the source probabilities. lacks: reason by input, of one that could not be had.
    image_size: pixels at which the model sees the images; 0 for given features. multiply_adds: of an image; nan for
    given features.
    """

    name: str
    sample: Sample = field(repr=False)
    notes: tuple[str, ...] = ()
    source: SourceHead | None = None
    lacks: Mapping[str, str] = field(default_factory=dict)
    image_size: int = 0
    multiply_adds: float = math.nan


def are_arrays(zoo: Any) -> bool:
    """Return True if a zoo is a mapping of names to given features: Features, or tuples or lists (x, y)."""
    return isinstance(zoo, Mapping) and any(isinstance(features, (Features, tuple, list)) for features in zoo.values())


@dataclass(frozen=True, kw_only=True)
class Options:
    """The images and the inputs of a ranking, beside its models, its data and its metrics."""

    split: str = setting(ImageOptions.split, "split of the scored images")
    max_images: int | str | None = setting(
        "auto",
        "images of each data set, the same number of each class, drawn by seed and names; null: all; auto: "
        f"{MAX_IMAGES}, or all of a published benchmark and of an open split",
        least=2,
        most=MOST,
        choices=("auto",),
    )
    source: str | None = setting(
        None,
        "source classes of leep and nce: prototypes, labels or clusters of the pretraining data, or none; null: the "
        "prototypes or labels that training has kept, else the data's labels, else clusters",
        choices=SOURCES,
    )
    clusters: int = setting(CLUSTER_COUNT, "number of these clusters", least=2, most=10**6)
    reference: Any = setting(
        CARD,
        "mean and std of PED: card (of the training images), task (of the task's images), a data set (its test images; "
        "imagenet: the published ones), or a file .npz, .json",
    )
    bootstrap: int = setting(
        100, "redrawn sets of images behind intervals and ties, at least 2; 0: none", least=0, most=MOST
    )
    device: str = setting(
        ON_CPU.device, "device of the metrics: cpu, cuda; features are extracted on a GPU if there is one"
    )


def settle_images(options: Options, *, every: bool = False) -> Options:
    """Return the options with the number of images that `max_images="auto"` stands for; None: all. every: all."""
    return replace(options, max_images=None if every else MAX_IMAGES) if options.max_images == "auto" else options


# Options of all commands that a ranking obeys.
SHARED = (*LOADED, *LABELLED, *CROPPED, "on_error", "precision", "batch_size", "workers", "seed", "progress")


def check_at_hand(options: Options, *context: Any) -> None:
    """Raises UserError for given features that come with an option of models and data sets."""
    for settings in (options, *context):
        for name, value in vars(settings).items():
            if name not in OF_METRICS and value != vars(type(settings)())[name]:
                raise UserError(f"{name} is for models and a data set; given features are ranked unchanged")


def of_arrays(zoo: Mapping[str, Any], runtime: Runtime = ON_CPU) -> list[Candidate]:
    """Make candidates from given features. zoo: name -> Features, or a pair (x, y), all of the same images.

    Raises UserError.
    """
    candidates = []
    for name, features in zoo.items():
        if not isinstance(features, Features) and not (isinstance(features, (tuple, list)) and len(features) == 2):
            raise UserError(
                f"{name} must be Features or a pair (x, y), as the others are; not {type(features).__name__}"
            )
        x, y = (features, None) if isinstance(features, Features) else features
        try:
            candidates.append(Candidate(name, as_sample(x, y, runtime=runtime), _notes_of(features)))
        except UserError as error:
            raise UserError(f"{name}: {error}") from error
    _check_names({name: features.labelled().ids for name, features in zoo.items() if getattr(features, "data", "")})
    return same_images(candidates)


def _check_names(ids: Mapping[str, np.ndarray]) -> None:
    """Raises UserError for features of other images than the first: equal labels do not make a set the same.

    ids: of features of a data set; those of plain arrays are of the features.
    """
    for name, names in ids.items():
        first, usual = next(iter(ids.items()))
        if len(names) == len(usual) and (unequal := np.flatnonzero(names != usual)).size:
            row = int(unequal[0])
            raise UserError(
                f"{first} and {name} are features of other images, or in another order: row {row} is {usual[row]} and "
                f"{names[row]}; a ranking compares models on the same images"
            )


def of_models(
    zoo: Any,
    dataset: Any,
    needs: Collection[str],
    options: Options,
    loading: Loading,
    reading: Reading,
    runtime: Runtime,
) -> Members[Candidate]:
    """Make candidates from models, by name: features are extracted, or read from the cache.

    zoo: a folder of zoo entries, or a list of arguments of `sslkit.load` and folders of entries; or a
        mapping of names to such models.
    needs: inputs of the metrics beside features, of "source_probs" and "untrained", the features of the same networks
        with random weights. options.reference: as `open_reference` opens it. runtime: with the device of the metrics.
    All models are opened first. Entries of a folder that cannot be opened and models with invalid features are left
    out. Raises UserError if none is left, and for an explicitly named model that cannot be opened.
    """

    def load(one: Any) -> Model:
        return load_member(one, loading)

    check_source(options.source, options.clusters)
    models, how = open_all(zoo, load), (reading, replace(runtime, device="auto"))
    task = draw_images(reading.open(dataset, options.split), options.max_images, runtime.seed)
    judged = Judged(dataset, options.split, reading.cache, reading.columns)  # opened if a card may know its images

    def candidate(name: str, one: Model | Closed) -> Candidate:
        model = one.open() if isinstance(one, Closed) else one
        head, lacks = None, {}
        if "source_probs" in needs and (model.entry or model.source_head):
            head = _try(lacks, "source_probs", lambda: source_head(model, options.source, options.clusters, *how))
            if head is not None and _is_circular(head, model, judged):
                head, lacks["source_probs"] = None, CIRCULAR
        statistics = _try(lacks, "reference", lambda: options.reference.statistics_of(name, model, *how))
        runtime.say(f"features of {len(task):,} images of {task.name}: {name}")
        features = features_of(model, task, *how)
        made = _candidate(name, model, features, task.boxes, head, statistics, runtime)
        notes = filter(None, (*made.notes, seen(model.card, judged)))
        about = {"image_size": model.image_size, "multiply_adds": model.multiply_adds}
        made = replace(made, source=head, lacks=lacks, notes=tuple(notes), **about)
        if "untrained" not in needs:
            return made
        runtime.say(f"features of the same images: {name} with random weights")
        return _beside_untrained(made, model, task, how)

    candidates = models.of_each(candidate, spare_all=True)
    same_images(list(candidates.values()))
    return candidates


def _is_circular(head: SourceHead, model: Model, judged: Judged) -> bool:
    """Return whether a head was fitted to the labels of the images that are scored; test images are not fitted to."""
    if head.kind != LABELS or judged.split == "test":
        return False
    origin = {key: model.card.get(key, {}) for key in ("data", "config")}  # not of the weights that it began from
    return head.data == str(judged.data) or bool(seen(origin, judged))


def draw_images(task: Split, max_images: int | None, seed: int) -> Split:
    """Return the labelled images of a split, or `max_images` of them, the same number of each class.

    With several labels per image, `max_images` are drawn from all. Raises UserError if max_images is too small.
    """
    if task.y.ndim != 1:
        keys = draw_keys(task.ids, seed, "images of a ranking")
        return task if max_images is None else task.take(np.sort(np.argsort(keys, kind="stable")[:max_images]))
    rows = np.flatnonzero(task.y >= 0)
    if max_images is not None and max_images < len(rows):
        if max_images < 2 * len(np.unique(task.y[rows])):
            need = 2 * len(np.unique(task.y[rows]))
            raise UserError(f"max_images={max_images} is less than two for each class of {task.name}: at least {need}")
        rows = label_subset(task.y, task.ids, task.classes, max_images / len(rows), seed)
    return task if len(rows) == len(task) else task.take(rows)


def _try(lacks: dict[str, str], what: str, make: Callable[[], Any]) -> Any:
    """Return `make()`, or None with the reason in `lacks`: the model is then ranked by the other metrics."""
    try:
        return make()
    except UserError as error:
        lacks[what] = str(error)
        return None


def _candidate(
    name: str,
    model: Model,
    features: Features,
    boxes: np.ndarray | None,
    head: SourceHead | None,
    reference: Any,
    runtime: Runtime,
) -> Candidate:
    probs = None if head is None else source_probs(model, features, head.layers)
    inputs = {"source_probs": probs, "reference": reference, "model": param_count(model), "boxes": boxes}
    return Candidate(name, as_sample(features, **inputs, runtime=runtime), _notes_of(features))


def _beside_untrained(candidate: Candidate, model: Model, task: Split, how: tuple[Reading, Runtime]) -> Candidate:
    """Add the features of the network with random weights, if it can be built, of the same images."""
    twin = with_random_weights(model, seed=0)
    if twin is None:
        return candidate
    features = features_of(twin, task, *how)
    sample = candidate.sample
    if len(features.x) != len(sample):
        raise UserError(f"{twin.name} has features of {len(features.x)} images, {candidate.name} of {len(sample)}")
    x = as_sample(features, runtime=Runtime(device=sample.device)).x
    return replace(candidate, sample=replace(sample, untrained=x))


def _notes_of(given: Any) -> tuple[str, ...]:
    """Return the notes of the data set, and that images of one group stay together."""
    notes = (given.note,) if getattr(given, "note", "") else ()
    near = near_within(given.likeness, given.together) if isinstance(given, Features) else None
    if near is not None and near.any():
        notes += (f"{line_within(int(near.sum()), len(near), 'images')}; columns.group={NEAR_COPIES} keeps them apart",)
    groups = getattr(given, "groups", None)
    if groups is None or (number := len(np.unique(groups))) == len(groups):
        return notes
    together = (
        f"the {len(groups):,} images are of {number:,} groups (objects, or files), which are not judged by their own"
    )
    return (*notes, together)


def same_images(candidates: list[Candidate]) -> list[Candidate]:
    """Return the candidates if all have the same labels in the same order. Raises UserError with the difference."""
    if not candidates:
        raise UserError("there is no model to rank")
    first = candidates[0]
    for other in candidates[1:]:
        differs = _difference(first.sample, other.sample)
        if differs:
            raise UserError(
                f"{first.name} and {other.name} were not given the same labels in the same order: {differs}; a ranking "
                "compares models on the same images"
            )
    return candidates


def _difference(one: Sample, other: Sample) -> str:
    """Return the difference between the labels of two samples, "" if none."""
    if len(one) != len(other):
        return f"{len(one)} images and {len(other)}"
    if (one.y is None) != (other.y is None):
        return "classes and numbers"
    if one.classes != other.classes:
        name, instead = next(pair for pair in zip_longest(one.classes, other.classes) if pair[0] != pair[1])
        return f"a class {name!r} and {instead!r} in its place"
    mine, others = (sample.targets if sample.y is None else sample.y for sample in (one, other))
    if mine.shape != others.shape:
        return f"numbers of shape {tuple(mine.shape)} and {tuple(others.shape)}"
    unequal = (mine != others).reshape(len(mine), -1).any(1)
    return f"other labels from row {int(unequal.nonzero()[0])} on" if unequal.any() else ""
