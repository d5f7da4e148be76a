"""Detection and instance segmentation: Faster or Mask R-CNN on a backbone, trained and judged by AP.

python recipes/detect.py checkpoint=runs/zoo/NAME data=clipart_boxes schedule=smoke          (minutes on a CPU)
python recipes/detect.py checkpoint=runs/zoo/NAME data=coco:FOLDER schedule=short task=masks
python recipes/detect.py checkpoint=[runs/zoo/A,random:runs/zoo/A] data=clipart_boxes schedule=smoke trials=3
python recipes/detect.py checkpoint=runs/zoo/NAME recipe=paper_voc07 root=data               (5 trials, on a GPU)
torchrun --nproc-per-node=8 recipes/detect.py checkpoint=runs/zoo/NAME recipe=paper_coco root=data

Recipes: paper_voc07, paper_voc0712, paper_coco. The same command goes on where it was stopped. Every schedule but full
is marked as not comparable to published numbers. FOLDER holds train.json and test.json, written as COCO's; their
file_name is relative to FOLDER.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch: spinning threads stall a shared machine

from dataclasses import dataclass
from typing import Any

from command import run_plain

from sslkit.settings import MOST_SEED, setting


@dataclass
class Settings:
    checkpoint: str | list[str] | None = setting(
        None, "zoo entry, random:ENTRY, timm:NAME:FILE, published:NAME:FILE, ..., or a list"
    )
    zoo: str | None = setting(None, "folder of zoo entries, instead of checkpoint")
    trust: str | list[str] | None = setting(
        None, "package.module:function, or a list: own code that a card may name and that is run"
    )
    data: str | None = setting(None, "clipart_boxes, coco:FOLDER, voc07, voc0712, voc0712_paper or coco2017")
    recipe: str | None = setting(None, "paper_voc07, paper_voc0712 or paper_coco: data, task, schedule and trials")
    task: str | None = setting(
        None, "boxes, or masks (instance segmentation); null: the recipe's, else boxes", choices=("boxes", "masks")
    )
    schedule: str | None = setting(None, "full, full_2x (COCO), short or smoke; null: the recipe's, else full")
    arch: str | None = setting(None, "c4, fpn, or vit_pyramid for a plain ViT; null: c4")
    trials: int | None = setting(None, "trained from as many seeds; null: the recipe's, else 1", least=1, most=1000)
    trainable: str = setting("full", "full, or frozen: the backbone stays as it is", choices=("full", "frozen"))
    steps: int | None = setting(None, "null: the schedule's; so are the next two", least=1, most=10**9)
    batch_size: int | None = setting(
        None, "images a step, of all processes; the rate goes with it", least=1, most=10**9
    )
    lr: float | None = setting(None, "learning rate at that batch", above=0)
    seed: int = setting(0, "of the first trial", least=0, most=MOST_SEED)
    precision: str = setting("float32", "float32 or bfloat16", choices=("float32", "bfloat16"))
    image_size: int | None = setting(
        None, "pixels, for random:NAME, whose stem depends on it; null: 224", least=1, most=4096
    )
    root: str = setting("data", "folder of the published data sets")
    counts: str = setting(
        "raise",
        "a published set with another number of images than published: raise, or warn",
        choices=("raise", "warn"),
    )
    out: str = setting("runs/evaluation", "folder of the results of what is no zoo entry")
    every: float = setting(60.0, "seconds between two checkpoints", least=0)
    device: str = setting("auto", "auto, cpu, cuda")
    workers: int = setting(0, "processes that read images, for each process that trains", least=0, most=256)
    progress: bool = setting(True, "bars on a terminal")


def main(config: dict[str, Any]) -> None:
    from evaluation.judging.detection import judge

    judge(**config)


if __name__ == "__main__":
    run_plain(main, Settings(), __doc__, {})
