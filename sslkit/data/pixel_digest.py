"""When two images are the same: equal decoded pixels at full size, upright, in whatever file and format they lie.

Whatever leaves an image out of its own neighbours, counts test images that were trained on, or keeps copies together
compares these digests, and nothing else.
"""

import hashlib

import numpy as np
import torch
from torch import Tensor

from sslkit.data import likeness

KEY = "pixel_digest"  # of a batch
_BYTES = 8  # of a sha256: two of 10^7 different images agree in one of 400,000 data sets


def digest_of_pixels(pixels: np.ndarray) -> int:
    """Digest pixels (H, W, C), upright, of any dtype: a signed number of 64 bits.

    uint8 (H, W, 1), gray, is the picture of three equal colours. Values of more than 8 bits count, not their dtype.
    """
    if pixels.dtype != np.uint8:
        pixels = pixels.astype(np.float64)
    elif pixels.shape[2] == 1:
        pixels = np.repeat(pixels, 3, axis=2)
    digest = hashlib.sha256(repr((pixels.shape, str(pixels.dtype))).encode())
    digest.update(np.ascontiguousarray(pixels))
    return int.from_bytes(digest.digest()[:_BYTES], "little", signed=True)


def identities(digests: np.ndarray, hashes: np.ndarray) -> dict[str, Tensor]:
    """Return the entries of a batch for `Images.identifies`. digests: (n,). hashes: (n, 4) of `data.likeness`."""
    return {KEY: torch.from_numpy(digests), likeness.KEY: torch.from_numpy(hashes)}


def digests_of_arrays(images: np.ndarray) -> np.ndarray:
    """Return the digests (n,) int64 of images (n, C, H, W)."""
    return np.array([digest_of_pixels(image.transpose(1, 2, 0)) for image in images], dtype=np.int64)
