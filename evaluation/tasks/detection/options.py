"""Options of detection and of segmentation."""

from dataclasses import dataclass, replace

from evaluation.datasets import READ
from evaluation.features.extraction import LOADED
from evaluation.protocols.base import TUNED
from evaluation.tasks.detection import recipes
from evaluation.tasks.detection.datasets.boxes import EMPTY
from evaluation.tasks.detection.recipes import RECIPES
from evaluation.tuning import BEST, KEEP
from sslkit.models.detectors.body import TUNE
from sslkit.models.detectors.detector import ARCHITECTURES
from sslkit.options.settings import MOST, setting

SHARED = (*LOADED, *READ, *TUNED, "precision", "workers", "seed")  # options of all protocols that these obey


@dataclass(frozen=True, kw_only=True)
class Options:
    recipe: str | None = setting(None, f"data, task, schedule and trials of a published table: {', '.join(RECIPES)}")
    schedule: str | None = setting(
        None,
        "full (MoCo's for VOC, 1x for COCO), full_2x (COCO), short or smoke, which are marked as not comparable to "
        "published numbers; null: the recipe's, else full",
    )
    arch: str | None = setting(
        None, "c4, fpn, or vit_pyramid for a plain ViT; null: the recipe's, else c4", choices=ARCHITECTURES
    )
    trials: int | None = setting(
        None,
        "trained from the seeds seed, seed + 1, ...; MoCo's authors advise the mean of 5 on VOC; null: the recipe's, "
        "else 1",
        least=1,
        most=1000,
    )
    tune: str = setting("all", "all, or none: the backbone stays as it is", choices=TUNE)
    steps: int | None = setting(None, "null: the schedule's; so are the next two", least=1, most=MOST)
    batch_size: int | None = setting(None, "images a step, of all processes; the rate goes with it", least=1, most=MOST)
    lr: float | None = setting(None, "learning rate at that batch", above=0)
    keep: str = setting(
        BEST, "trained detectors that are kept as entries below out, to predict with: best, all, none", choices=KEEP
    )
    empty: str = setting(
        EMPTY[0],
        "training images without an object: skip (counted, as published), or keep (as background)",
        choices=EMPTY,
    )

    def resolve_recipe(self) -> "Options":
        """Return them with what the recipe or else the usual says of None. Raises UserError for an unknown recipe."""
        recipe, options = recipes.find_recipe(self.recipe), vars(self)
        return replace(self, **{name: recipe[name] for name in ("schedule", "arch", "trials") if options[name] is None})
