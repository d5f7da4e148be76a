"""Mean intersection over union of predicted label maps, with an interval over images."""

import numpy as np
import torch
from torch import Tensor

from evaluation.results.statistics import Estimate, bias_corrected
from evaluation.tasks.segmentation.label_maps import IGNORED


def counts(classes: Tensor, found: Tensor, k: int) -> np.ndarray:
    """(3, K) int64: pixels of each class that are right, that are of the class, and that were given it.

    classes, found: (H, W) uint8. Ignored pixels count nowhere.
    """
    counted = classes != IGNORED
    truth, guessed = classes[counted].long(), found[counted].long()
    parts = (truth[truth == guessed], truth, guessed)
    return torch.stack([torch.bincount(pixels, minlength=k) for pixels in parts]).cpu().numpy()


def miou(table: np.ndarray) -> float:
    """Mean over the classes that occur, in the truth or the prediction. table: (N, 3, K), see `counts`."""
    right, truth, guessed = table.sum(0)
    union = truth + guessed - right
    return float((right[union > 0] / union[union > 0]).mean())


FEWEST = 5  # images of a class: with fewer, the interval holds the value on unlimited images in less than 92 %


def estimates(table: np.ndarray) -> tuple[Estimate, dict[str, Estimate]]:
    """mIoU, and pixel accuracy and the mean accuracy of classes beside it, each with an interval over images.

    table: (N, 3, K), see `counts`. Classes are those that occur: what one without an image would change is unknown.
    """
    seen, every = table[:, 1] > 0, np.ones((len(table), 1), bool)
    others = {
        "pixel_accuracy": bias_corrected(
            table, lambda drawn: float(drawn[:, 0].sum() / drawn[:, 1].sum()), every, fewest=1
        ),
        "class_accuracy": bias_corrected(table, _class_accuracy, seen, fewest=FEWEST),
    }
    return bias_corrected(table, miou, seen, fewest=FEWEST), others


def _class_accuracy(table: np.ndarray) -> float:
    right, truth, _ = table.sum(0)
    return float((right[truth > 0] / truth[truth > 0]).mean())
