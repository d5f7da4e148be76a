"""Section `views` of run.py: milliseconds for two views of 256 images at 224 px, beside other libraries."""

from collections.abc import Callable
from functools import partial

import torch
from gpu.jobs import Asked, Job, Step, random_images, seconds_in_turns
from torch import Tensor

import sslkit
from sslkit.runtime.context import Runtime

METHODS = ("simclr", "byol", "dino")  # dino: two of 224 and eight of 96 pixels
COMPILED = ("simclr", "dino")


def jobs(asked: Asked) -> dict[str, Job]:
    n, size = (8, 32) if asked.dry else (256, 224)
    return {f"{n} images, {size} px | {asked.device.type}": lambda: milliseconds(n, size, asked)}


def milliseconds(n: int, size: int, asked: Asked) -> dict[str, dict[str, float]]:
    """All ways in turns, from the same uint8 images of 8/7 of the side on the device, to float pixels."""
    torch.manual_seed(0)
    images = random_images(n, size * 8 // 7, asked.device)
    ways: dict[str, Step] = {
        f"sslkit's {name}": partial(_views, _method(name, size, asked), images) for name in METHODS
    }
    if asked.on_gpu:
        made = {name: _method(name, size, asked, compiled=True) for name in COMPILED}
        ways |= {f"sslkit's {name}, compiled": partial(_views, method, images) for name, method in made.items()}
    for name, build in {"kornia": kornia_pair, "torchvision v2, image by image": torchvision_pair}.items():
        try:
            ways[f"{name}, simclr"] = partial(_pair, build(size), images)
        except ImportError as error:
            print(f"views: {name} is left out: {error}")
    seconds = seconds_in_turns(ways, asked.device, rounds=1 if asked.dry else 3, each=1 if asked.dry else 3)
    ms = {name: round(1000 * value, 2) for name, value in seconds.items()}
    return {"ms": ms, "off": {name: off(name, images[:32], size, asked) for name in COMPILED}}


def off(name: str, images: Tensor, size: int, asked: Asked) -> float:
    """The largest difference of a pixel in [0, 1] of compiled views from those of the CPU, of the same draws."""
    here = _method(name, size, asked, compiled=True)
    there = _method(name, size, Asked(Runtime(device=torch.device("cpu"))))
    pairs = zip(here.make_views(images), there.make_views(images.cpu()), strict=True)
    return float(f"{max((pixels.cpu() - other).abs().max().item() for pixels, other in pairs):.1e}")


def _method(name: str, size: int, asked: Asked, *, compiled: bool = False) -> sslkit.Method:
    network = "narrow_vit" if name == "dino" else "narrow_resnet"
    method = sslkit.method(name, image_size=size, backbone=network).to(asked.device)
    method.compiled_views = compiled
    return method


def _views(method: sslkit.Method, images: Tensor) -> None:
    method.batch += 1
    method.make_views(images)


def _pair(transform: Callable[[Tensor], Tensor], images: Tensor) -> None:
    for _ in range(2):
        transform(images)


def kornia_pair(size: int) -> Callable[[Tensor], Tensor]:
    """SimCLR's augmentations as kornia's, with a draw for each image."""
    from kornia import augmentation as k

    made = torch.nn.Sequential(
        k.RandomResizedCrop((size, size), scale=(0.08, 1.0)),
        k.RandomHorizontalFlip(),
        k.ColorJitter(0.8, 0.8, 0.8, 0.2, p=0.8),
        k.RandomGrayscale(p=0.2),
        k.RandomGaussianBlur((size // 10 // 2 * 2 + 1,) * 2, (0.1, 2.0), p=0.5),
    )
    return lambda images: made(images.float() / 255)


def torchvision_pair(size: int) -> Callable[[Tensor], Tensor]:
    """SimCLR's augmentations as torchvision's, which draws once for a whole batch: so image by image."""
    from torchvision.transforms import v2

    made = v2.Compose(
        [
            v2.RandomResizedCrop(size, (0.08, 1.0), antialias=True),
            v2.RandomHorizontalFlip(),
            v2.RandomApply([v2.ColorJitter(0.8, 0.8, 0.8, 0.2)], 0.8),
            v2.RandomGrayscale(0.2),
            v2.RandomApply([v2.GaussianBlur(size // 10 // 2 * 2 + 1, (0.1, 2.0))], 0.5),
            v2.ToDtype(torch.float32, scale=True),
        ]
    )
    return lambda images: torch.stack([made(image) for image in images])
