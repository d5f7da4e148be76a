"""Section `dsa` of run.py: time and memory of DSA's terms by the number of images in a step."""

import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import torch
from gpu.fast import Few, bare, rates, wait

import sslkit
from sslkit.embeddings import Embeddings
from sslkit.runtime.context import Runtime

SIZES = (512, 2048, 8192)
WIDTH, SIDE = 256, 32  # of BYOL's projections, and of the images that the prior reads


def costs(
    runtime: Runtime, *, sizes: Sequence[int] = SIZES, repeats: int = 20, width: int = WIDTH
) -> dict[int, dict[str, float]]:
    """Milliseconds of DSA's terms and their gradient, and MiB that they take beyond their input, by images."""
    found = {}
    for n in sizes:
        plugin, e, images = prepared(n, width, runtime)
        e.z.requires_grad_()

        def step(plugin: Any = plugin, e: Embeddings = e, images: torch.Tensor = images) -> None:
            sum(plugin.terms(e, images).values()).backward()

        step()
        wait(runtime)
        before = _memory(runtime)
        seconds = []
        for _ in range(repeats):
            start = time.perf_counter()
            step()
            wait(runtime)
            seconds.append(time.perf_counter() - start)
        found[n] = {"ms": round(1000 * median(seconds), 3), "mib": round((_peak(runtime) - before) / 2**20, 1)}
    return found


def prepared(n: int, width: int, runtime: Runtime) -> tuple[Any, Embeddings, torch.Tensor]:
    """DSA that has read n random images, and a step of them all: two views, z (2, n, width)."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (n, 3, SIDE, SIDE), dtype=torch.uint8, generator=generator)
    index = torch.arange(n)
    plugin = sslkit.regularizers.find("dsa")(dim=width).train()
    plugin.prepare(Few(images, index))
    z = torch.randn(2, n, width, generator=generator).to(runtime.device)
    return (
        plugin.to(runtime.device),
        Embeddings(z=z, h=z, target=None, index=index.to(runtime.device)),
        images.to(runtime.device),
    )


def network_ms(network: str, runtime: Runtime, *, size: int = 224, batch: int = 256) -> float:
    """Milliseconds per image of the bare network's forward and backward of two views."""
    images = torch.randint(0, 256, (batch, 3, size, size), dtype=torch.uint8).to(runtime.device)
    return 1000 / rates({"bare": bare(network, images)}, batch, runtime, rounds=5, each=5)["bare"]


def _memory(runtime: Runtime) -> int:
    if runtime.device.type != "cuda":
        return 0
    torch.cuda.reset_peak_memory_stats(runtime.device)
    return torch.cuda.memory_allocated(runtime.device)


def _peak(runtime: Runtime) -> int:
    return torch.cuda.max_memory_allocated(runtime.device) if runtime.device.type == "cuda" else 0
