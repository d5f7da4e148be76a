"""From the bytes of real JPEGs to features: every export, in its own library, as it was evaluated."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from photographs import FIVE, write_five
from PIL import Image

import evaluation
from sslkit import zoo
from sslkit.zoo import exporting

ONE_THREAD = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
SIZES = [96, pytest.param(72, marks=pytest.mark.slow), pytest.param(40, marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_five(tmp_path_factory.mktemp("files") / "five")


def judged(entry: Path, images: Path) -> torch.Tensor:
    """The features (5, D) that the evaluation uses."""
    features = evaluation.extract(str(entry), str(images), "all", cache=None, progress=False)
    assert features.ids.tolist() == list(FIVE)
    return torch.tensor(features.x)


def by_the_lines(path: Path, images: Path) -> torch.Tensor:
    """The features that a person gets who pastes the lines of an export."""
    scope: dict = {}
    exec("\n".join(exporting.lines(path)), scope)
    net, read = scope["net"], scope["read"]
    pictures = [read(images / name) for name in FIVE]
    if hasattr(net, "run"):
        return torch.tensor(np.concatenate([net.run(None, {"images": one})[0] for one in pictures]))
    with torch.no_grad():
        return torch.cat([net(one) for one in pictures])


def cosines(one: torch.Tensor, other: torch.Tensor) -> list[float]:
    """Of each row less the mean of all: features of random networks are alike."""
    centre = other.mean(0)
    return torch.cosine_similarity(one - centre, other - centre).tolist()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("to", exporting.names())
def test_an_export_gives_the_features_that_were_evaluated(to: str, size: int, entry_of, five: Path) -> None:
    entry = entry_of("resnet18", size)
    assert min(cosines(by_the_lines(zoo.export(entry, to=to), five), judged(entry.folder, five))) > 0.9999


@pytest.mark.parametrize(("backbone", "size", "channels"), [("resnet18", 96, 1), ("vit_tiny_patch16_224", 96, 3)])
def test_the_lines_of_a_card_give_them_too(backbone, size, channels, entry_of, five: Path, monkeypatch) -> None:
    from sslkit.zoo.entry import preprocessing

    entry = entry_of(backbone, size, channels)
    monkeypatch.chdir(entry.folder)
    scope: dict = {}
    exec("\n".join(zoo.load_lines(entry.card["backbone"]["lines"], preprocessing(entry.card), range=None)), scope)
    with torch.no_grad():
        features = torch.cat([scope["net"](scope["read"](five / name)) for name in FIVE])
    assert min(cosines(features, judged(entry.folder, five))) > 0.9999


@pytest.mark.slow
def test_no_library_needs_sslkit(entry_of, five: Path, tmp_path: Path) -> None:
    entry = entry_of("resnet18", 96)
    script = "import sys\nsys.modules.update({'sslkit': None, 'evaluation': None})\nimport numpy\n"
    for to in exporting.names():
        script += "\n".join(exporting.lines(zoo.export(entry, to=to))) + "\n"
        script += "run = (lambda x: net.run(None, {'images': x})[0]) if hasattr(net, 'run') else net.forward\n"
        script += f"rows = [numpy.asarray(getattr(y := run(read(f'{five}/{{name}}')), 'data', y)) for name in {FIVE}]\n"
        script += f"numpy.save({str(tmp_path / to)!r}, numpy.concatenate(rows))\n"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=os.environ | ONE_THREAD)
    assert done.returncode == 0, done.stderr
    expected = judged(entry.folder, five)
    for to in exporting.names():
        assert min(cosines(torch.from_numpy(np.load(tmp_path / f"{to}.npy")), expected)) > 0.9999, to


@pytest.mark.slow
@pytest.mark.parametrize(("backbone", "size"), [("resnet18", 96), ("vit_tiny_patch16_224", 96)])
def test_transformers_gives_them_too(backbone: str, size: int, entry_of, five: Path) -> None:
    transformers = pytest.importorskip("transformers")
    entry = entry_of(backbone, size)
    path = zoo.export(entry, to="hf")
    net, prepare = transformers.AutoModel.from_pretrained(path), transformers.AutoImageProcessor.from_pretrained(path)
    pictures = [exif_upright(five / name) for name in FIVE]
    with torch.no_grad():
        features = torch.cat([net.eval()(**prepare(one, return_tensors="pt")).pooler_output for one in pictures])
    assert min(cosines(features, judged(entry.folder, five))) > 0.9999


@pytest.mark.slow
def test_transformers_refuses_a_changed_stem(entry_of) -> None:
    transformers = pytest.importorskip("transformers")
    with pytest.raises((ImportError, RuntimeError), match=r"resnet18, its stem changed, see README\.md"):
        transformers.AutoModel.from_pretrained(zoo.export(entry_of("resnet18", 40), to="hf"))


@cache
def exif_upright(path: Path) -> Image.Image:
    from PIL import ImageOps

    return ImageOps.exif_transpose(Image.open(path)).convert("RGB")
