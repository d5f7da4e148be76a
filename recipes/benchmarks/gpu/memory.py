"""Section `memory` of run.py: GiB of a step in bf16 that PyTorch had in use at most, and what a dry run predicts."""

import torch
from gpu.jobs import Asked, Job, in_use, memory_of, random_images
from gpu.step import LARGE, whole

from sslkit.training.dry import predict_memory


def jobs(asked: Asked) -> dict[str, Job]:
    cases = {"resnet10t": ("byol",)} if asked.dry else LARGE
    return {
        f"{name} | {network}": lambda name=name, network=network: measure(name, network, asked)
        for network, methods in cases.items()
        for name in methods
    }


def measure(name: str, network: str, asked: Asked) -> dict[str, float]:
    """GiB of the third step, 0 on a CPU, and the prediction."""
    size, batch = (32, 8) if asked.dry else (224, 256)
    torch.manual_seed(0)
    images, held = random_images(batch, size, asked.device), in_use(asked.device)
    gib = memory_of(whole(name, network, images), asked.device, held)
    return {"batch": batch, "gib": gib, "predicted_gib": round(predict_memory(name, network, size, batch), 2)}
