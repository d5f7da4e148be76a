"""A segmenter: a classifier of the places of a network's last map, enlarged to the pixels of a picture of any size.

Pictures are squeezed to the network's square, so that no part is left out, and scores are enlarged bilinearly, as in
Oquab et al. 2024 (arXiv 2304.07193, section 7.4).
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sslkit.backbones.base import Backbone
from sslkit.data.images import Images
from sslkit.models.masks import Masks
from sslkit.models.model import Model
from sslkit.models.passes import Rows, run_whole
from sslkit.runtime.context import Runtime
from sslkit.zoo import classifier
from sslkit.zoo.entry import CARD, ZooEntry
from sslkit.zoo.heads import SEGMENTER

GRAY = (0.299, 0.587, 0.114)  # ITU-R 601, as Pillow's
ENLARGED = 2**25  # scores that are enlarged at a time, 128 MiB: of a large picture not those of all classes


class Segmenter(nn.Module):
    """layers: features (P, F) of places -> outputs (P, K), in eval mode. classes: the K names."""

    def __init__(self, layers: nn.Sequential, classes: Sequence[str]) -> None:
        super().__init__()
        self.layers, self.classes = layers, tuple(classes)

    def answer(self, model: Model, picture: Tensor) -> tuple[np.ndarray, float]:
        """Classes (H, W) uint8 of a picture (3, H, W) uint8, and the mean probability of the likeliest class."""
        places = place_features(model.backbone, prepare(picture, model)[None])[0]
        scores = self.layers(places.flatten(1).T).T.unflatten(1, places.shape[1:]).float()
        return enlarge(scores, tuple(picture.shape[1:])).cpu().numpy(), float(scores.softmax(0).amax(0).mean())

    def predict_parts(self, model: Model, opened: Sequence[Images], runtime: Runtime) -> Iterator[tuple[Masks, Rows]]:
        """Yield the mask of each image, and its row."""
        for rows in run_whole(lambda picture: self.answer(model, picture), model, opened, runtime):
            sure = np.array([confidence for _, confidence in rows.x], np.float32)
            yield Masks(rows.names, self.classes, [mask for mask, _ in rows.x], sure, tuple(rows.bad)), rows


def restore(entry: ZooEntry) -> Segmenter:
    """The segmenter of an entry. Raises UserError for one that is damaged or of another backbone."""
    layers, classes = entry.head(SEGMENTER), entry.card[SEGMENTER]["classes"]
    classifier.check(classes, layers[-1].out_features, str(entry.folder / CARD))
    return Segmenter(layers, classes)


def place_features(backbone: Backbone, pixels: Tensor) -> Tensor:
    """(B, C, S, S) normalised -> (B, F, h, w), for a ViT after the norm that its pooled features get."""
    places, _ = backbone.feature_map(pixels)
    if backbone.is_vit:
        places = backbone.net.fc_norm(places.movedim(1, -1)).movedim(-1, 1)
    return places.float()


def prepare(image: Tensor, model: Model) -> Tensor:
    """(3, H, W) uint8 -> (C, S, S), squeezed to the network's square and normalised."""
    pixels = image.float() / 255
    if model.in_chans == 1:
        pixels = (pixels * pixels.new_tensor(GRAY).view(3, 1, 1)).sum(0, keepdim=True)
    size = (model.image_size, model.image_size)
    pixels = F.interpolate(pixels[None], size, mode=model.resizing.interpolation, antialias=True)[0].clamp(0, 1)
    mean, std = (pixels.new_tensor(statistic).view(-1, 1, 1) for statistic in (model.mean, model.std))
    return (pixels - mean) / std


def enlarge(scores: Tensor, size: tuple[int, int]) -> Tensor:
    """(H, W) uint8: the class of the highest score after bilinear enlargement. scores: (K, h, w)."""
    at_once = max(ENLARGED // (size[0] * size[1]), 1)
    best = label = None
    for first in range(0, len(scores), at_once):
        some = F.interpolate(scores[None, first : first + at_once], size, mode="bilinear", align_corners=False)[0]
        value, number = some.max(0)
        number = (number + first).to(torch.uint8)
        higher = value > best if first else None
        best = value if higher is None else torch.where(higher, value, best)
        label = number if higher is None else torch.where(higher, number, label)
    return label
