"""Do the most similar training patches have the class of a patch? Segmentation without training.

Balazevic et al. 2023 (Hummingbird, arXiv 2306.01667), with exact neighbours: the prediction is the mean of the classes'
shares of the k nearest patches, weighted by exp(cosine / T), and is enlarged bilinearly to pixels.
"""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evaluation.datasets import Reading
from evaluation.protocols.base import Subject, among
from evaluation.results.result import Result
from evaluation.tasks.segmentation import judge
from evaluation.tasks.segmentation.features import Patches, patches_of
from sslkit.errors import UserError
from sslkit.models.loading import Loading
from sslkit.numerics.neighbours import Own, neighbours
from sslkit.options.settings import MOST, setting
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime


@dataclass(frozen=True, kw_only=True)
class Options(judge.Looking):
    k: int = setting(30, "nearest training patches that vote; at most all patches", least=1, most=10_000)
    temperature: float = setting(0.02, "of the votes; smaller values weight the nearest more", above=0)
    patches: int = setting(
        65_536, "largest number of training patches, drawn evenly from all images", least=1, most=MOST
    )


@public(*judge.SHARED)
def knn_seg(
    model: Any,
    data: Any = judge.USUAL,
    *,
    options: Options,
    loading: Loading,
    reading: Reading,
    runtime: Runtime,
) -> Result:
    """Mean intersection over union of the k nearest training patches; k and temperature as published.

    Arguments and errors as in `linear_seg`.
    """
    subject = Subject(loading.load(model), data, reading)
    return run(open(subject, options), options, runtime)[0]


def open(subject: Subject, options: Options) -> judge.Opened:
    """Open the data and check the network's map before anything is computed. Raises UserError."""
    return judge.open_maps("knn_seg", subject, options.look)


def run(opened: judge.Opened, options: Options, runtime: Runtime) -> list[Result]:
    """Find the neighbours of every patch of the test images among those of the training images."""
    start = time.perf_counter()
    bank = patches_of(opened.model, opened.train, options.patches, runtime, opened.look)
    k = min(options.k, len(bank.x))
    result = judge.evaluate_maps(
        opened,
        lambda x, digest: shares(bank, x, k, options.temperature, digest),
        runtime,
        key=(k, options.temperature, *(np.ascontiguousarray(column) for column in vars(bank).values())),
        learned=bank,
        votes=True,
        protocol="knn_seg",
        recipe=f"cosine, k={k}, T={options.temperature:g}, {opened.places}",
        start=start,
        details={"k": k, "temperature": options.temperature, "patches": len(bank.x)},
    )
    return [result]


def shares(bank: Patches, x: Tensor, k: int, temperature: float, digest: int | None = None) -> Tensor:
    """(P, K) the classes' shares of the neighbours of the patches x (P, F).

    digest: of the image that they are of, whose own patches in the bank are no neighbours. Raises UserError if there
    are no others.
    """
    excluded, apart = None, bank.digest != digest
    if not apart.all():
        excluded, k = Own.from_rows(bank.digest, np.full(len(x), digest), None), min(k, int(apart.sum()))
    if not k:
        raise UserError("knn_seg: all training images are the same image as a test image: there is no other to vote")
    similarity, position = neighbours(bank.x, np.arange(len(bank.x)), x.cpu().numpy(), k, excluded)
    weight = np.exp((similarity - similarity[:, :1]) / temperature) * bank.weight[position]
    mean = (weight[..., None] * bank.share[position]).sum(1) / weight.sum(1, keepdims=True)
    return torch.from_numpy(mean).to(x)


def beside(result: Result) -> tuple[str, ...]:
    """Pixel accuracy and the mean accuracy of classes."""
    return among(result, *judge.OTHERS)


terminal = judge.terminal("knn_seg")
