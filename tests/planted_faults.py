"""A folder of pictures of three classes with planted faults, and which file has which."""

import shutil
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("rings", "slopes", "stripes")
SIDE = 64


def picture(label: str, rng: np.random.Generator) -> np.ndarray:
    """(SIDE, SIDE, 3) uint8: the pattern of a class in random colours near the class's own."""
    y, x = np.mgrid[:SIDE, :SIDE] / SIDE
    shift = rng.uniform(0, 0.25, 2)
    level = {
        "rings": np.sin(18 * np.hypot(x - 0.4 - shift[0], y - 0.4 - shift[1])),
        "slopes": 2 * np.clip(x + y - 0.8 - shift[0], 0, 1) - 1,
        "stripes": np.sin(25 * y + rng.uniform(0, 1)),
    }[label]
    colour = np.roll([0.9, 0.5, 0.2], CLASSES.index(label)) + rng.uniform(-0.05, 0.05, 3)
    values = 128 + 100 * level[..., None] * colour + rng.normal(0, 6, (SIDE, SIDE, 3))
    return values.clip(0, 255).astype(np.uint8)


def plant(folder: Path, images: int = 600) -> dict[str, list[str]]:
    """Write train (4 of 5) and test below the folder; return the paths below it of the images with each fault."""
    rng = np.random.default_rng(0)
    paths: list[Path] = []
    for row in range(images):
        label, split = CLASSES[row % len(CLASSES)], "test" if row % 5 == 4 else "train"
        paths.append(folder / split / label / f"{row:04}.png")
        paths[-1].parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture(label, rng)).save(paths[-1])
    train = iter(rng.permutation([path for path in paths if "train" in path.parts]))
    test = iter([path for path in paths if "test" in path.parts])

    def some(number: int) -> list[Path]:
        return [next(train) for _ in range(number)]

    faults: dict[str, list[Path]] = {"within": [], "across": []}
    for path in some(6):
        faults["within"].append(shutil.copy(path, path.with_name(f"copy-{path.name}")))
    for path in some(6):
        other = next(other for other in test if other.parent.name == path.parent.name)
        faults["across"].append(shutil.copy(path, other))
    for name, level in (("blank", 255), ("dark", 0)):
        faults[name] = some(3)
        for path in faults[name]:
            Image.new("RGB", (SIDE, SIDE), (level,) * 3).save(path)
    faults["label"] = []
    for path in some(10):
        other = CLASSES[(CLASSES.index(path.parent.name) + 1) % len(CLASSES)]
        faults["label"].append(path.rename(path.parents[1] / other / f"moved-{path.name}"))
    faults["16 bit"] = some(4)
    for path in faults["16 bit"]:
        Image.fromarray(16 * np.asarray(Image.open(path).convert("L")).astype(np.uint16)).save(path)
    faults["bands"] = []
    for path in some(4):
        pixels = np.dstack([np.asarray(Image.open(path)), rng.integers(0, 255, (SIDE, SIDE), np.uint8)])
        path.unlink()
        faults["bands"].append(path.with_suffix(".tif"))
        Image.fromarray(pixels).save(faults["bands"][-1])
    faults["size"] = some(3)
    for path in faults["size"]:
        Image.open(path).resize((SIDE * 20, SIDE // 4)).save(path)
    faults["unreadable"] = some(2)
    for path in faults["unreadable"]:
        path.write_bytes(path.read_bytes()[:2000])
    faults["small class"] = [folder / "train" / "dots" / f"{row}.png" for row in range(3)]
    faults["small class"][0].parent.mkdir()
    for path in faults["small class"]:
        Image.fromarray(rng.integers(0, 255, (SIDE, SIDE, 3), np.uint8)).save(path)
    return {fault: [path.relative_to(folder).as_posix() for path in some] for fault, some in faults.items()}
