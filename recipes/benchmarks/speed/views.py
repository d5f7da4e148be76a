"""Speed of making two views, in source images per second: ours, batched, against lightly's transforms.

    python recipes/benchmarks/speed/run.py views

One thread. Both start from decoded images in memory (ours from a uint8 batch, lightly's from PIL images of the same
pixels) and end with two float batches without normalisation. Repeats alternate, so that other load slows both equally.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import cli
import numpy as np
import torch
from lightly.transforms import BYOLTransform, SimCLRTransform
from lightly.transforms.byol_transform import BYOLView1Transform, BYOLView2Transform
from PIL import Image
from results import about, path_of, write
from sklearn.datasets import load_sample_images
from turns import format_times

import sslkit.data.embedded
from sslkit.data.views.augmentation import augment, view_generator
from sslkit.data.views.recipe import BYOL, SIMCLR, ViewRecipe


@dataclass(frozen=True)
class Case:
    name: str
    images: np.ndarray  # (N, H, W, C) uint8
    size: int
    recipe: ViewRecipe
    peer: Callable[[Image.Image], list[torch.Tensor]]


def photographs(count: int, size: int) -> np.ndarray:
    """(count, size, size, 3) uint8: resized square crops of scikit-learn's two photographs."""
    rng = np.random.default_rng(0)
    photos = [Image.fromarray(photo) for photo in load_sample_images().images]
    pieces = []
    for k in range(count):
        photo = photos[k % len(photos)]
        side = int(rng.integers(256, photo.height + 1))
        x, y = rng.integers(0, photo.width - side + 1), rng.integers(0, photo.height - side + 1)
        pieces.append(np.asarray(photo.resize((size, size), Image.BICUBIC, (x, y, x + side, y + side))))
    return np.stack(pieces)


def clothes(count: int) -> np.ndarray:
    """(count, 28, 28, 1) uint8 of Fashion-MNIST."""
    with np.load(Path(sslkit.data.embedded.__file__).with_name("fashion_mnist.npz")) as arrays:
        return arrays["x_train"][:count, :, :, None]


def simclr(size: int, **options: float) -> SimCLRTransform:
    return SimCLRTransform(size, normalize=None, **options)


def byol(size: int, **options: float) -> BYOLTransform:
    first = BYOLView1Transform(size, normalize=None, **options)
    second = BYOLView2Transform(size, normalize=None, **options)
    return BYOLTransform(first, second)


def cases() -> list[Case]:
    small = {"cj_strength": 0.5, "gaussian_blur": 0.0}
    tiny, large, gray = photographs(256, 32), photographs(32, 256), clothes(256)
    return [
        Case("simclr, 32 px, as published for small images", tiny, 32, SIMCLR.at(32), simclr(32, **small)),
        Case("simclr, 32 px, with blur", tiny, 32, SIMCLR, simclr(32)),
        Case("byol, 32 px, as published for small images", tiny, 32, BYOL.at(32), byol(32, **small)),
        Case("simclr, 28 px gray, as published for small images", gray, 28, SIMCLR.at(28), simclr(28, **small)),
        Case("byol, 28 px gray, as published for small images", gray, 28, BYOL.at(28), byol(28, **small)),
        Case("simclr, 224 px out of 256", large, 224, SIMCLR, simclr(224)),
        Case("byol, 224 px out of 256", large, 224, BYOL, byol(224)),
    ]


def ours(case: Case) -> Callable[[int], object]:
    batch = torch.from_numpy(case.images).permute(0, 3, 1, 2).contiguous()
    return lambda step: augment(batch, case.recipe, case.size, view_generator(0, 0, step))


def lightlys(case: Case) -> Callable[[int], object]:
    originals = [Image.fromarray(image.squeeze()) for image in case.images]
    return lambda _: [torch.stack(view) for view in zip(*map(case.peer, originals), strict=True)]


def rate(make: Callable[[int], object], count: int, seconds: float) -> float:
    """Images per second of batches made for at least `seconds`."""
    start, step = time.perf_counter(), 0
    while (spent := time.perf_counter() - start) < seconds or step == 0:
        make(step)
        step += 1
    return count * step / spent


def measure(case: Case, repeats: int, seconds: float) -> dict[str, object]:
    contenders = {"sslkit": ours(case), "lightly": lightlys(case)}
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for repeat in range(repeats + 1):
        for name, make in contenders.items():
            speed = rate(make, len(case.images), seconds)
            if repeat:  # the first is a warm-up
                rates[name].append(speed)
    ratios = [a / b for a, b in zip(rates["sslkit"], rates["lightly"], strict=True)]
    per_second = {name: extremes(values) for name, values in rates.items()}
    return {"case": case.name, "batch": len(case.images), "images_per_second": per_second, "ratio": extremes(ratios)}


def extremes(values: list[float]) -> dict[str, float]:
    return {"median": median(values), "min": min(values), "max": max(values)}


def main() -> None:
    parser = cli.parser(__doc__)
    parser.add_argument("--repeats", type=int, default=7, help="measured repeats of each case, which alternate")
    parser.add_argument("--seconds", type=float, default=0.5, help="shortest time of one repeat")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'source images per second':52}{'sslkit':>24}{'lightly':>24}{'ratio':>20}")
    rows = []
    for case in cases():
        rows.append(row := measure(case, args.repeats, args.seconds))
        a, b = (format_times(numbers, 0) for numbers in row["images_per_second"].values())
        print(f"{case.name:52}{a:>24}{b:>24}{format_times(row['ratio'], 1):>20}")
    write(path_of("speed/views"), {**about(), "threads": 1, "results": rows})
