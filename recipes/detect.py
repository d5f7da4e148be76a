"""Detection and instance segmentation: Faster or Mask R-CNN on a backbone, trained and measured by AP.

python recipes/detect.py checkpoint=runs/zoo/NAME data=clipart_boxes schedule=smoke          (minutes on a CPU)
python recipes/detect.py checkpoint=runs/zoo/NAME data=coco:FOLDER schedule=short task=masks
python recipes/detect.py checkpoint=[runs/zoo/A,random:runs/zoo/A] data=clipart_boxes schedule=smoke trials=3
python recipes/detect.py checkpoint=runs/zoo/NAME recipe=paper_voc07 root=data               (5 trials, on a GPU)
torchrun --nproc-per-node=8 recipes/detect.py checkpoint=runs/zoo/NAME recipe=paper_coco root=data

Recipes: paper_voc07, paper_voc0712, paper_coco. The same command goes on where it was stopped. Every schedule but full
is marked as not comparable to published numbers. FOLDER holds train.json and test.json, written as COCO's; their
file_name is relative to FOLDER.
"""

from evaluation.judging.command_line import run_alone, settings_of

from evaluation.protocols.detection.options import Asked, Options, Place
from evaluation.protocols.detection.recipes import protocol_of

Settings = settings_of(Asked, Options, Place)

if __name__ == "__main__":
    run_alone(lambda config: protocol_of(config.pop("task"), config["recipe"]), Settings(), __doc__)
