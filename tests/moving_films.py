"""Films of clip-art that moves over a photograph, in class folders: a class is a motif."""

from pathlib import Path

import numpy as np
from films import encode

MOTIFS = (0, 400, 900, 1500)  # rows of the embedded clip-art


def write_folder(root: Path, films: int, *, split: str = "", frames: int = 20, size: int = 48) -> Path:
    """root/split/motif0/000.mp4 ...: so many films of each motif, each over another part of a photograph."""
    from sklearn.datasets import load_sample_images

    import sslkit

    photographs = load_sample_images().images
    sprites = sslkit.open_images("clipart").__getitems__(list(MOTIFS))["images"]
    generator = np.random.default_rng(len(split))
    for number, sprite in enumerate(sprites.permute(0, 2, 3, 1).numpy()):
        folder = root / split / f"motif{number}"
        folder.mkdir(parents=True)
        for film in range(films):
            photograph = photographs[generator.integers(2)]
            top, left = (generator.integers(side - size) for side in photograph.shape[:2])
            ground = photograph[top : top + size, left : left + size]
            write_film(folder / f"{film:03d}.mp4", sprite, ground, frames, int(generator.integers(size)))
    return root


def write_pieces(root: Path, pieces: int, *, split: str, films: int = 8, size: int = 32) -> Path:
    """root/split/film0/000.mp4 ...: pieces of each film, a motif before a photograph, each as another camera shows it:
    with its channels in another order and of another strength.
    """
    from sklearn.datasets import load_sample_images

    import sslkit

    photographs = load_sample_images().images
    sprites = sslkit.open_images("clipart").__getitems__([200 * number for number in range(films)])["images"]
    place, camera = np.random.default_rng(0), np.random.default_rng(len(split))
    for number, sprite in enumerate(sprites.permute(0, 2, 3, 1).numpy()):
        top, left = place.integers(0, 380), place.integers(0, 590)
        ground = photographs[number % 2][top : top + size, left : left + size]
        folder = root / split / f"film{number}"
        folder.mkdir(parents=True)
        for piece in range(pieces):
            strength, order = camera.uniform(0.3, 1, 3), camera.permutation(3)
            shown = [(picture[:, :, order] * strength).astype(np.uint8) for picture in (sprite, ground)]
            write_film(folder / f"{piece:03d}.mp4", *shown, frames=12, start=int(camera.integers(size)))
    return root


def write_film(path: Path, sprite: np.ndarray, ground: np.ndarray, frames: int, start: int) -> None:
    """The sprite, half as large as the ground, comes in from one side and leaves by the other; MPEG-4."""
    size = len(ground)
    part = sprite[:: len(sprite) // (size // 2), :: len(sprite) // (size // 2)][: size // 2, : size // 2]
    canvas = np.concatenate([ground, ground], 1)
    pictures = []
    for number in range(frames):
        picture, left = canvas.copy(), (start + 3 * number) % size
        picture[size // 4 : size // 4 + len(part), left : left + part.shape[1]] = part
        pictures.append(picture[:, :size])
    encode(path, pictures, rate=12)
