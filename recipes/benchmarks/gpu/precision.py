"""Section `precision` of run.py: time and error by number format, of networks, many logits and a CLIP prior."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from gpu.jobs import Asked, Job, random_images, seconds_in_turns
from torch import Tensor

from sslkit import backbones, priors
from sslkit.layers.prototypes import predict_swapped

FORMATS = ("float32", "tf32", "bfloat16", "float16")
TEMPERATURE, TEACHER = 0.1, 0.04


def jobs(asked: Asked) -> dict[str, Job]:
    sizes = (4, 512) if asked.dry else (256, 65536)
    networks = ("narrow_resnet",) if asked.dry else ("resnet50", "vit_small_patch16_224")
    return {
        f"swapped prediction, {sizes[0]} images, {sizes[1]} prototypes | {asked.device.type}": lambda: logits(
            *sizes, asked
        ),
        f"clip prior | {asked.device.type}": lambda: clip(asked),
        **{f"{network} | {asked.device.type}": lambda network=network: student(network, asked) for network in networks},
    }


def student(network: str, asked: Asked) -> dict[str, dict[str, float]]:
    """Milliseconds of forward and backward of a network on 512 images of 224 px, by number format.

    Batch normalisation of bf16 runs in PyTorch's own kernels, of fp16 in cuDNN's.
    """
    size, n = (32, 8) if asked.dry else (224, 512)
    body = backbones.build(network, image_size=size, in_chans=3).to(asked.device).train()
    pixels = random_images(n, size, asked.device).float() / 255
    step = {"step": lambda: body(pixels).float().square().mean().backward()}
    repeats = {"rounds": 1, "each": 1} if asked.dry else {"rounds": 3, "each": 3}
    ms = {}
    for name in FORMATS[1:] if asked.on_gpu else ("float32", "bfloat16"):
        with as_format(name, asked):
            ms[name] = round(1000 * seconds_in_turns(step, asked.device, **repeats)["step"], 2)
    return {"ms": ms}


def logits(n: int, prototypes: int, asked: Asked, *, dim: int = 256) -> dict[str, dict[str, float]]:
    """Milliseconds forward and backward of DINO's loss with two full-size and eight local crops, and its errors.

    Errors: of the loss, relative, and of the gradient of z, relative to its norm; against float64 of the first 32
    images.
    """
    generator = torch.Generator().manual_seed(0)
    z = F.normalize(torch.randn(10, n, dim, generator=generator), dim=-1)
    weight = F.normalize(torch.randn(prototypes, dim, generator=generator), dim=1)
    few = slice(min(n, 32))
    want, slope = _loss(z[:, few].double().to(asked.device), weight.double().to(asked.device))
    z, weight = z.to(asked.device), weight.to(asked.device)
    results: dict[str, dict[str, float]] = {"ms": {}, "loss": {}, "gradient": {}}
    for name in FORMATS[:3] if asked.on_gpu else ("float32", "bfloat16"):
        with as_format(name, asked):
            got, gradient = _loss(z[:, few], weight)
            step: dict[str, Callable[[], object]] = {name: lambda: _loss(z, weight)}
            repeats = {"rounds": 1, "each": 1} if asked.dry else {"rounds": 3, "each": 3}
            results["ms"][name] = round(1000 * seconds_in_turns(step, asked.device, **repeats)[name], 2)
        results["loss"][name] = float(f"{abs(got - want) / abs(want):.1e}")
        results["gradient"][name] = float(f"{(gradient.double() - slope).norm() / slope.norm():.1e}")
    return results


def _loss(z: Tensor, weight: Tensor) -> tuple[float, Tensor]:
    z = z.detach().requires_grad_()
    with torch.no_grad():
        codes = F.softmax(z[:2] @ weight.T / TEACHER, dim=-1).to(z.dtype)
    loss = predict_swapped(codes, z, weight, TEMPERATURE)
    loss.backward()
    return loss.item(), z.grad


@contextmanager
def as_format(name: str, asked: Asked) -> Iterator[None]:
    """float32 without TF32, with it, or autocast to bf16 or fp16."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = name == "tf32"
    is_half = name in ("bfloat16", "float16")
    try:
        with torch.autocast(asked.device.type, getattr(torch, name) if is_half else None, enabled=is_half):
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


def clip(asked: Asked) -> dict[str, dict[str, float]]:
    """Images a second of ViT-B-32 with random weights as a prior, and the cosine of its features with float32's."""
    import open_clip

    name = "ViT-S-32" if asked.dry else "ViT-B-32"
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "random.pt"
        torch.save(open_clip.create_model(name).state_dict(), file)
        made = {form: priors.build(f"clip:{name}:{file}", precision=form) for form in priors.PRECISIONS}
    images = random_images(4 if asked.dry else 256, 224, asked.device)
    prior: dict[str, Callable[[], Tensor]] = {form: partial(form_prior, images) for form, form_prior in made.items()}
    features, other = (F.normalize(apply().double(), dim=1) for apply in prior.values())
    seconds = seconds_in_turns(prior, asked.device, rounds=1 if asked.dry else 3, each=1 if asked.dry else 3)
    return {
        "images_per_second": {name: round(len(images) / value, 1) for name, value in seconds.items()},
        "least cosine with float32": {"bfloat16": float(f"{(features * other).sum(1).min():.5f}")},
    }
