"""Options of action recognition."""

from collections.abc import Sequence
from dataclasses import dataclass

from evaluation.features.extraction import LOADED
from evaluation.protocols.base import TUNED
from evaluation.tasks.action.recipes import PROTOCOLS, RECIPES
from evaluation.tasks.action.runs import FEATURES
from sslkit.options.settings import MOST, setting

# Options of all protocols that this one obeys.
SHARED = (*LOADED, "root", "cache", "counts", "columns", "on_error", *TUNED, "precision", "workers", "seed")


@dataclass(frozen=True, kw_only=True)
class Options:
    protocol: str | None = setting(None, "linear or fine_tune; null: the recipe's, else linear", choices=PROTOCOLS)
    recipe: str | None = setting(None, f"{', '.join(RECIPES)}; null: paper_k400 for linear, else paper_ucf101")
    folds: int | Sequence[int] | None = setting(
        None, "official splits, as [1,2,3]; null: those of the recipe that the data have", least=1, most=MOST
    )
    epochs: int | None = setting(None, "null: the recipe's; so are the next four", least=1, most=MOST)
    batch_size: int | None = setting(None, "clips a step; a rate that is not given goes with it", least=1, most=MOST)
    lr: float | None = setting(None, "highest learning rate", above=0)
    weight_decay: float | None = setting(None, "added to the gradient, but for batch normalisation", least=0)
    dropout: float | None = setting(None, "in front of the linear layer", least=0, below=1)
    frames: int | None = setting(None, "of a clip; null: the network's", least=1, most=4096)
    stride: int | None = setting(
        None, "frames from one to the next; null: as pretrained, else 64 / frames", least=1, most=4096
    )
    clips: int = setting(10, "of a test video", least=1, most=MOST)
    crops: int = setting(3, "of a test clip: 1 or 3", least=1, most=3)
    rule: str = setting("slowfast", "where the test clips start: slowfast, slowfast_offset or endpoints")
    features: str = setting(
        "live",
        "live, or once: for the linear protocol on small sets ten clips of each video pass the backbone once, not "
        "augmented",
        choices=FEATURES,
    )
