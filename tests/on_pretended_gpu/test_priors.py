"""Every prior on a pretended GPU: its features are those on the CPU, and a second batch waits for nothing."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from contract import build
from gpu_contract import GPU, check, clean, images_of, trained
from pretended_device import Pretended

from sslkit import backbones, priors, zoo

TOWER = {"image_size": 32, "layers": 2, "width": 64, "patch_size": 8}
TEXT = {"context_length": 8, "vocab_size": 32, "width": 64, "heads": 1, "layers": 1}


def clip(folder: Path) -> str:
    open_clip = pytest.importorskip("open_clip")
    (folder / "smallest.json").write_text(json.dumps({"embed_dim": 24, "vision_cfg": TOWER, "text_cfg": TEXT}))
    open_clip.add_model_config(folder / "smallest.json")
    torch.save(open_clip.create_model("smallest").state_dict(), folder / "weights.pt")
    return f"clip:smallest:{folder / 'weights.pt'}"


def timm(folder: Path) -> str:
    from timm import create_model

    torch.save(create_model("resnet10t").state_dict(), folder / "weights.pt")
    return f"timm:resnet10t:{folder / 'weights.pt'}"


def entry(folder: Path) -> str:
    body = backbones.build("narrow_resnet", image_size=16, in_chans=3)
    own = {"name": "narrow_resnet", "lines": body.recipe.lines, "image_size": 16, "in_chans": 3}
    zoo.save(folder / "entry", body.export(), {"backbone": own, "normalize": {"mean": [0.3] * 3, "std": [0.4] * 3}})
    return f"zoo:{folder / 'entry'}"


def file(folder: Path) -> str:
    np.save(folder / "own.npy", np.random.default_rng(0).normal(size=(len(clean()), 7)).astype(np.float32))
    return f"features:{folder / 'own.npy'}"


SPECIFIED: dict[str, Callable[[Path], str]] = {"clip": clip, "timm": timm, "zoo": entry, "features": file}


@pytest.mark.filterwarnings("ignore:.*eta.*")
@pytest.mark.parametrize("name", [name for name in priors.names() if name != "epoch"])  # of anchors alone
def test_every_prior(name: str, tmp_path: Path) -> None:
    if name == "sift":
        pytest.importorskip("cv2")
    prior = SPECIFIED[name](tmp_path) if name in SPECIFIED else name
    own = {"prior": prior, "prior_size": 32 if name == "timm" else None}
    method = build("simsiam+dsa+guide", dsa={"eta": 2, **own}, guide=own)
    with Pretended() as gpu:
        method.to(GPU).prepare(clean())
    assert not gpu.faults, gpu.report()
    method.to("cpu")
    seen, terms = trained(method, images_of(method))
    check(seen)
    assert terms["loss"].isfinite()
    guide = method.regularizers["guide"].targets.prior
    if name not in ("features", "self"):  # which have none of other images
        images = torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
        with Pretended():
            found = guide(images.to(GPU)).cpu()
        assert torch.equal(found, guide(images))
