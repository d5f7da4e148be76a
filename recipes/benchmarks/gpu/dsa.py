"""Section `dsa` of run.py: time and memory of DSA's terms by the number of images in a step."""

from functools import partial
from typing import Any

import torch
from gpu.jobs import Asked, Job, in_memory, in_use, memory_of, random_images, seconds_in_turns
from gpu.step import bare

import sslkit
from sslkit.embeddings import Embeddings

SIZES = (512, 2048, 8192)
WIDTH, SIDE = 256, 32  # of BYOL's projections, and of the images that the prior reads


def jobs(asked: Asked) -> dict[str, Job]:
    sizes = (64,) if asked.dry else SIZES
    return {f"{n} | {asked.device.type}": lambda n=n: cost(n, asked) for n in sizes}


def cost(n: int, asked: Asked, *, width: int = WIDTH, batch: int = 256) -> dict[str, float]:
    """Milliseconds of DSA's terms and their gradient, GiB beyond their input, and the share of a step.

    share: of the milliseconds that ResNet-50 alone takes for as many images at 224 px, on a GPU.
    """
    held = in_use(asked.device)
    plugin, e, images = prepare(n, width, asked)
    e.z.requires_grad_()

    def step() -> None:
        sum(plugin.terms(e, images).values()).backward()

    step()
    gib = memory_of(step, asked.device, held)
    timed = partial(seconds_in_turns, device=asked.device, rounds=3, each=2 if asked.dry else 5)
    ms = 1000 * timed({"dsa": step})["dsa"]
    result = {"ms": round(ms, 3), "gib": gib}
    if asked.on_gpu:
        student = bare("resnet50", random_images(batch, 224, asked.device), teacher=False)
        result["share"] = round(ms / (1000 * timed({"student": student})["student"] * n / batch), 4)
    return result


def prepare(n: int, width: int, asked: Asked) -> tuple[Any, Embeddings, torch.Tensor]:
    """DSA that has read n random images, and a step of them all: two views, z (2, n, width)."""
    images, index = random_images(n, SIDE, torch.device("cpu")), torch.arange(n)
    plugin = sslkit.regularizers.find("dsa")(dim=width).train()
    plugin.prepare(in_memory(images))
    z = torch.randn(2, n, width, generator=torch.Generator().manual_seed(0)).to(asked.device)
    e = Embeddings(z=z, h=z, target=None, index=index.to(asked.device))
    return plugin.to(asked.device), e, images.to(asked.device)
