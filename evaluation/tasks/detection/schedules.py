"""Training schedules of detectors: `full` is the published one, `short` and `smoke` are not comparable.

Sources of `full`: the public detection configuration of MoCo (He et al. 2020, arXiv 1911.05722) for VOC 07+12 and for
COCO's 2x; COCO's 1x (Mask R-CNN, detectron2) has half of it. No file with VOC 07's 9,000 steps was found: its drops
are assumed in proportion to 07+12's, which is noted in results. Drops divide the learning rate by 10.
"""

from dataclasses import dataclass, field, replace
from numbers import Integral

from sslkit.errors import UserError, format_value
from sslkit.models.detectors.sizes import Sizes
from sslkit.options.members import nearest

NAMES = ("full", "full_2x", "short", "smoke")
PUBLISHED_BATCH = 16  # images a step, for which the published rates are


@dataclass(frozen=True)
class Schedule:
    """A training schedule for one data set.

    steps: of the optimizer. drops: steps at which the learning rate falls to a tenth. warmup: steps of its linear rise.
    batch_size: images per step, of all processes together. lr: learning rate at that batch size. weight_decay: of all
    weights except those excluded by `make_optimizer`. sizes: of images, anchors and regions. precise: batches of the
    precise batch norm at the end.
    optimizer: "sgd", which becomes ViTDet's AdamW for a plain ViT, or "adamw" with the given lr for any network.
    published: the results it is comparable with, "" for none. masks: True if those are of Mask R-CNN.
    """

    name: str
    steps: int
    drops: tuple[int, ...]
    warmup: int
    sizes: Sizes = field(default_factory=Sizes)
    batch_size: int = PUBLISHED_BATCH
    lr: float = 0.02
    weight_decay: float = 1e-4
    precise: int = 200
    optimizer: str = "sgd"
    published: str = ""
    masks: bool = False

    def factor(self, step: int) -> float:
        """Factor of the learning rate at step 0 ... steps - 1: from 1/1000 to 1 over the warm-up, then the drops."""
        rise = 1.0 if step >= self.warmup else 0.001 + 0.999 * step / self.warmup
        return rise * 0.1 ** sum(step >= drop for drop in self.drops)

    def change(self, steps: int | None, batch_size: int | None, lr: float | None) -> "Schedule":
        """Copy with other values, None to keep one: drops scale with the steps, lr with the batch size.

        The warm-up keeps its length, but is at most half of the steps.

        Raises UserError for numbers out of range.
        """
        _check_numbers(steps, batch_size, lr)
        if (steps, batch_size, lr) == (None, None, None):
            return self
        steps, batch = steps or self.steps, batch_size or self.batch_size
        share = steps / self.steps
        name = f"{self.name}, {steps} steps" if steps != self.steps else f"{self.name}, changed"
        return replace(
            self,
            name=name,
            steps=steps,
            drops=tuple(round(drop * share) for drop in self.drops),
            warmup=min(self.warmup, steps // 2),
            batch_size=batch,
            lr=lr or self.lr * batch / self.batch_size,
            published="",
        )


_VOC_SIZES = Sizes(sides=tuple(range(480, 801, 32)))
_COCO_SIZES = Sizes(sides=tuple(range(640, 801, 32)))
_SMALL_SIZES = Sizes(
    sides=(128,),
    longest=256,
    anchors=(8, 16, 32, 64, 128),
    candidates=(1000, 500),
    level_candidates=(1000, 500),
    proposals=(200, 100),
    rois=32,
)
_FULL = {
    "voc07": Schedule(
        "full", 9000, (6750, 8250), 100, _VOC_SIZES, published="MoCo's 9,000 steps on VOC 07, drops assumed"
    ),
    "voc0712": Schedule("full", 24000, (18000, 22000), 100, _VOC_SIZES, published="VOC 07+12, MoCo's recipe"),
    "coco2017": Schedule("full", 90000, (60000, 80000), 1000, _COCO_SIZES, published="COCO 1x", masks=True),
}
_FULL["voc0712_paper"] = replace(_FULL["voc0712"], published="")
_TWICE = Schedule(
    "full_2x", 180000, (120000, 160000), 1000, _COCO_SIZES, published="COCO 2x, MoCo's recipe", masks=True
)
# AdamW, since from the published initial weights (standard deviation .01) SGD hardly trains a small network:
# after 200 steps on 8 images narrow_resnet had a training AP50 of 100 % with AdamW, 37 to 68 % with SGD.
_SMOKE = Schedule(
    "smoke", 200, (150, 180), 20, _SMALL_SIZES, batch_size=8, lr=3e-3, weight_decay=0.05, precise=10, optimizer="adamw"
)


def find_schedule(name: str, data: str) -> Schedule:
    """The schedule of a given name for a data set (`Boxes.name`).

    "full": as published for voc07, voc0712 and coco2017; other data sets get VOC 07+12's, not comparable with any.
    "full_2x": COCO's longer one. "short": a tenth of the steps of "full", all else the same. "smoke": 200 steps of 8
    images of 128 pixels, for a quick check on a CPU.
    Raises UserError for an unknown name, and for "full_2x" on a data set other than coco2017.
    """
    if name not in NAMES:
        raise UserError(f"there is no schedule {name!r}: {nearest(str(name), NAMES)}")
    if name == "smoke":
        return _SMOKE
    if name == "full_2x":
        if data != "coco2017":
            raise UserError(f"schedule=full_2x is for coco2017 only; for {data} use schedule=full")
        return _TWICE
    full = _FULL.get(data, replace(_FULL["voc0712"], published=""))
    if name == "full":
        return full
    short = full.change(full.steps // 10, None, None)
    return replace(short, name="short")


def _check_numbers(steps: int | None, batch_size: int | None, lr: float | None) -> None:
    for name, value in (("steps", steps), ("batch_size", batch_size)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, Integral) or value < 1):
            raise UserError(f"{name} must be a whole number, at least 1, got {format_value(value)}")
    if lr is not None and (isinstance(lr, bool) or not isinstance(lr, (int, float)) or not 0 < lr < float("inf")):
        raise UserError(f"lr must be a number above 0, got {format_value(lr)}")
