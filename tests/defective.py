"""Small sets of defects as they are published: squares of another brightness on textures."""

import csv
from pathlib import Path

import numpy as np
from PIL import Image

SIDE = 32


def write_image(path: Path, seed: int, *, defect: bool = False, mask: Path | None = None) -> None:
    """A texture, with a bright square where there is a defect, and its mask."""
    rng = np.random.default_rng(seed)
    pixels = (100 + 30 * np.sin(np.arange(SIDE) / 2)[:, None, None] + rng.normal(0, 12, (SIDE, SIDE, 3))).clip(0, 255)
    where = np.zeros((SIDE, SIDE), np.uint8)
    if defect:
        x, y = rng.integers(2, SIDE - 12, 2)
        pixels[y : y + 10, x : x + 10] = 250
        where[y : y + 10, x : x + 10] = 255
    for file in filter(None, (path, mask)):
        file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.astype(np.uint8)).save(path)
    if mask is not None:
        Image.fromarray(where).save(mask)


def write_mvtec(root: Path, objects: tuple[str, ...] = ("bottle",), normal: int = 10) -> Path:
    """Objects as of MVTec AD, with two kinds of defects; returns the root."""
    for place, name in enumerate(objects):
        for number in range(normal):
            write_image(root / name / "train" / "good" / f"{number:03}.png", 1000 * place + number)
        for number in range(6):
            write_image(root / name / "test" / "good" / f"{number:03}.png", 1000 * place + 100 + number)
            kind = "spot" if number % 2 else "hole"
            mask = root / name / "ground_truth" / kind / f"{number:03}_mask.png"
            image = root / name / "test" / kind / f"{number:03}.png"
            write_image(image, 1000 * place + 200 + number, defect=True, mask=mask)
    return root


def write_visa(root: Path) -> Path:
    """Two objects as of VisA; returns the root."""
    rows = []
    for place, name in enumerate(("candle", "pcb1")):
        for number in range(14):
            split, bad = ("train" if number < 6 else "test"), number >= 10
            kind = "Anomaly" if bad else "Normal"
            image = f"{name}/Data/Images/{kind}/{number:04}.JPG"
            mask = f"{name}/Data/Masks/Anomaly/{number:04}.png" if bad else ""
            write_image(root / image, 500 * place + number, defect=bad, mask=root / mask if bad else None)
            rows.append((name, split, "anomaly" if bad else "normal", image, mask))
    (root / "split_csv").mkdir()
    with (root / "split_csv" / "1cls.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("object", "split", "label", "image", "mask"), *rows])
    return root


def write_good_and_bad(root: Path) -> Path:
    """Class folders good/ and bad/; returns the folder."""
    for number in range(20):
        write_image(root / "good" / f"{number:03}.png", number)
    for number in range(5):
        write_image(root / "bad" / f"{number:03}.png", 300 + number, defect=True)
    return root
