"""Options of the runs that tune the models of a zoo, for a ground truth and for a choice."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evaluation.features.checks import as_list
from evaluation.features.extraction import LABELLED, LOADED
from evaluation.tuning import BEST, KEEP
from evaluation.tuning.optimizers import OPTIMIZERS
from sslkit.options.settings import MOST, setting

SHARED = (*LOADED, *LABELLED, "mirror", "precision", "device", "progress")  # options of all commands that both obey


@dataclass(frozen=True, kw_only=True)
class Runs:
    """The options of every fine-tuning run of a ground truth or a choice."""

    max_images: int | None = setting(
        2000, "training images of each task, the same number of each class; null: all", least=2, most=MOST
    )
    optimizer: str = setting("adamw", "adamw or sgd", choices=OPTIMIZERS)
    batch_size: int = setting(32, "images per step", least=1, most=MOST)
    crop: Sequence[float] = setting(
        (0.5, 1.0), "smallest and largest share of the image's area in a random crop", above=0, most=1
    )
    workers: int = setting(1, "processes for the runs of a model, which share the threads", least=1, most=256)
    keep: str = setting(
        BEST, "tuned models that are kept as entries below out, to predict with: best, all, none", choices=KEEP
    )

    def how(self, precision: str) -> dict[str, Any]:
        """Return the options of `fine_tune` that one run has, beside its steps."""
        return {"batch_size": self.batch_size, "crop": tuple(as_list("crop", self.crop)), "precision": precision}
