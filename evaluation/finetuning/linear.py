"""The linear probe as a model: a classifier of the features as they are, its standardisation within the layer."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from torch import nn

from evaluation.datasets import Reading
from evaluation.features.extraction import features_of
from evaluation.finetuning.parts import Parts
from evaluation.finetuning.ridge import fit_numbers
from evaluation.finetuning.trained import Trained
from evaluation.protocols.linear import Fitted, Options, fit_classifier
from evaluation.results.records import run_id
from evaluation.results.result import Result
from sslkit.models.model import Model
from sslkit.runtime.context import Runtime


def probe(model: Model, parts: Parts, reading: Reading, runtime: Runtime) -> tuple[Result, Fitted]:
    """Return the result of the linear probe on the parts, and its classifier; of numbers that of a ridge."""
    features = {name: features_of(model, split, reading, runtime) for name, split in parts.splits.items()}
    if parts.train.has_numbers:
        return fit_numbers(features["train"], features["test"], runtime, features.get("val"))
    return fit_classifier(features["train"], features["test"], Options(), runtime, features.get("val"))


@contextmanager
def fit_linear(model: Model, parts: Parts, reading: Reading, runtime: Runtime) -> Iterator[Trained]:
    """Yield the linear classifier of a network's features, and its result."""
    result, fitted = probe(model, parts, reading, replace(runtime, precision="float32"))
    details, kind = result.details, "function" if parts.train.has_numbers else "classifier"
    held = {"val": "the validation images", "held-out train": "a fifth of train"}.get(details["chosen_by"], "")
    yield Trained(
        result,
        fitted.classes,
        f"a linear {kind} of the features as they are, {result.recipe}",
        0,
        run_id({"digests": result.digests, "recipe": result.recipe, "seeds": result.seeds}),
        fitted.beta,
        held,
        lambda: (model.backbone, nn.Sequential(*fitted.layers)),
        lambda net: (fitted.scores, fitted.y),
    )
