"""Time of the HOG features of 256 views, against the kernel before, and their share of a SimCLR step.

    python recipes/benchmarks/hog_speed.py           (a minute; writes results/hog_speed.json)
    python recipes/benchmarks/hog_speed.py --table   (print the committed results)

Two SimCLR views of 128 images, float: Fashion-MNIST at 28 pixels, gray, and pieces of scikit-learn's two photographs at
96 pixels, RGB; resizing is included. The step is forward, backward and AdamW of SimCLR on the same 128 gray images,
narrow_resnet, views included. One thread; the contestants alternate; CPU milliseconds, so that waiting for a core of a
busy machine does not count, though its caches are shared. scikit-image's `hog` is timed if it is installed, image by
image, on the resized ones; it votes for one bin only.
`difference`: of the features from those of the kernel before in float64 on the same views; mean and largest.
"""

import argparse
import importlib.util
import math
import os
import time
from collections.abc import Callable

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import torch
import torch.nn.functional as F
from results import keep, load
from torch import Tensor
from views_speed import photographs

import sslkit
from sslkit.data.views.augmentation import SIMCLR, augment, view_generator
from sslkit.priors import build
from sslkit.priors.base import resize_and_crop
from sslkit.runtime.allocator import keep_freed_memory

IMAGES, SIZES = 128, (32, 64)
STEP, SMALL = "simclr step, 128 images of 28 px", "28 px gray to 32"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=41)
    parser.add_argument("--table", action="store_true", help="print the results and exit")
    args = parser.parse_args()
    if not args.table:
        torch.set_num_threads(1)
        keep_freed_memory()  # as recipes/train.py does
        measure(args.repeats)
    print(table(load("hog_speed")))


def measure(repeats: int) -> None:
    gray = sslkit.open_images("fashion_mnist").__getitems__(list(range(IMAGES)))
    photos = torch.from_numpy(photographs(IMAGES, 96)).permute(0, 3, 1, 2).contiguous()
    step = simclr_step(gray["images"], gray["index"])
    for name, images in (("28 px gray", gray["images"]), ("96 px RGB", photos)):
        views = torch.cat(augment(images, SIMCLR.at(images.shape[-1]), images.shape[-1], view_generator(0, 0, 0)))
        for size in SIZES:
            case = f"{name} to {size}"
            calls = contestants(views, size) | ({STEP: step} if case == SMALL else {})
            times = take_turns(calls, repeats)
            found = {f"{call}, ms": summary(milliseconds) for call, milliseconds in times.items()}
            found["before / now"] = summary(times["before"] / times["now"])
            if STEP in times:
                found["share of the step, %"] = summary(100 * times["now"] / times[STEP])
            keep("hog_speed", case, found | differences(views, size) | {"load": round(os.getloadavg()[0], 1)})


def contestants(views: Tensor, size: int) -> dict[str, Callable[[], object]]:
    prior = build("hog", size=size)
    calls = {"before": lambda: before(views, size), "now": lambda: prior(views)}
    if importlib.util.find_spec("skimage"):
        from skimage.feature import hog

        pictures = resize_and_crop(views, size, "bilinear").mean(1).numpy()
        options = {"orientations": 9, "pixels_per_cell": (size // 8,) * 2, "cells_per_block": (2, 2)}
        calls["scikit-image"] = lambda: [hog(picture, **options) for picture in pictures]
    return calls


def simclr_step(pixels: Tensor, index: Tensor) -> Callable[[], None]:
    method = sslkit.method("simclr", backbone="narrow_resnet", image_size=28, in_chans=1)
    optimizer = torch.optim.AdamW(method.parameters(), lr=1e-3)

    def once() -> None:
        optimizer.zero_grad()
        method(pixels, index)["loss"].backward()
        optimizer.step()

    return once


@torch.no_grad()
def before(pixels: Tensor, size: int) -> Tensor:
    """The features as they were computed until version 1, votes of all pixels and bins kept in memory."""
    gray = resize_and_crop(pixels, size, "bilinear").mean(1)
    dy, dx = torch.zeros_like(gray), torch.zeros_like(gray)
    dy[:, 1:-1] = gray[:, 2:] - gray[:, :-2]
    dx[:, :, 1:-1] = gray[:, :, 2:] - gray[:, :, :-2]
    magnitude, place = torch.hypot(dy, dx), torch.atan2(dy, dx).remainder(math.pi) * (9 / math.pi) - 0.5
    lower = place.floor()
    share = place - lower
    lower = lower.long().remainder(9)[None]
    votes = magnitude.new_zeros(9, *magnitude.shape)
    votes.scatter_add_(0, lower, (magnitude * (1 - share))[None])
    votes.scatter_add_(0, (lower + 1).remainder(9), (magnitude * share)[None])
    blocks = F.unfold(F.avg_pool2d(votes.movedim(0, 1), size // 8), 2).mT
    for clip in (0.2, math.inf):
        blocks = (blocks / (blocks.square().sum(-1, keepdim=True) + 1e-10).sqrt()).clamp(max=clip)
    return blocks.flatten(1)


def differences(views: Tensor, size: int) -> dict[str, dict[str, float]]:
    exact = before(views.double(), size)
    errors = {"before": before(views, size) - exact, "now": build("hog", size=size)(views) - exact}
    return {
        f"difference, {name}": {"mean": float(f"{error.abs().mean():.1e}"), "max": float(f"{error.abs().max():.1e}")}
        for name, error in errors.items()
    }


def take_turns(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, np.ndarray]:
    """CPU milliseconds of each repeat of each contestant, after two warm-ups."""
    times = np.empty((repeats + 2, len(calls)))
    for repeat in times:
        for number, call in enumerate(calls.values()):
            start = time.process_time()
            call()
            repeat[number] = 1e3 * (time.process_time() - start)
    return dict(zip(calls, times[2:].T.copy(), strict=True))


def summary(values: np.ndarray) -> dict[str, float]:
    return {name: round(float(of(values)), 2) for name, of in (("median", np.median), ("min", np.min), ("max", np.max))}


def table(results: dict) -> str:
    """Markdown: median (minimum to maximum) of the CPU milliseconds."""
    lines = [
        "| 256 views | before, ms | now, ms | before / now | largest difference: before | now |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for case, found in results["runs"].items():
        cells = [spread(found[key]) for key in ("before, ms", "now, ms", "before / now")]
        cells += [f"{found[f'difference, {name}']['max']:.0e}" for name in ("before", "now")]
        lines.append(f"| {case} | {' | '.join(cells)} |")
    small = results["runs"][SMALL]
    share, step = spread(small["share of the step, %"]), spread(small[f"{STEP}, ms"])
    return "\n".join([*lines, "", f"{STEP}: {step} ms; HOG at 32 px is {share} % of it."])


def spread(values: dict[str, float]) -> str:
    return f"{values['median']:.1f} ({values['min']:.1f} to {values['max']:.1f})"


if __name__ == "__main__":
    main()
