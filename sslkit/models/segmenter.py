"""A segmenter: a classifier of the places of a network's map, enlarged to the pixels of a picture of any size."""

from collections.abc import Iterator, Sequence

import numpy as np
from torch import Tensor, nn

from sslkit.data.images import Images
from sslkit.models.masks import Masks
from sslkit.models.model import Model
from sslkit.models.passes import Rows, run_whole
from sslkit.models.places import Look
from sslkit.runtime.context import Runtime
from sslkit.zoo import classifier
from sslkit.zoo.entry import CARD, ZooEntry
from sslkit.zoo.heads import SEGMENTER


class Segmenter(nn.Module):
    """layers: features (P, F) of places -> outputs (P, K), in eval mode. classes: the K names. look: at a picture."""

    def __init__(self, layers: nn.Sequential, classes: Sequence[str], look: Look) -> None:
        super().__init__()
        self.layers, self.classes, self.look = layers, tuple(classes), look

    def answer(self, model: Model, picture: Tensor) -> tuple[np.ndarray, float]:
        """Classes (H, W) uint8 of a picture (3, H, W) uint8, and the mean probability of the likeliest class."""
        classes, sure = self.look.classify(model, picture, self.layers)
        return classes.cpu().numpy(), sure

    def predict_parts(self, model: Model, opened: Sequence[Images], runtime: Runtime) -> Iterator[tuple[Masks, Rows]]:
        """Yield the mask of each image, and its row."""
        for rows in run_whole(lambda picture: self.answer(model, picture), model, opened, runtime):
            sure = np.array([confidence for _, confidence in rows.x], np.float32)
            yield Masks(rows.names, self.classes, [mask for mask, _ in rows.x], sure, tuple(rows.bad)), rows


def restore(entry: ZooEntry) -> Segmenter:
    """The segmenter of an entry. Raises UserError for one that is damaged or of another backbone."""
    layers, about = entry.head(SEGMENTER), entry.card[SEGMENTER]
    classifier.check(about["classes"], layers[-1].out_features, str(entry.folder / CARD))
    return Segmenter(layers, about["classes"], Look(about["blocks"], tuple(about["scales"])))
