"""Entries with a detector of random weights: what a test needs of a training."""

from pathlib import Path

import torch
from detectors import SMALL, narrow

from evaluation.tuning.keeping import keep_network
from sslkit.models.detectors.detector import build_detector
from sslkit.models.detectors.kept import keep, split_state
from sslkit.models.loading import load

CLASSES = ["cat", "dog", "=cow"]


def detecting(folder: Path, arch: str = "c4", *, masks: bool = False, tune: str = "all", in_chans: int = 3):
    """Return the detector, in eval mode, of the entry that is written to `folder`."""
    vit = arch == "vit_pyramid"
    model = load("random:narrow_vit", image_size=32, in_chans=in_chans) if vit else narrow(in_chans)
    how = {"arch": arch, "masks": masks, "tune": tune, "sizes": SMALL, "seed": 0}
    detector = build_detector(model, len(CLASSES), **how).eval()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(1)
        for value in detector.state_dict().values():  # as after a training, the backbone's too
            value.add_(0.01 * torch.randn_like(value)) if value.is_floating_point() else value.add_(1)
        for name, value in detector.state_dict().items():
            value.clamp_(min=0.1) if name.endswith("running_var") else None
        detector.roi_heads.box_predictor.cls_score.weight.mul_(30)
    body, rest = split_state(detector, model.net)
    about = {"data": {"source": "clipart_boxes"}, "config": {}, "epochs": 1, "seed": 0}
    entry = keep_network(folder, model, body, **about)
    keep(entry, detector, rest, {"arch": arch, "classes": CLASSES, "data": "clipart_boxes"}, SMALL)
    return detector
