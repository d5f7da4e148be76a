"""Films of a square that moves over noise; its direction is the class. For tests of action recognition."""

from pathlib import Path

import numpy as np
from films import encode

STEPS = {"right": (0, 3), "left": (0, -3), "down": (3, 0), "up": (-3, 0)}


def write_motion(
    path: Path,
    motion: str = "right",
    *,
    frames: int = 9,
    size: tuple[int, int] = (24, 32),
    seed: int = 0,
    rate: int = 25,
) -> None:
    """size: (height, width)."""
    rng = np.random.default_rng([seed, *motion.encode()])
    height, width = size
    noise = (rng.random((height, width, 3)) * 90).astype(np.uint8)
    y, x, colour = rng.integers(height), rng.integers(width), rng.integers(160, 255, 3)
    down, right = STEPS[motion]
    pictures = []
    for time in range(frames):
        picture = noise.copy()
        rows, columns = (np.arange(8) + y + time * down) % height, (np.arange(8) + x + time * right) % width
        picture[np.ix_(rows, columns)] = colour
        pictures.append(picture)
    encode(path, pictures, rate=rate)


def write_motions(root: Path, train: int = 8, test: int = 3) -> Path:
    """root/train and root/test with so many films of each of two motions, of 5, 9 and 13 frames in turn."""
    for split, count in (("train", train), ("test", test)):
        for name in ("down", "right"):
            for number in range(count):
                seed = number + 100 * (split == "test")
                write_motion(root / split / name / f"{number}.mp4", name, frames=5 + 4 * (number % 3), seed=seed)
    return root
