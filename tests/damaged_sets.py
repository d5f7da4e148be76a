"""Small sets of films and of boxes, and trainings that were stopped in the middle: what the fuzz test damages."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fuzzing import Kind, Reached
from PIL import Image

from sslkit.data.sources.named import open_images
from sslkit.runtime.context import Runtime


def films(root: Path) -> list[Kind]:
    """Films that pretraining and action recognition read; damaged ones are left out, and named where all are needed."""
    pytest.importorskip("av")
    from motion_films import write_motion, write_motions

    from evaluation.tasks.action.crops import Sizes
    from evaluation.tasks.action.datasets import open_films
    from evaluation.tasks.action.films import survey
    from evaluation.tasks.action.reading import ClipShape, TrainingClips
    from sslkit.data.video.clips import open_videos

    for number in range(3):
        write_motion(root / "flat" / f"{number}.mp4", frames=9, seed=number)
    write_motions(root / "set", train=2, test=1)
    listed = root / "list.csv"
    listed.write_text("video,label\n" + "".join(f"flat/{number}.mp4,{number}\n" for number in range(3)))

    def pretrained(source: Path = root / "flat") -> None:
        opened = open_videos(source, image_size=16, frames=4, cache=None)
        opened.__getitems__(list(range(len(opened))))

    def judged() -> None:
        clips = TrainingClips(
            survey(open_films(f"video:{root / 'set'}", "train"), on_error="skip"),
            ClipShape(4, 2, Sizes.for_size(16)),
            seed=0,
        )
        for row in range(len(clips)):
            clips.__getitems__([(0, row)])

    return [
        Kind("films", tuple(sorted((root / "flat").iterdir())), pretrained),
        Kind("films of a list", (listed,), lambda: pretrained(listed)),
        Kind("films of classes", tuple(sorted((root / "set" / "train").rglob("*.mp4"))), judged),
    ]


def coco(root: Path) -> list[Kind]:
    """A set of the user's own in COCO's form, with masks."""
    pytest.importorskip("faster_coco_eval")
    from evaluation.tasks.detection.datasets.clipart_boxes import CLASSES, open_clipart_boxes
    from evaluation.tasks.detection.datasets.run_lengths import compress
    from evaluation.tasks.detection.datasets.sources import open_boxes

    data = open_clipart_boxes("test", seed=0)
    (root / "images").mkdir(parents=True)
    for split, rows in (("train", range(3)), ("test", range(3, 5))):
        content: dict[str, Any] = {"images": [], "annotations": []}
        content["categories"] = [{"id": number, "name": name} for number, name in enumerate(CLASSES)]
        for row in rows:
            pixels, target = data[row]
            Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(root / "images" / f"{row}.png")
            height, width = pixels.shape[1:]
            named = {"id": row, "file_name": f"images/{row}.png", "height": height, "width": width}
            content["images"].append(named)
            content["annotations"] += [
                {
                    "id": 100 * row + k,
                    "image_id": row,
                    "category_id": int(target["labels"][k]) - 1,
                    "bbox": [x0, y0, x1 - x0, y1 - y0],
                    "area": float(target["area"][k]),
                    "iscrowd": 0,
                    "segmentation": compress(target["masks"][k].numpy()),
                }
                for k, (x0, y0, x1, y1) in enumerate(target["boxes"].tolist())
            ]
        (root / f"{split}.json").write_text(json.dumps(content))

    def read() -> None:
        for split in ("train", "test"):
            opened = open_boxes(f"coco:{root}", split)
            for row in range(len(opened)):
                opened[row]

    return [Kind("coco", (root / "train.json", *sorted((root / "images").iterdir())), read)]


def voc(root: Path) -> list[Kind]:
    """VOC 2007 with four images where the published set has 5,011."""
    from evaluation.tasks.detection.datasets import voc as published
    from evaluation.tasks.detection.datasets.sources import open_boxes
    from sslkit.data.published.voc07 import CLASSES

    base = root / "VOCdevkit" / "VOC2007"
    for folder in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (base / folder).mkdir(parents=True)
    pixels = open_images("clipart").__getitems__(list(range(4)))["images"].permute(0, 2, 3, 1).numpy()
    for row, image in enumerate(pixels):
        height, width = image.shape[:2]
        Image.fromarray(image).save(base / "JPEGImages" / f"00000{row}.jpg")
        size = f"<size><width>{width}</width><height>{height}</height><depth>3</depth></size>"
        box = f"<xmin>2</xmin><ymin>3</ymin><xmax>{width - 1}</xmax><ymax>{height - 2}</ymax>"
        thing = f"<object><name>{CLASSES[row]}</name><difficult>0</difficult><bndbox>{box}</bndbox></object>"
        (base / "Annotations" / f"00000{row}.xml").write_text(f"<annotation>{size}{thing}</annotation>")
    names = base / "ImageSets" / "Main" / "trainval.txt"
    names.write_text("".join(f"00000{row}\n" for row in range(4)))

    def read() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(published, "_LISTS", {("2007", "trainval"): 4})
            opened = open_boxes("voc07", "train", root=root)
            for row in range(len(opened)):
                opened[row]

    files = (names, *sorted((base / "Annotations").iterdir()), *sorted((base / "JPEGImages").iterdir()))
    return [Kind("voc", files, read)]


def stopped_trainings(root: Path) -> list[Kind]:
    """The checkpoints of a detector and of a classifier of films, taken up as far as training would begin."""
    pytest.importorskip("av")
    pytest.importorskip("faster_coco_eval")
    root.mkdir()
    return [_of_a_detector(root / "detector.ckpt"), _of_films(root / "films.ckpt", root)]


def _of_a_detector(path: Path) -> Kind:
    from detectors import images, narrow, schedule

    from evaluation.tasks.detection import training
    from evaluation.tuning.checkpoint import Checkpoint

    model, data, settings = narrow(), images(2), training.Training(schedule(3))

    def train() -> None:
        runtime = Runtime(device=torch.device("cpu"), workers=0, progress=False)
        training.train_detector(model, data, settings, runtime, checkpoint=Checkpoint(path, seconds=0))

    return Kind(path.name, (path,), _stopped(train, path, training, "step_seed", after=2), may_mend=True)


def _of_films(path: Path, root: Path) -> Kind:
    from motion_films import write_motions

    import sslkit
    from evaluation.tasks.action import training
    from evaluation.tasks.action.classifier import build_classifier
    from evaluation.tasks.action.crops import Sizes
    from evaluation.tasks.action.datasets import open_films
    from evaluation.tasks.action.films import survey
    from evaluation.tasks.action.reading import ClipShape, TrainingClips
    from evaluation.tasks.action.recipes import RECIPES
    from evaluation.tuning.checkpoint import Checkpoint
    from sslkit import backbones

    films_of = survey(open_films(f"video:{write_motions(root / 'motion', train=2, test=1)}", "train"), on_error="skip")
    clips = TrainingClips(films_of, ClipShape(4, 2, Sizes.for_size(16)), seed=0)
    model = sslkit.load(backbones.build("narrow_slow", image_size=16, in_chans=3, frames=4))
    recipe = replace(RECIPES["paper_ucf101"], epochs=3, batch_size=2)
    options = Runtime(device=torch.device("cpu"), workers=0, progress=False)

    def train() -> None:
        net = build_classifier(model, recipe.protocol, 2, dropout=0.0, seed=0)
        training.train(net, model, clips, recipe, options, Checkpoint(path, seconds=0))

    return Kind(path.name, (path,), _stopped(train, path, training, "dropout_seed", after=2), may_mend=True)


def _stopped(train: Callable[[], None], path: Path, module: Any, each_step: str, after: int) -> Callable[[], None]:
    """Train some steps, stop, and return what takes the training up again as far as its next step."""
    real, steps = getattr(module, each_step), iter(range(after))

    def count(*given: Any) -> Any:
        if next(steps, None) is None:
            raise Reached
        return real(*given)

    def resume() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, each_step, count)
            train()

    with pytest.raises(Reached):
        resume()
    assert path.is_file()
    return resume
