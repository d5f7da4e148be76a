"""Pictures of detections: drawn whatever the images and classes are called."""

from dataclasses import replace
from pathlib import Path

import torch
from detectors import images
from PIL import Image

from evaluation.tasks.detection.pictures import draw_predictions


def test_names_with_dollars_are_no_formulas(tmp_path: Path) -> None:
    data = images(1)
    data = replace(data, ids=["img_$a_{$.jpg"], classes=tuple(f"$x_{{${name}" for name in data.classes))
    found = {"boxes": torch.tensor([[1.0, 2, 30, 40]]), "scores": torch.tensor([0.9]), "labels": torch.tensor([1])}
    draw_predictions(data, [found], tmp_path / "drawn.png", title="a $b_{$ model")
    with Image.open(tmp_path / "drawn.png") as picture:
        assert picture.width > 400
