"""Real photographs, and folders of files cut from them."""

from functools import cache
from pathlib import Path

from PIL import Image
from sklearn.datasets import load_sample_images


@cache
def photographs() -> list[Image.Image]:
    """scikit-learn's two photographs, 640 x 427; not to be changed."""
    return [Image.fromarray(photo) for photo in load_sample_images().images]


def write_jpegs(folder: Path, count: int = 12, size: tuple[int, int] = (240, 180)) -> Path:
    """Files of different pieces of the photographs; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    width, height = size
    for number in range(count):
        photo = photographs()[number % 2]
        left, top = 37 * number % (photo.width - width), 23 * number % (photo.height - height)
        photo.crop((left, top, left + width, top + height)).save(folder / f"{number:02}.jpg", quality=95)
    return folder
