"""Write a folder of JPEG files as people have them: python newcomer_images.py FOLDER COUNT [TRUTH.csv]

A class folder for each of the 12 categories of the embedded clip art. An image is a piece of a photograph (from
scikit-learn and matplotlib) of 200 to 2,000 pixels, with one clip art on it. Among them are copies, smaller and
recompressed copies, gray, CMYK and EXIF-rotated files, odd names, a damaged file and a file that is no image.
TRUTH.csv lists the copies: kind, file, copied file. Needs only what `pip install` of sslkit brings.
"""

import csv
import shutil
import sys
from pathlib import Path

import matplotlib.cbook
import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images

import evaluation

SIDES = (200, 2000)  # longer side, in pixels
SHAPES = (3 / 4, 1, 4 / 3, 3 / 2, 16 / 9)  # width / height
SMALLEST_PIECE = 0.35  # of a photograph's side
ROTATED = 6  # value of EXIF's orientation: the file is to be turned by 90 degrees
COPIED = 20  # every 20th image is a copy, every 20th a smaller one


def photographs() -> list[Image.Image]:
    """Return the three photographs, RGB."""
    with matplotlib.cbook.get_sample_data("grace_hopper.jpg") as file:
        portrait = Image.open(file).convert("RGB")
    return [portrait, *(Image.fromarray(photo) for photo in load_sample_images().images)]


def drawn(photo: Image.Image, art: np.ndarray, rng: np.random.Generator) -> Image.Image:
    """Return a piece of the photograph with the clip art (H, W, 3) uint8 on it, whose white is left out."""
    longer = int(np.exp(rng.uniform(*np.log(SIDES))))
    shape = rng.choice(SHAPES)
    size = (longer, round(longer / shape)) if shape >= 1 else (round(longer * shape), longer)
    share = rng.uniform(SMALLEST_PIECE, 1)
    fit = share * min(photo.width / size[0], photo.height / size[1])
    wide, high = fit * size[0], fit * size[1]
    left, top = rng.uniform(0, photo.width - wide), rng.uniform(0, photo.height - high)
    picture = photo.resize(size, Image.Resampling.BICUBIC, (left, top, left + wide, top + high))
    side = round(rng.uniform(0.4, 0.8) * min(size))
    figure = Image.fromarray(art).resize((side, side), Image.Resampling.BICUBIC)
    ground = Image.fromarray(np.uint8(255 * (art.min(2) < 240))).resize((side, side), Image.Resampling.BILINEAR)
    place = (int(rng.integers(size[0] - side + 1)), int(rng.integers(size[1] - side + 1)))
    picture.paste(figure, place, ground)
    return picture


def saved(picture: Image.Image, path: Path, number: int, rng: np.random.Generator) -> None:
    """Write a JPEG of random quality; every 30th is gray, CMYK or to be turned by its EXIF entry."""
    exif = Image.Exif()
    if number % 30 == 11:
        picture = picture.convert("L")
    elif number % 30 == 12:
        picture = picture.convert("CMYK")
    elif number % 30 == 13:
        picture = picture.transpose(Image.Transpose.ROTATE_90)
        exif[0x0112] = ROTATED
    picture.save(path, quality=int(rng.integers(60, 96)), exif=exif)


def write(folder: Path, count: int) -> list[tuple[str, str, str]]:
    """Write `count` images and two files that are none; returns (kind, file, copied file) of the copies."""
    rng = np.random.default_rng(0)
    photos = photographs()
    split = evaluation.open_split("clipart", "train")
    art, label = split.images.pixels.transpose(0, 2, 3, 1), split.y
    rows = rng.permutation(len(label))
    written, copies = [], []
    for number in range(count):
        row = rows[number % len(rows)]
        home = folder / split.classes[label[row]]
        home.mkdir(parents=True, exist_ok=True)
        path = home / (f"IMG_{number:05}.jpg" if number % 7 else f"Foto {number} (größer).JPG")
        older = written[-3] if len(written) > 3 else None
        if number % COPIED == 5 and older:
            path = older.with_name(f"{older.stem} - copy.jpg")
            shutil.copy(older, path)
            copies.append(("exact", str(path.relative_to(folder)), str(older.relative_to(folder))))
        elif number % COPIED == 15 and older:
            path = older.with_name(f"{older.stem}-small.jpg")
            with Image.open(older) as picture:
                picture.reduce(2).save(path, quality=75, exif=picture.getexif())
            copies.append(("half", str(path.relative_to(folder)), str(older.relative_to(folder))))
        else:
            saved(drawn(photos[number % 3], art[row], rng), path, number, rng)
        written.append(path)
    written[0].with_name("damaged.jpg").write_bytes(written[0].read_bytes()[:300])
    written[1].with_name("notes.txt").write_text("not an image\n")
    return copies


if __name__ == "__main__":
    copies = write(Path(sys.argv[1]), int(sys.argv[2]))
    if len(sys.argv) > 3:
        with open(sys.argv[3], "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("kind", "file", "copied"), *copies])
