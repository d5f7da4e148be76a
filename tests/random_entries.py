"""Zoo entries of random weights, whose cards name real pretraining data: what a test needs of a training."""

from pathlib import Path

import torch
from torch import nn

from sslkit import backbones, zoo
from sslkit.data.sources.named import open_images
from sslkit.zoo.classifier import SOFTMAX, Classifier
from sslkit.zoo.heads import Head

CLOTHES = open_images("fashion_mnist", split="train")


def made(folder: Path, name: str, source: str, *, seed: int = 0, head: Head | None = None, images: int = 300) -> Path:
    """An entry of random weights whose card names its data."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        body = backbones.build("narrow_resnet", image_size=28, in_chans=1)
    card = {
        "backbone": {"name": "narrow_resnet", "lines": body.recipe.lines, "image_size": 28, "in_chans": 1},
        "normalize": {"mean": [0.3], "std": [0.4]},
        "data": {"source": source, "images": images},
    }
    entry = zoo.save(folder / name, body.export(), card)
    if head is not None:
        entry.keep_head(head)
    return folder / name


def classifying(folder: Path, link: str = SOFTMAX, classes: tuple[str, ...] = ("cat", "dog", "=cow")) -> Path:
    """An entry of random weights with a classifier."""
    entry = zoo.ZooEntry.load(made(folder, "a", "digits"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = nn.Sequential(nn.Linear(128, len(classes))).eval()
        nn.init.normal_(layers[0].weight, std=3)
    entry.keep_classifier(Classifier(layers, classes, link, {"data": "digits", "made": "at random"}))
    return folder / "a"
