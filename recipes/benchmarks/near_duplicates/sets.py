"""Sets of unrelated pictures, and of pictures with planted copies, as folders of files."""

import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

import sslkit
from sslkit.data.likeness import BITS, count_differences, hash_pixels, is_blank

COUNT, COPIES = 600, 60
SIDE = 256  # pixels of the longer side, as most sets of small pictures have
LEAST = 32  # of the shorter side: a copy at half size still has 16
SERIES = BITS // 4  # bits: pictures of one folder that differ in no more are one drawing in other colours, or the next

Picture = tuple[str, Image.Image]  # folder and pixels


def code_jpeg(image: Image.Image) -> Image.Image:
    file = io.BytesIO()
    image.save(file, "jpeg", quality=50)
    return Image.open(file).convert("RGB")


def crop(image: Image.Image) -> Image.Image:
    left, top = max(1, round(0.05 * image.width)), max(1, round(0.05 * image.height))
    return image.crop((left, top, image.width - left, image.height - top))


KINDS: dict[str, Callable[[Image.Image], Image.Image]] = {
    "jpeg50": code_jpeg,
    "half": lambda image: image.resize((image.width // 2, image.height // 2), Image.Resampling.BICUBIC),
    "middle90": crop,
    "brighter20": lambda image: image.point(lambda value: min(255, round(1.2 * value))),
    "mirrored": ImageOps.mirror,
    "black-border6": lambda image: ImageOps.expand(image, max(2, round(0.06 * min(image.size))), "black"),
}


def read_clipart() -> Iterator[Picture]:
    """The embedded clip art, 48 pixels."""
    file = Path(sslkit.__file__).parent / "data" / "embedded" / "clipart.npz"
    with np.load(file, allow_pickle=True) as arrays:  # of our own: the folders are texts of any length
        folders, pixels = arrays["sub"].tolist(), arrays["x"]
    yield from zip(folders, map(Image.fromarray, pixels), strict=True)


def read_folders(folders: Sequence[Path]) -> Iterator[Picture]:
    """All PNG and JPEG files below the folders on white, at most 256 pixels; without letters and mirror images."""
    for path in sorted(path for folder in folders for path in folder.rglob("*") if path.suffix in (".png", ".jpg")):
        if any(word in str(path) for word in ("alphabets", "/math/", "mirror")):
            continue
        with Image.open(path) as image:
            image = image.convert("RGBA")
        image.thumbnail((SIDE, SIDE))
        white = Image.new("RGBA", image.size, "white")
        white.alpha_composite(image)
        if min(image.size) >= LEAST:
            yield str(path.parent), white.convert("RGB")


def leave_series_out(pictures: Iterator[Picture]) -> list[Image.Image]:
    """The pictures with structure that are no copies, and of each series of one folder the first."""
    folders: dict[str, int] = {}
    images, hashes, numbers = [], np.empty((0, 4), np.int64), np.empty(0, np.int64)
    for folder, image in pictures:
        hashed, number = hash_pixels(np.asarray(image))[None], folders.setdefault(folder, len(folders))
        apart = count_differences(hashes, hashed)
        if is_blank(hashed)[0] or ((apart <= SERIES) & (numbers == number)).any() or (apart == 0).any():
            continue
        images.append(image)
        hashes, numbers = np.concatenate([hashes, hashed]), np.append(numbers, number)
    return images


def write_sets(images: Sequence[Image.Image], seed: int, folder: Path) -> None:
    """Write 600 pictures and copies of 60 of them into folder/planted, 600 others, as far as there are, into unrelated.

    A file is named by its picture; a copy NUMBER-KIND, as many of each kind.
    """
    order = np.random.default_rng(seed).permutation(len(images))
    others = order[-COUNT:]
    for name in ("planted", "unrelated"):
        (folder / name).mkdir(parents=True)
    for name, rows in (("planted", order[:COUNT]), ("unrelated", others)):
        for row in rows:
            images[row].save(folder / name / f"{row:05}.png")
    for number, row in enumerate(order[:COPIES]):
        kind = list(KINDS)[number % len(KINDS)]
        KINDS[kind](images[row]).save(folder / "planted" / f"{row:05}-{kind}.png")
