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
from evaluating import option

from evaluation.protocols.detection.options import Options, Place
from sslkit.settings import setting


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
    trials: int | None = option(
        Options, "trials", "trained from as many seeds; null: the recipe's, else 1", default=None
    )
    trainable: str = option(Options, "trainable", "full, or frozen: the backbone stays as it is")
    steps: int | None = option(Options, "steps", "null: the schedule's; so are the next two")
    batch_size: int | None = option(Options, "batch_size", "images a step, of all processes; the rate goes with it")
    lr: float | None = option(Options, "lr", "learning rate at that batch")
    seed: int = option(Place, "seed", "of the first trial")
    precision: str = option(Place, "precision", "float32 or bfloat16")
    image_size: int | None = setting(
        None, "pixels, for random:NAME, whose stem depends on it; null: 224", least=1, most=4096
    )
    root: str = option(Place, "root", "folder of the published data sets")
    counts: str = option(
        Place, "counts", "a published set with another number of images than published: raise, or warn"
    )
    out: str = setting("runs/evaluation", "folder of the results of what is no zoo entry")
    every: float = option(Place, "every", "seconds between two checkpoints")
    device: str = option(Place, "device", "auto, cpu, cuda")
    workers: int = option(Place, "workers", "processes that read images, for each process that trains")
    progress: bool = option(Place, "progress", "bars on a terminal")


def main(config: dict[str, Any]) -> None:
    from evaluation.judging.detection import judge

    judge(**config)


if __name__ == "__main__":
    run_plain(main, Settings(), __doc__, {})
