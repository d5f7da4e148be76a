"""Small detectors and schedules for tests."""

from dataclasses import replace

from evaluation.tasks.detection.datasets.boxes import Boxes
from evaluation.tasks.detection.datasets.clipart_boxes import open_clipart_boxes
from evaluation.tasks.detection.schedules import Schedule, find_schedule
from sslkit.models.detectors.sizes import Sizes
from sslkit.models.loading import load
from sslkit.models.model import Model

SMALL = Sizes(
    sides=(96,),
    longest=192,
    anchors=(8, 16, 32, 64, 96),
    candidates=(100, 50),
    level_candidates=(100, 50),
    proposals=(30, 20),
    rois=8,
)


def narrow(in_chans: int = 3) -> Model:
    """A ResNet of basic blocks with a stem for small images."""
    return load("random:narrow_resnet", image_size=28, in_chans=in_chans)


def images(n: int = 8, split: str = "train") -> Boxes:
    """Clip art on photographs."""
    return open_clipart_boxes(split, seed=0).take(range(n))


def schedule(steps: int = 4, batch_size: int = 2) -> Schedule:
    return replace(find_schedule("smoke", "").change(steps, batch_size, 0.005), sizes=SMALL, precise=2)
