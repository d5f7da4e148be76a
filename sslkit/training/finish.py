"""The end of a run: evaluate the backbone, write the zoo entry and the pictures, print the next steps."""

import datetime
import importlib.metadata
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from sslkit import diagnostics, say
from sslkit.errors import UserError
from sslkit.figures import NoMap
from sslkit.method import Method
from sslkit.training import origin
from sslkit.training.checkpoint_files import tidy
from sslkit.training.config import LEAST_POINTS, Config
from sslkit.training.data import Data, capped, too_few
from sslkit.training.features import features, knn_accuracy, probe_accuracy
from sslkit.training.history import History
from sslkit.training.plots import plot_embedding, plot_terms
from sslkit.training.summary import summary
from sslkit.zoo.entry import WEIGHTS, ZooEntry, load_lines, save
from sslkit.zoo.heads import LABELS, PROTOTYPES, Head

PACKAGES = ("sslkit", "torch", "torchvision", "timm", "pytorch-lightning", "lightly", "numpy", "faiss-cpu")


def judge(method: Method, data: Data, k: int) -> dict[str, float]:
    """kNN, the quick probe and crowding of the current backbone; empty without labels, or if too few can be read."""
    if data.bank is None:
        return {}
    bank, query = (features(method, part) for part in (data.bank, data.query))
    if too_few(bank[1].numpy(), query[1].numpy()):
        return {}
    crowded = diagnostics.crowding(*query)
    return {
        "knn": knn_accuracy(*bank, *query, k=k),
        "probe": probe_accuracy(*bank, *query),
        "inter": crowded.inter,
        "intra": crowded.intra,
        "n": len(query[0]),
    }


def finish(
    config: Config,
    data: Data,
    method: Method,
    folder: Path,
    *,
    before: dict[str, float],
    history: History,
    unreadable: set[str],
    computed: dict[str, Any],
    asked: Config,
) -> ZooEntry:
    """Write loss.png, embedding.png, backbone.safetensors and card.json; print the summary. asked: settings as given.
    computed: device, processes, threads and precision.

    The card is written last: a run without one is not finished, and resume=true makes all of them again.
    """
    history.write()  # a resumed run may lack the file, or a part of it
    after = judge(method, data, config.eval.k)
    x, y = _training_features(config, data, method)
    diagnosis = {
        "rankme": diagnostics.rankme(x),
        "uniformity": diagnostics.uniformity(x[torch.linspace(0, len(x) - 1, min(len(x), 2000)).long()]),
    }
    card = make_card(config, data, method, folder)
    card |= {
        "seconds": round(history.seconds, 1),
        "computed": computed,
        "before": before,
        "after": after,
        "diagnostics": diagnosis,
        "features": {"images": len(x), "mean": x.mean(0).tolist(), "std": x.std(0).tolist()},
        "unreadable": sorted({*unreadable, *_unread(data)}),
    }
    with _drawn("loss.png"):
        plot_terms(history.rows, history.terms, folder / "loss.png", config.eval.k)
    with _drawn("embedding.png"):
        _picture(config, data, method, folder, (x, y))
    entry = save(folder, method.backbone.export(), card, _head(config, method))
    tidy(folder)
    say.line(summary(entry, data, asked))
    return entry


def _head(config: Config, method: Method) -> Head | None:
    """The classifier or the prototypes that the objective has learned, for LEEP; None without."""
    labels = method.objective.needs_labels
    name, made = (LABELS, "classifier") if labels else (PROTOTYPES, "predictions over the prototypes")
    try:
        layers = method.objective.source_head()
        recipe = {"data": config.data.source, "made": f"the {made} of the training"}
        return None if layers is None else Head.of(name, layers, recipe)
    except Exception as error:  # an objective of one's own may raise anything, and this must not cost the weights
        warnings.warn(f"the source head of {method.name} is not kept: {error}", stacklevel=2)
        return None


def _unread(data: Data) -> set[str]:
    """Paths that the loader of training images does not meet: of held-out images, of videos left out at the start."""
    judged = (part.unreadable for part in (data.bank, data.query) if part is not None)
    return set(getattr(data.train, "skipped", ())).union(*judged)


@contextmanager
def _drawn(name: str) -> Iterator[None]:
    """Warn of a picture that cannot be drawn. A full disk (UserError) stops the run; resume=true continues it."""
    try:
        yield
    except NoMap as error:
        warnings.warn(f"{name} could not be drawn: {error}", stacklevel=2)
    except UserError:
        raise
    except Exception as error:  # matplotlib and scikit-learn raise many classes for unusual numbers
        warnings.warn(f"{name} could not be drawn: {type(error).__name__}: {error}", stacklevel=2)


def make_card(config: Config, data: Data, method: Method, folder: Path) -> dict[str, Any]:
    """The card without the results: enough to load the backbone and to repeat the command."""
    body, train = method.backbone, data.train
    mean, std = method.normalize
    return {
        "format": 1,
        "method": method.name,
        "options": {} if isinstance(config.method, str) else config.to_dict()["method"],
        "config": config.to_dict(),
        "backbone": {
            "name": body.recipe.name,
            "lines": body.recipe.lines,
            "stem": body.recipe.stem,
            "width": body.width,
            "image_size": data.image_size,
            "in_chans": body.in_chans,
            **_of_clips(data),
        },
        **origin.of_card(method),
        "load": load_lines(body.recipe.lines, folder / WEIGHTS),
        "normalize": {"mean": list(mean), "std": list(std)},
        "data": {
            "source": config.data.source,
            "images": len(train),
            "digest": train.digest,
            "licence": train.licence,
            "held_out": data.held_out if data.bank else None,
        },
        "seed": config.seed,
        "epochs": config.epochs,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": _commit(),
        "versions": {name: _version(name) for name in PACKAGES},
    }


def _of_clips(data: Data) -> dict[str, int]:
    """The frames and stride of the network's clips; empty for a network of images."""
    if data.clips is None:
        return {}
    return {"frames": data.train.frames, "stride": data.train.options.stride}


def _training_features(config: Config, data: Data, method: Method) -> tuple[torch.Tensor, torch.Tensor]:
    """Features of clean training images, for the reference statistics of the card."""
    if data.bank is not None:
        return features(method, data.bank)
    clean = data.clean
    if clean is None:
        clean = data.train.at(image_size=data.image_size, channels=data.train.channels, fit="crop")
    return features(method, capped(clean, config))


def _picture(config: Config, data: Data, method: Method, folder: Path, train: tuple) -> None:
    """The embedding of held-out images, or of training images if there are no others."""
    if not config.eval.tsne:
        return
    x, y = train if data.query is None else features(method, data.query)
    if len(x) < LEAST_POINTS:
        return
    keep = torch.linspace(0, len(x) - 1, min(len(x), config.eval.tsne)).long()
    classes = data.train.classes if data.bank else None
    title = f"{method.name}: t-SNE of {len(keep):,} {data.unit}"
    plot_embedding(x[keep], y[keep], classes, folder / "embedding.png", seed=config.seed, title=title)


def _commit() -> str | None:
    """The commit of the checkout that sslkit runs from; None for an installed package."""
    here = Path(__file__).parent
    asked = subprocess.run(["git", "-C", here, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return asked.stdout.strip() or None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
