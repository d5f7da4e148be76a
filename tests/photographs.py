"""Real photographs, and folders of files cut from them."""

from functools import cache
from pathlib import Path

from PIL import Image
from sklearn.datasets import load_sample_images

FIVE = ("china/0.jpg", "china/1.jpg", "china/2.jpg", "flower/3.jpg", "flower/4.jpg")


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


def write_five(folder: Path) -> Path:
    """JPEGs as of a camera: wide, gray, large enough to be decoded at a reduced scale, tall, and turned by its EXIF."""
    china, flower = photographs()
    turned = Image.Exif()
    turned[0x0112] = 6
    for name in ("china", "flower"):
        (folder / name).mkdir(parents=True)
    china.save(folder / FIVE[0], quality=90)
    china.convert("L").crop((0, 37, 500, 412)).save(folder / FIVE[1])
    china.resize((1915, 1277), Image.Resampling.LANCZOS).save(folder / FIVE[2], quality=90)
    flower.crop((201, 0, 480, 427)).save(folder / FIVE[3], quality=75)
    flower.save(folder / FIVE[4], quality=95, exif=turned)
    return folder
