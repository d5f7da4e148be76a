"""Speed of a BYOL step, plain and with DSA, against the same step built from lightly's parts.

    python recipes/benchmarks/step_speed.py            (some five minutes; writes results/step_speed.json)

Embedded Fashion-MNIST, 128 images per step, narrow_resnet, AdamW, fp32, with one and with two threads. `same`: both
use the same two tensors of views, both networks are channels_last. `end to end`: from images, including views, each
with its own defaults (lightly: PIL images one by one, torch's memory layout; ours: the batch, channels_last). The
contestants alternate, so that other load slows all equally.
"""

import argparse
import copy
import datetime
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from machine import machine
from PIL import Image
from torch import Tensor, nn

import sslkit
from sslkit import backbones
from sslkit.training.data import normalization

RESULTS = Path(__file__).parent / "results" / "step_speed.json"
HEAD = {"hidden": 256, "dim": 64}
N = 128


class Lightly(nn.Module):
    """BYOL as in lightly's examples: one forward pass per view and network."""

    def __init__(self, *, channels_last: bool) -> None:
        super().__init__()
        from lightly.loss import NegativeCosineSimilarity
        from lightly.models.modules import BYOLPredictionHead, BYOLProjectionHead

        self.backbone = backbones.build("narrow_resnet", image_size=28, in_chans=1)
        if not channels_last:
            self.backbone.convolutional = False
            self.backbone.to(memory_format=torch.contiguous_format)
        self.projector = BYOLProjectionHead(self.backbone.width, HEAD["hidden"], HEAD["dim"])
        self.predictor = BYOLPredictionHead(HEAD["dim"], HEAD["hidden"], HEAD["dim"])
        self.teacher = copy.deepcopy(nn.ModuleList([self.backbone, self.projector])).requires_grad_(False)
        self.loss = NegativeCosineSimilarity()

    def forward(self, views: list[Tensor]) -> Tensor:
        p1, p2 = (self.predictor(self.projector(self.backbone(v))) for v in views)
        with torch.no_grad():
            t1, t2 = (self.teacher[1](self.teacher[0](v)) for v in views)
        return 2 * self.loss(p1, t2) + 2 * self.loss(p2, t1)

    def after_step(self) -> None:
        from lightly.models.utils import update_momentum

        update_momentum(self.backbone, self.teacher[0], m=0.99)
        update_momentum(self.projector, self.teacher[1], m=0.99)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", nargs="*", type=int, default=[1, 2])
    args = parser.parse_args()
    results = {"machine": machine(), "date": datetime.date.today().isoformat(), "images": N, "threads": {}}
    for threads in args.threads:
        torch.set_num_threads(threads)
        results["threads"][threads] = found = compare(args.repeats)
        print(f"{threads} thread{'s' if threads > 1 else ''}")
        for name, values in {**found["milliseconds"], **found["ratios"]}.items():
            print(f"  {name:<34} {values['median']:8.2f}  ({values['min']:.2f} to {values['max']:.2f})")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


def compare(repeats: int) -> dict[str, dict]:
    """Milliseconds of every contestant, and the ratios, by turn."""
    images = sslkit.open_images("fashion_mnist")
    batch = images.__getitems__(list(range(N)))
    times = take_turns(steps(images, batch["images"], batch["index"]), repeats)
    ratios = {
        "same: lightly / byol": ("same: lightly", "same: byol"),
        "same: byol+dsa / byol": ("same: byol+dsa", "same: byol"),
        "end to end: lightly / byol": ("end to end: lightly", "end to end: byol"),
        "end to end: lightly / byol+dsa": ("end to end: lightly", "end to end: byol+dsa"),
        "end to end: byol+dsa / byol": ("end to end: byol+dsa", "end to end: byol"),
    }
    return {
        "milliseconds": {k: summary([1e3 * t for t in v]) for k, v in times.items()},
        "ratios": {name: ratio(times, *pair) for name, pair in ratios.items()},
    }


def steps(images, pixels: Tensor, index: Tensor) -> dict[str, Callable[[], None]]:
    """Each contestant as a function that runs one complete step."""
    plain, dsa = (build(name, images) for name in ("byol", "byol+dsa"))
    peer, plain_peer = Lightly(channels_last=True), Lightly(channels_last=False)
    made = plain.make_views(pixels)
    fixed = [plain.normalized(v) for v in made]
    own_views, pictures = lightly_views(), [Image.fromarray(x[0].numpy()) for x in pixels]
    return {
        "same: lightly": step(peer, lambda: peer(fixed), peer.after_step),
        "same: byol": step(plain, lambda: from_views(plain, made, pixels, index), lambda: plain.after_step(0.5)),
        "same: byol+dsa": step(dsa, lambda: from_views(dsa, made, pixels, index), lambda: dsa.after_step(0.5)),
        "end to end: lightly": step(plain_peer, lambda: plain_peer(own_views(pictures)), plain_peer.after_step),
        "end to end: byol": step(plain, lambda: plain(pixels, index)["loss"], lambda: plain.after_step(0.5)),
        "end to end: byol+dsa": step(dsa, lambda: dsa(pixels, index)["loss"], lambda: dsa.after_step(0.5)),
    }


def build(name: str, images) -> sslkit.Method:
    method = sslkit.method(
        name, backbone="narrow_resnet", image_size=28, in_chans=1, objective=HEAD, normalize=normalization(images)
    )
    method.prepare(images)
    return method


def from_views(method: sslkit.Method, views: list[Tensor], pixels: Tensor, index: Tensor) -> Tensor:
    """Loss of our step from given views."""
    method.make_views = lambda images, aspect=None: views
    loss = method(pixels, index)["loss"]
    del method.make_views
    return loss


def lightly_views() -> Callable[[list[Image.Image]], list[Tensor]]:
    """lightly's BYOLTransform at 28 pixels without blur (like our recipe at this size) and without normalisation."""
    from lightly.transforms import BYOLTransform, BYOLView1Transform, BYOLView2Transform

    options = {"input_size": 28, "gaussian_blur": 0.0, "normalize": None}
    transform = BYOLTransform(BYOLView1Transform(**options), BYOLView2Transform(**options))

    def views(pictures: list[Image.Image]) -> list[Tensor]:
        made = [transform(picture) for picture in pictures]
        return [torch.stack([two[v] for two in made]) for v in range(2)]

    return views


def step(module: nn.Module, loss: Callable[[], Tensor], after: Callable[[], None]) -> Callable[[], None]:
    trained = [p for p in module.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3)

    def once() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
        after()

    return once


def take_turns(contestants: dict[str, Callable[[], None]], repeats: int) -> dict[str, list[float]]:
    """Seconds of each repeat of three steps, after one warm-up."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for repeat in range(repeats + 1):
        for name, once in contestants.items():
            start = time.perf_counter()
            for _ in range(3):
                once()
            if repeat:
                times[name].append((time.perf_counter() - start) / 3)
    return times


def ratio(times: dict[str, list[float]], above: str, below: str) -> dict[str, float]:
    return summary([a / b for a, b in zip(times[above], times[below], strict=True)])


def summary(values: list[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), 3),
        "min": round(min(values), 3),
        "max": round(max(values), 3),
    }


if __name__ == "__main__":
    main()
