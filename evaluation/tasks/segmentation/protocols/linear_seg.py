"""Is the class of each pixel told by a linear layer on frozen features of patches? Its mIoU.

Protocol of Oquab et al. 2024 (arXiv 2304.07193, section 7.4): a linear layer on patch features gives a map of scores,
which is enlarged bilinearly. It is fitted here by L-BFGS to the shares of the classes in each patch, where theirs
learns from pixels by SGD: the same model, without a learning rate.
"""

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from evaluation.datasets import Reading
from evaluation.protocols.base import Subject, among
from evaluation.results.result import Result
from evaluation.results.statistics import generator
from evaluation.tasks.segmentation import judge
from evaluation.tasks.segmentation.features import Patches, patches_of
from evaluation.tasks.segmentation.keeping import keep_segmenter
from evaluation.tuning import BEST, NONE
from sslkit.errors import UserError
from sslkit.models.loading import Loading
from sslkit.numerics.lbfgs import Axes, Loss, State, begin, minimise, principal_axes
from sslkit.options.settings import MOST, setting
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime
from sslkit.runtime.device import device_of

PENALTIES = tuple(10.0**-power for power in range(8))  # of the squared weights, the strongest first
PATIENCE = 2  # penalties with a higher held-out loss, after which weaker ones are left out: one may be by chance
HELD_OUT = 0.2  # of the training images, to choose the penalty by: a fifth, as usual


@dataclass(frozen=True, kw_only=True)
class Options(judge.Looking):
    patches: int = setting(
        262_144, "largest number of patches to learn from, drawn evenly from all images", least=1, most=MOST
    )
    keep: str = setting(
        NONE, "best: classifier and network are kept below out as an entry that predicts masks", choices=(BEST, NONE)
    )
    max_iter: int = setting(200, "iterations of L-BFGS, for each penalty", least=1, most=100_000)


@public(*judge.SHARED)
def linear_seg(
    model: Any,
    data: Any = judge.USUAL,
    *,
    options: Options,
    loading: Loading,
    reading: Reading,
    runtime: Runtime,
) -> Result:
    """Mean intersection over union of a linear classifier of patches.

    model: see `sslkit.load`; a ViT, or any network of timm with a feature map. data: see
        `evaluation.tasks.segmentation.sources`, or {"train": ..., "test": ...}. Images are squeezed to a square.
    The penalty is chosen by the cross-entropy of a fifth of the training images, and the classifier fitted to all.
    Raises UserError for a network without a feature map and for data without classes of pixels.
    """
    subject = Subject(loading.load(model), data, reading)
    return run(open(subject, options), options, runtime)[0]


def open(subject: Subject, options: Options) -> judge.Opened:
    """Open the data and check the network's map before anything is computed. Raises UserError."""
    return judge.open_maps("linear_seg", subject, options.look)


def run(opened: judge.Opened, options: Options, runtime: Runtime) -> list[Result]:
    """Fit the classifier to the patches of the training images and judge it on all pixels of the test images."""
    start = time.perf_counter()
    patches = patches_of(opened.model, opened.train, options.patches, runtime, opened.look)
    head, details = fit_classifier(patches, runtime.seed, options.max_iter)
    weight, bias = (tensor.to(device_of(runtime.device), torch.float32) for tensor in head)
    recipe = f"L-BFGS on class shares of {opened.places}"
    result = judge.evaluate_maps(
        opened,
        lambda x, digest: x @ weight.T + bias,
        runtime,
        key=(head[0].numpy(), head[1].numpy()),
        learned=patches,
        protocol="linear_seg",
        recipe=recipe,
        start=start,
        details={**details, "patches": len(patches.x)},
    )
    if options.keep == BEST and runtime.out is not None:
        result.details["kept"] = keep_segmenter(opened, weight, bias, result, runtime)
    return [result]


def fit_classifier(patches: Patches, seed: int, max_iter: int) -> tuple[tuple[Tensor, Tensor], dict[str, Any]]:
    """Weight (K, F) and bias (K,) for features as they are, with the penalty of the lowest held-out cross-entropy.

    Raises UserError if only one image has patches.
    """
    images = np.unique(patches.image)
    if len(images) < 2:
        raise UserError(f"linear_seg: {len(images)} training images have pixels with a class, give at least 2")
    order = generator(seed, "held-out images").permutation(images)
    apart = np.isin(patches.image, order[: max(round(HELD_OUT * len(images)), 1)])
    mean, spread = patches.x.mean(0, dtype=np.float64), patches.x.std(0, dtype=np.float64)
    spread = np.where(spread > 0, spread, 1.0)
    scaled = replace(patches, x=((patches.x - mean) / spread).astype(np.float32))
    losses = path(scaled.take(~apart), max_iter, scaled.take(apart))
    chosen = int(np.argmin(losses["held_out"]))
    weight, bias = path(scaled, max_iter, None, PENALTIES[: chosen + 1])["head"]
    weight = weight / torch.from_numpy(spread)
    details = {"penalty": PENALTIES[chosen], "held_out_loss": [round(loss, 5) for loss in losses["held_out"]]}
    return (weight, bias - weight @ torch.from_numpy(mean)), details


def path(
    learn: Patches, max_iter: int, judged: Patches | None, penalties: tuple[float, ...] = PENALTIES
) -> dict[str, Any]:
    """Fit every penalty, each from the solution before. held_out: cross-entropies on `judged`; head: of the last."""
    axes = principal_axes(torch.from_numpy(learn.x.copy()))
    loss = shares_loss(learn)
    state: State = begin(axes, loss, axes.moments.new_zeros(learn.share.shape[1], len(axes.moments)))
    losses = []
    for penalty in penalties:
        minimise(axes, loss, state, penalty, 1e-4, max_iter)
        if judged is not None:
            losses.append(held_out_loss(axes, state, judged))
            if len(losses) - 1 - int(np.argmin(losses)) >= PATIENCE:
                break
    return {"held_out": losses, "head": axes.back(state.theta)}


def held_out_loss(axes: Axes, state: State, judged: Patches) -> float:
    """Cross-entropy of other patches."""
    weight, bias = axes.back(state.theta)
    logits = torch.from_numpy(judged.x).double() @ weight.T + bias
    return shares_loss(judged)(logits)[0]


def shares_loss(patches: Patches) -> Loss:
    """Cross-entropy of logits (P, K) with the classes' shares, a mean weighted by the pixels that count."""
    share, weight = torch.from_numpy(patches.share), torch.from_numpy(patches.weight / patches.weight.mean())[:, None]

    def loss(logits: Tensor) -> tuple[float, Tensor]:
        logs = log_softmax(logits, 1)
        mean = -(weight * share * logs).sum(dtype=torch.float64).item() / len(logs)
        return mean, (logs.exp() - share.to(logs)) * weight.to(logs)

    return loss


def beside(result: Result) -> tuple[str, ...]:
    """Pixel accuracy and the mean accuracy of classes."""
    return among(result, *judge.OTHERS)


terminal = judge.terminal("linear_seg")
