"""A short run of an objective with a plug-in, step by step, for benchmarks that look into the steps.

Embedded Fashion-MNIST, batches of 128 images (MAE: 32), the settings of objectives.py, AdamW with a warm-up of 30 steps
and a linear decay, seed 0.
"""

from collections.abc import Iterator

import torch
from objectives import BATCH, best, settings
from torch import Tensor

import sslkit

WARMUP = 30


def steps(name: str, plugin: str, count: int) -> Iterator[tuple[int, sslkit.Method, dict[str, Tensor]]]:
    """Yield (step, method, the step's terms) before each update; the gradients of the terms may be asked for."""
    images = sslkit.open_images("fashion_mnist")
    method = sslkit.method(f"{name}+{plugin}", image_size=28, in_chans=1, normalize=((0.5,), (0.25,)), **settings(name))
    method.prepare(images)
    peak, size = best(name)["lr"], BATCH.get(name, 128)
    optimizer = torch.optim.AdamW([p for p in method.parameters() if p.requires_grad], peak)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    for step in range(count):
        optimizer.param_groups[0]["lr"] = peak * min((step + 1) / WARMUP, 1 - step / count)
        batch = images.__getitems__(order[torch.arange(step * size, (step + 1) * size) % len(order)].tolist())
        labels = {"labels": batch["label"]} if method.objective.needs_labels else {}
        terms = method(batch["images"], batch["index"], **labels)
        yield step, method, terms
        optimizer.zero_grad()
        terms["loss"].backward()
        optimizer.step()
        method.after_step((step + 1) / count)
