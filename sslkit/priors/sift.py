"""Scale-invariant features at the keypoints of an image, their mean (Lowe, IJCV 2004); by OpenCV, on the CPU."""

from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sslkit.errors import UserError
from sslkit.priors.base import Prior, resize_and_crop

VERSION = 2  # part of every cache key: increase it when the features change
LENGTH = 512  # of OpenCV's descriptors, about


class SiftPrior(Prior):
    """The mean of an image's SIFT descriptors, (N, 128), at a fixed size; zeros for an image without keypoints.

    DSA's paper names SIFT as a prior in table X and says no more. One vector an image is needed, so descriptors are
    averaged, as they are: a bag of visual words would need a codebook, of which the paper says nothing. Position, scale
    and direction of the keypoints are left out. Channels are averaged, and pixels rounded to 8 bits, which OpenCV
    takes. One image takes milliseconds, so that mode=cached is the quick one.
    """

    specified = False

    def __init__(self, name: str, *, size: int = 64) -> None:
        super().__init__(name)
        if size < 16:
            raise UserError(f"prior sift: prior_size must be at least 16, got {size}")
        self.size = size
        _opencv()

    @classmethod
    def from_name(cls, name: str, *, size: int | None, precision: str) -> "SiftPrior":
        return cls(name, size=size or 64)

    def extract(self, pixels: Tensor) -> Tensor:
        # in fp64: what is half-way between two bytes is rounded alike on every device
        gray = resize_and_crop(pixels.cpu().double(), self.size, "bilinear").mean(1)
        images = (gray * 255).round().byte().numpy()
        features = np.zeros((len(images), 128), np.float32)
        sift = _opencv().SIFT_create()
        for image, out in zip(images, features, strict=True):
            _, descriptors = sift.detectAndCompute(image, None)
            if descriptors is not None:
                out[:] = descriptors.mean(0, dtype=np.float64) / LENGTH
        return torch.from_numpy(features).to(pixels.device)

    @property
    def identity(self) -> str:
        return f"sift size={self.size} opencv={_opencv().__version__} version={VERSION}"


@cache
def _opencv() -> Any:
    try:
        import cv2
    except ImportError as error:
        raise UserError('prior sift needs OpenCV: pip install "sslkit[sift]"') from error
    return cv2
