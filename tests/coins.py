"""Pictures of objects, each taken several times, in two classes by coin: only near-copies across a split tell them."""

from pathlib import Path

import numpy as np
from PIL import Image

OBJECTS, SHOTS = 40, 10


def write_coins(folder: Path, *, objects: int = OBJECTS, shots: int = SHOTS, seed: int = 0) -> Path:
    """Write `folder`/heads and /tails: photographs of objects in other lights, of other widths, noisy, as JPEG.

    The names tell nothing. The held-out fifth that is drawn by them has pictures of nearly all objects.
    """
    rng = np.random.default_rng(seed)
    names = rng.permutation(objects * shots)
    faces = rng.permutation(np.arange(objects) % 2)
    for row, name in enumerate(names):
        number, shot = divmod(row, shots)
        blocks = np.random.default_rng((seed, number)).integers(0, 256, (8, 8, 3), np.uint8)
        size = (60 + shot, 60)
        pixels = np.asarray(Image.fromarray(blocks).resize(size, Image.Resampling.BICUBIC), float)
        pixels = pixels * (0.8 + 0.02 * shot) + rng.normal(0, 3, pixels.shape)
        path = folder / ("heads", "tails")[faces[number]] / f"{name:04}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)
    return folder
