"""Section `step` of run.py: images a second and memory of whole steps, in turns with what bounds them from below."""

import copy
from dataclasses import dataclass
from functools import partial

import torch
from gpu.jobs import Asked, Job, Step, half, in_memory, in_use, memory_of, random_images, seconds_in_turns
from torch import Tensor, nn

import sslkit
from sslkit import backbones
from sslkit.runtime.compiling import GRAPHS, compile_function
from sslkit.training.config import OptimizerConfig
from sslkit.training.optimizers import make_optimizer
from sslkit.training.step import parts_to_compile

LARGE = {
    "resnet50": ("byol", "byol+dsa", "byol+guide", "simclr", "barlow_twins"),
    "vit_small_patch16_224": ("barlow_twins", "byol", "simclr", "dino", "mae"),
}
BESIDE = ("student", "student and teacher", "lightly's byol, views given")


@dataclass(frozen=True)
class Case:
    """Contestants that take turns on `batch` uint8 images of `size` pixels that are on the device.

    ways: a method, or `student`, forward and backward of the network on two views in one pass, and its optimiser;
    `student and teacher`, the same and the forward of a copy; lightly's BYOL, from its modules on given views, a pass
    for each view, as in its examples. compiled, graphs: as `trainer.compile` has it, true and reduce-overhead.
    """

    network: str
    ways: tuple[str, ...]
    size: int = 224
    batch: int = 256
    rounds: int = 3
    each: int = 4


CASES = {network: Case(network, (*BESIDE, *methods)) for network, methods in LARGE.items()}
CASES |= {
    f"{network}, compiled": Case(network, ("student", "student, compiled", name, f"{name}, compiled"))
    for network, name in {"resnet50": "byol", "vit_small_patch16_224": "barlow_twins"}.items()
}
CASES |= {  # whose launches may take longer than their arithmetic
    network: Case(network, ("student", "simclr", "simclr, compiled", "simclr, graphs"), 32, rounds=5, each=20)
    for network in ("narrow_resnet", "narrow_vit")
}
DRY = {"resnet10t": Case("resnet10t", (*BESIDE, "byol", "simclr"), 32, 8, rounds=1, each=1)}


def jobs(asked: Asked) -> dict[str, Job]:
    return {name: partial(measure, case, asked) for name, case in (DRY if asked.dry else CASES).items()}


def measure(case: Case, asked: Asked) -> dict[str, object]:
    """Images a second, and the GiB that it holds at most in a step, of every contestant."""
    torch.manual_seed(0)
    images = random_images(case.batch, case.size, asked.device)
    steps, gib = {}, {}
    for way in case.ways:
        held = in_use(asked.device)
        steps[way] = built(way, case.network, images)
        gib[way] = memory_of(steps[way], asked.device, held)
    seconds = seconds_in_turns(steps, asked.device, rounds=case.rounds, each=case.each)
    rates = {name: round(case.batch / value, 1) for name, value in seconds.items()}
    return {"rates": rates, "gib": gib, "batch": case.batch}


def built(way: str, network: str, images: Tensor) -> Step:
    """The step of a contestant, by its name in `Case.ways`."""
    name, _, how = way.partition(", ")
    compile_as = {"compiled": True, "graphs": GRAPHS}.get(how, False)
    if name.startswith("lightly"):
        return lightly(network, images)
    if name.startswith("student"):
        return bare(network, images, teacher=name.endswith("teacher"), compile_as=compile_as)
    return whole(name, network, images, compile_as=compile_as)


def whole(name: str, network: str, images: Tensor, *, compile_as: bool | str = False) -> Step:
    """A training step with everything: views, losses, teacher, optimiser. compile_as: the run's `trainer.compile`."""
    index = torch.arange(len(images), device=images.device)
    method = sslkit.method(name, backbone=network, image_size=images.shape[-1]).to(images.device).train()
    method.prepare(in_memory(images))
    optimizer = make_optimizer(method, OptimizerConfig(name="adamw"), 1e-4)
    method.compiled_views = bool(compile_as)
    compile_networks(method, compile_as)

    def step() -> None:
        if compile_as == GRAPHS:
            torch.compiler.cudagraph_mark_step_begin()
        method.shares.steps = 1  # no step in which the shares are measured
        with half(images.device):
            loss = method(images, index)["loss"]
        update(loss, optimizer)
        method.after_step(0.5)

    return step


def compile_networks(module: nn.Module, compile_as: bool | str) -> None:
    for owner, name in parts_to_compile(module) if compile_as else ():
        setattr(owner, name, compile_function(getattr(owner, name), graphs=compile_as == GRAPHS))


def bare(network: str, images: Tensor, *, teacher: bool, compile_as: bool | str = False) -> Step:
    body = backbones.build(network, image_size=images.shape[-1], in_chans=3).to(images.device).train()
    slow = copy.deepcopy(body).requires_grad_(False) if teacher else None
    compile_networks(body, compile_as)
    optimizer = torch.optim.AdamW(body.parameters(), 1e-4, fused=images.is_cuda)
    pixels = (images.float() / 255).repeat(2, 1, 1, 1)

    def step() -> None:
        with half(images.device):
            h = body(pixels)
            if slow is not None:
                with torch.no_grad():
                    slow(pixels)
        update(h.float().square().mean(), optimizer)

    return step


def lightly(network: str, images: Tensor) -> Step:
    from lightly.loss import NegativeCosineSimilarity
    from lightly.models.modules import BYOLPredictionHead, BYOLProjectionHead
    from lightly.models.utils import update_momentum

    body = backbones.build(network, image_size=images.shape[-1], in_chans=3)
    student = nn.Sequential(body, BYOLProjectionHead(body.width, 4096, 256)).to(images.device)
    predictor = BYOLPredictionHead(256, 4096, 256).to(images.device)
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = torch.optim.AdamW([*student.parameters(), *predictor.parameters()], 1e-4, fused=images.is_cuda)
    loss_of, views = NegativeCosineSimilarity(), [images.float() / 255, images.flip(3).float() / 255]

    def step() -> None:
        with half(images.device):
            predicted = [predictor(student(view)) for view in views]
            with torch.no_grad():
                targets = [teacher(view) for view in views]
            loss = loss_of(predicted[0], targets[1]) + loss_of(predicted[1], targets[0])
        update(loss, optimizer)
        update_momentum(student, teacher, m=0.99)

    return step


def update(loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
