"""Detection and instance segmentation: Faster or Mask R-CNN on a backbone, trained and measured by AP.

python recipes/detect.py checkpoint=runs/zoo/NAME data=clipart_boxes schedule=smoke          (minutes on a CPU)
python recipes/detect.py checkpoint=runs/zoo/NAME data=coco:FOLDER schedule=short task=masks
python recipes/detect.py checkpoint=[runs/zoo/A,random:runs/zoo/A] data=clipart_boxes schedule=smoke trials=3
python recipes/detect.py checkpoint=runs/zoo/NAME recipe=paper_voc07 root=data               (5 trials, on a GPU)
torchrun --nproc-per-node=8 recipes/detect.py checkpoint=runs/zoo/NAME recipe=paper_coco root=data

Recipes: paper_voc07, paper_voc0712, paper_coco. The same command goes on where it was stopped. Every schedule but full
is marked as not comparable to published numbers. FOLDER holds train.json and test.json, written as COCO's; their
file_name is relative to FOLDER. The detector is kept as an entry: predict.py tells with it the boxes of other images.
"""

from dataclasses import dataclass

from evaluation.judging.command_line import Output, Subjects, run_alone, settings_of

from evaluation.tasks.detection.options import SHARED, Options
from evaluation.tasks.detection.recipes import TASKS, protocol_of
from sslkit.options.settings import setting


@dataclass
class Data(Subjects):
    data: str | None = setting(None, "clipart_boxes, coco:FOLDER, voc07, voc0712, voc0712_paper or coco2017")
    task: str | None = setting(
        None, "boxes, or masks (instance segmentation); null: the recipe's, else boxes", choices=tuple(TASKS)
    )


SETTINGS = settings_of(Data, Options, Output, shared=SHARED)

if __name__ == "__main__":
    run_alone(lambda config: protocol_of(config.pop("task"), config["recipe"]), SETTINGS, __doc__)
