"""Section `step` of run.py: images a second and memory of whole steps, in turns with what bounds them from below."""

import copy
from collections.abc import Callable, Sequence

import torch
from gpu.jobs import Asked, Few, Job, Step, half, in_use, memory_of, random_images, seconds_in_turns
from torch import Tensor, nn

import sslkit
from sslkit import backbones
from sslkit.runtime.compiling import GRAPHS
from sslkit.runtime.compiling import compiled as compiled_function
from sslkit.training.config import OptimizerConfig
from sslkit.training.step import compiled_parts, make_optimizer

LARGE = {
    "resnet50": ("byol", "byol+dsa", "byol+guide", "simclr", "barlow_twins"),
    "vit_small_patch16_224": ("barlow_twins", "byol", "simclr", "dino", "mae"),
}
COMPILED = {"resnet50": "byol", "vit_small_patch16_224": "barlow_twins"}
NARROW = ("narrow_resnet", "narrow_vit")


Contestants = dict[str, tuple[Step, float]]  # steps and their GiB by name


def jobs(asked: Asked) -> dict[str, Job]:
    if asked.dry:
        tiny = contestants("resnet10t", ("byol", "simclr"), asked, size=32, batch=8)
        return {"resnet10t": lambda: measured(tiny, 8, asked, rounds=1, each=1)}
    found: dict[str, Job] = {
        network: lambda network=network, methods=methods: measured(
            contestants(network, methods, asked, size=224, batch=256), 256, asked, rounds=3, each=4
        )
        for network, methods in LARGE.items()
    }
    found |= {
        f"{network}, compiled": lambda network=network, name=name: measured(
            compiled(name, network, asked), 256, asked, rounds=3, each=4
        )
        for network, name in COMPILED.items()
    }
    found |= {
        network: lambda network=network: measured(narrow(network, asked), 256, asked, rounds=5, each=20)
        for network in NARROW
    }
    return found


def measured(steps: Contestants, batch: int, asked: Asked, *, rounds: int, each: int) -> dict[str, object]:
    """Images a second, and GiB, of every contestant."""
    seconds = seconds_in_turns(
        {name: step for name, (step, _) in steps.items()}, asked.device, rounds=rounds, each=each
    )
    rates = {name: round(batch / value, 1) for name, value in seconds.items()}
    return {"rates": rates, "gib": {name: gib for name, (_, gib) in steps.items()}, "batch": batch}


def contestants(network: str, methods: Sequence[str], asked: Asked, *, size: int, batch: int) -> Contestants:
    """Steps on `batch` uint8 images that are on the device, and their GiB.

    student: forward and backward of the network on two views in one pass, and its optimiser. student and teacher: the
    same, and the forward of a copy. lightly: BYOL from its modules on given views, a pass for each view, as in its
    examples.
    """
    torch.manual_seed(0)
    images = random_images(batch, size, asked.device)
    ways = {
        "student": lambda: bare(network, images, teacher=False),
        "student and teacher": lambda: bare(network, images, teacher=True),
        "lightly's byol, views given": lambda: lightly(network, images),
    }
    ways |= {name: lambda name=name: whole(name, network, images, asked) for name in methods}
    return built(ways, asked.device)


def compiled(name: str, network: str, asked: Asked, *, size: int = 224, batch: int = 256) -> Contestants:
    """The student alone and a method, each as it is and as `trainer.compile` has it: networks, and views."""
    torch.manual_seed(0)
    images = random_images(batch, size, asked.device)
    ways = {
        "student": lambda: bare(network, images, teacher=False),
        "student, compiled": lambda: bare(network, images, teacher=False, compiled=True),
        name: lambda: whole(name, network, images, asked),
        f"{name}, compiled": lambda: whole(name, network, images, asked, compile_as=True),
    }
    return built(ways, asked.device)


def built(ways: dict[str, Callable[[], Step]], device: torch.device) -> Contestants:
    """Each contestant and what it holds at most in a step."""
    found = {}
    for name, build in ways.items():
        held = in_use(device)
        step = build()
        found[name] = step, memory_of(step, device, held)
    return found


def narrow(network: str, asked: Asked, *, size: int = 32, batch: int = 256) -> Contestants:
    """Steps of a small network, whose launches may take longer than its arithmetic.

    compiled, graphs: as `trainer.compile` has it, true and reduce-overhead.
    """
    torch.manual_seed(0)
    images = random_images(batch, size, asked.device)
    ways = {"student": lambda: bare(network, images, teacher=False)}
    for name, how in {"simclr": False, "simclr, compiled": True, "simclr, graphs": GRAPHS}.items():
        ways[name] = lambda how=how: whole("simclr", network, images, asked, compile_as=how)
    return built(ways, asked.device)


def whole(name: str, network: str, images: Tensor, asked: Asked, *, compile_as: bool | str = False) -> Step:
    """A training step with everything: views, losses, teacher, optimiser. compile_as: the run's `trainer.compile`."""
    index = torch.arange(len(images), device=images.device)
    method = sslkit.method(name, backbone=network, image_size=images.shape[-1]).to(images.device).train()
    method.prepare(Few(images.cpu(), index.cpu()))
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
    for owner, name in compiled_parts(module) if compile_as else ():
        setattr(owner, name, compiled_function(getattr(owner, name), graphs=compile_as == GRAPHS))


def bare(network: str, images: Tensor, *, teacher: bool, compiled: bool = False) -> Step:
    body = backbones.build(network, image_size=images.shape[-1], in_chans=3).to(images.device).train()
    slow = copy.deepcopy(body).requires_grad_(False) if teacher else None
    compile_networks(body, compiled)
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
