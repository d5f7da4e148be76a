"""The end of a run: evaluate the backbone, write the zoo entry and the pictures, print the next steps."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from sslkit.composition.method import Method
from sslkit.data.same_data import Content
from sslkit.errors import UserError, first_line
from sslkit.numerics import diagnostics
from sslkit.numerics.curves import Judged, plot_terms
from sslkit.numerics.figures import NoMap, plot_embedding
from sslkit.runtime.checkpoint import PREVIOUS
from sslkit.runtime.loop import Hook, Loop
from sslkit.terminal import say
from sslkit.training.choosing import BEST
from sslkit.training.config import LEAST_POINTS, Config
from sslkit.training.data import Data, cap
from sslkit.training.elsewhere import Elsewhere, measure_controls, measure_network
from sslkit.training.evaluators import Evaluations
from sslkit.training.monitor import History
from sslkit.training.quick_evaluation import Hits, evaluate, evaluate_pixels, features, gains
from sslkit.training.start import Start
from sslkit.training.summary import summary
from sslkit.training.view_retrieval import measure_views
from sslkit.zoo.entry import CARD, CHECKPOINTS, ZooEntry, newest, preprocessing, save, update
from sslkit.zoo.heads import LABELS, PROTOTYPES, Head
from sslkit.zoo.loading import load_lines
from sslkit.zoo.provenance import provenance


def finish(
    config: Config,
    data: Data,
    method: Method,
    folder: Path,
    *,
    start: Start,
    history: History,
    evaluations: Evaluations,
    unreadable: set[str],
    kept: dict[str, Any],
    end: dict[str, torch.Tensor] | None,
    asked: Config,
) -> ZooEntry:
    """Write the weights and the card, then, each on its own, what is told of them; print the summary.

    asked: settings as given. start: what was measured of the first weights. kept: fields of the card on the weights
        that are kept, and on the computation. end: the backbone's last weights where they are not kept.

    A part that fails costs no other: it is one warning, and a name in the card's field `missing`. A run whose card
    lists such names is not finished, and resume=true makes all parts again.
    """
    before, k = start.judged, config.eval.k
    origin = "given weights" if _init(method) else "random weights"
    judged = Judged(k, data.held_out, before, origin, evaluations.columns)
    training = cache(partial(_training_features, config, data, method))
    parts: dict[str, Callable[[], dict[str, Any] | None]] = {
        "metrics.csv": history.write,  # a resumed run may lack the file, or a part of it
        "the evaluation": lambda: {**_measure_again(method, data, k, start.right), "pixels": evaluate_pixels(data, k)},
        "the views": lambda: _measure_views(method, data, start.views, start.right),
        "the evaluators": lambda: evaluations.of_card(method, kept["epochs"] if end is None else None),
        "other images": lambda: _measure_elsewhere(start.where, start.elsewhere, method, k),
        "the diagnostics": lambda: _diagnose(training()[0]),
        "the source head": lambda: _keep_head(entry, config, method) if end is None else None,
        "loss.png": lambda: plot_terms(history.rows, history.terms, folder / "loss.png", judged),
        "embedding.png": lambda: _picture(config, data, method, folder, training),
    }
    card = make_card(config, data, method)
    card |= {**kept, "seconds": round(history.seconds, 1), "before": before, "missing": list(parts)}
    if end is not None:
        save(
            folder / CHECKPOINTS / f"{folder.name}-end",
            end,
            {**make_card(config, data, method), "epochs": kept["epochs"]},
        )
    entry = save(folder, method.backbone.export(), card)
    fields, missing = {}, []
    for name, make in parts.items():
        with _apart(name, missing):
            fields |= make() or {}
    # The loader of training images meets neither held-out images nor videos that were left out at the start.
    judged_on = (subset.unreadable for subset in (data.bank, data.query, data.choice) if subset is not None)
    fields["unreadable"] = sorted(unreadable.union(getattr(data.train, "skipped", ()), *judged_on))
    with _apart(CARD, missing):
        entry = update(entry, **fields, missing=missing)
    with _apart("the summary", missing):
        shutil.rmtree(newest(folder), ignore_errors=True)
        for path in (PREVIOUS, *(() if missing else (BEST,))):  # not needed any more
            (folder / path).unlink(missing_ok=True)
        say.lines(summary(entry, data, asked, time.perf_counter() - history.made))
    return entry


@dataclass
class Newest(Hook):
    """Keeps the backbone of each epoch but the last as a zoo entry, to be judged, embedded and exported before the end.

    It begins once the content of the images is known, which is on the card.
    """

    config: Config
    data: Data
    method: Method
    run: Path
    content: Content

    def epoch_end(self, loop: Loop) -> None:
        if not loop.is_main or loop.epoch + 1 == loop.epochs or not self.content.known():
            return
        folder, card = newest(self.run), make_card(self.config, self.data, self.method)
        shutil.rmtree(folder, ignore_errors=True)  # with the results of the epoch before
        try:
            save(folder, self.method.backbone.export(), {**card, "epochs": loop.epoch + 1})
        except UserError as error:
            say.warn(f"epoch {loop.epoch + 1} could not be kept as an entry: {error}", stacklevel=2)


@contextmanager
def _apart(name: str, missing: list[str]) -> Iterator[None]:
    """Warn of a part that cannot be made, and add its name to `missing`."""
    try:
        yield
    except Exception as error:  # matplotlib, an objective of one's own, a full disk: this must not cost the rest
        missing.append(name)
        reason = first_line(error) if isinstance(error, UserError) else f"{type(error).__name__}: {first_line(error)}"
        say.warn(f"{name} could not be made, all else is kept: {reason}; {say.CALL} makes it again", stacklevel=2)


def _measure_again(method: Method, data: Data, k: int, before: Hits) -> dict[str, Any]:
    """The fields of the card on labelled images: the numbers, and their differences to the start."""
    after, right = evaluate(method, data, k)
    return {"after": after, "gains": {name: gain.of_card() for name, gain in gains(right, before, data.query).items()}}


def _measure_views(method: Method, data: Data, numbers: dict[str, Any] | None, before: Hits) -> dict[str, Any]:
    """The fields of the card on views of images without labels."""
    after, right = measure_views(method, data)
    views = {"views": {"before": numbers, "after": after}}
    differences = {name: gain.of_card() for name, gain in gains(right, before, None).items()}
    return views | ({"gains": differences} if differences else {})


def _measure_elsewhere(
    where: Elsewhere | None, before: dict[str, Any], method: Method, k: int
) -> dict[str, Any] | None:
    """The fields of the card on images of another kind; None without such."""
    if where is None:
        return None
    after = measure_network(where, method, k)
    return {"elsewhere": {"data": where.name, "before": before, "after": after, **measure_controls(where, k)}}


def _diagnose(x: torch.Tensor) -> dict[str, Any]:
    """The fields of the card on the features (N, D) of training images."""
    some = x[torch.linspace(0, len(x) - 1, min(len(x), 2000)).long()]
    return {
        "diagnostics": {"rankme": diagnostics.rankme(x), "uniformity": diagnostics.uniformity(some)},
        "features": {"images": len(x), "mean": x.mean(0).tolist(), "std": x.std(0).tolist()},
    }


def _keep_head(entry: ZooEntry, config: Config, method: Method) -> None:
    """Keep the classifier or the prototypes that the objective has learned, if it has some, for LEEP."""
    layers = method.objective.source_head()
    if layers is not None:
        labels = method.objective.needs_labels
        name, made = (LABELS, "classifier") if labels else (PROTOTYPES, "predictions over the prototypes")
        entry.keep_head(
            Head.from_layers(name, layers, {"data": config.data.source, "made": f"the {made} of the training"})
        )


def make_card(config: Config, data: Data, method: Method) -> dict[str, Any]:
    """The card without the results: enough to load the backbone and to repeat the command."""
    body, train = method.backbone, data.train
    mean, std = method.normalize
    card = {
        "format": 1,
        "method": method.name,
        "labels": method.objective.needs_labels,
        "options": {} if isinstance(config.method, str) else config.to_dict()["method"],
        "config": config.to_dict(),
        "balance": {
            name: {"balance": plugin.balance, "balance_until": plugin.balance_until}
            for name, plugin in method.regularizers.items()
            if plugin.choice
        },
        "backbone": {
            "name": body.recipe.name,
            "lines": body.recipe.lines,
            "stem": body.recipe.stem,
            "width": body.width,
            "image_size": data.image_size,
            "in_chans": body.in_chans,
            **train.in_card,
        },
        **_init(method),
        "normalize": {"mean": list(mean), "std": list(std)},
        "data": _data(config, data),
        "seed": config.seed,
        "epochs": config.epochs,
        **provenance(),
    }
    load = load_lines(body.recipe.lines, preprocessing(card), range=train.range)
    return {**card, "load": "\n".join(load)}


def _data(config: Config, data: Data) -> dict[str, Any]:
    """The training images, and how their values become bytes."""
    train = data.train
    return {
        "source": config.data.source,
        "images": len(train),
        "digest": train.digest,
        "content": train.content_digest,
        "licence": train.licence,
        "range": None if train.range is None else list(train.range),
        "opacity": train.scale.opacity,
        "fill": train.scale.fill,
        "held_out": data.held_out if data.bank else None,
    }


def _init(method: Method) -> dict[str, Any]:
    """The source of the initial weights; empty for random ones."""
    origin = method.backbone.recipe.origin
    if origin is None:
        return {}
    return {"init": {"source": origin.source, "sha256": origin.sha256, "notes": list(origin.notes)}}


def _training_features(config: Config, data: Data, method: Method) -> tuple[torch.Tensor, torch.Tensor]:
    """Features of clean training images, for the reference statistics of the card."""
    if data.bank is not None:
        return features(method, data.bank)
    return features(method, cap(data.train.clean(data.image_size), config))


def _picture(
    config: Config, data: Data, method: Method, folder: Path, training: Callable[[], tuple[torch.Tensor, torch.Tensor]]
) -> None:
    """Draw the embedding of held-out images, or of training images if there are no others."""
    if not config.eval.tsne:
        return
    x, y = training() if data.query is None else features(method, data.query)
    if len(x) < LEAST_POINTS:
        return
    keep = torch.linspace(0, len(x) - 1, min(len(x), config.eval.tsne)).long()
    classes = data.train.classes if data.bank else None
    title = f"{folder.name} · {data.train.name} · t-SNE"
    kind = "held-out" if data.query is not None and data.held_out else "training"
    note = f"{len(keep):,} {kind} {data.unit}."
    try:
        plot_embedding(x[keep], y[keep], classes, folder / "embedding.png", seed=config.seed, title=title, note=note)
    except NoMap as error:  # of these features there is none, now or later
        say.warn(f"embedding.png could not be drawn: {error}", stacklevel=2)
