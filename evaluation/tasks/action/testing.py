"""Test a classifier on whole videos: the mean of the softmax over all views of each."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from tqdm import tqdm

from evaluation.tasks.action.classifier import normalize
from evaluation.tasks.action.reading import FilmViews
from evaluation.tuning.loop import Diverged
from sslkit.data.loader import collate, plain_errors, workers_for
from sslkit.models.model import Model
from sslkit.runtime.context import Runtime
from sslkit.runtime.device import autocast

PASS = 15  # views per forward pass: two passes for the 30 views of a video, in half of the memory


@dataclass(frozen=True)
class FilmScores:
    """rows: (n,) of readable videos. probabilities: (n, K) float64. unreadable: reasons by row."""

    rows: np.ndarray
    probabilities: np.ndarray
    unreadable: dict[int, str]


@torch.inference_mode()
def score_films(net: nn.Sequential, model: Model, views: FilmViews, runtime: Runtime) -> FilmScores:
    """Mean softmax over all views of each video. Raises Diverged for NaN or infinite scores."""
    rows, means, unreadable = [], [], {}
    for row, features, reason in view_features(net.backbone, model, views, runtime):
        if features is None:
            unreadable[row] = reason
            continue
        rows.append(row)
        means.append(net.head(features).double().softmax(1).mean(0).cpu())
    probabilities = torch.stack(means).numpy() if means else np.empty((0, net.head.out_features))
    if not np.isfinite(probabilities).all():
        raise Diverged("the trained network returns NaN or infinite scores")
    return FilmScores(np.array(rows, dtype=np.int64), probabilities, unreadable)


@torch.inference_mode()
def view_features(
    backbone: nn.Module, model: Model, views: FilmViews, runtime: Runtime, title: str = "testing"
) -> Iterator[tuple[int, Tensor | None, str]]:
    """Yield per video: its row, the features (V, width) float32 of its views, on the device, and "".

    If a video cannot be decoded, the features are None and the last is the reason.
    """
    backbone.to(runtime.device).eval()
    loader = DataLoader(
        views,
        batch_size=None,
        collate_fn=collate,
        num_workers=min(workers_for(views, runtime.workers, 1, runtime.device.type), len(views)),
        generator=torch.Generator().manual_seed(runtime.seed),
    )
    hidden = None if runtime.progress else True
    for film in tqdm(plain_errors(loader), title, len(views), leave=False, unit="video", disable=hidden):
        yield film["row"], _features(backbone, model, film["views"], runtime), film["reason"]


def _features(backbone: nn.Module, model: Model, views: Tensor | None, runtime: Runtime) -> Tensor | None:
    if views is None:
        return None
    parts = []
    for some in views.split(PASS):
        pixels = normalize(some.to(runtime.device).float() / 255, model)
        with autocast(runtime.precision, pixels.device):
            parts.append(backbone(pixels).float())
    return torch.cat(parts)
