"""Sets that flatter or mislead, with every protocol of the folder: the right number with its line, or one error."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from motion_films import write_motion
from PIL import Image

import evaluation
from evaluation import protocols
from evaluation.judging import run
from evaluation.results import store
from evaluation.results.result import Result
from evaluation.results.unseen import UNSEEN
from sslkit.errors import UserError
from sslkit.terminal import say

SMALL = {
    "few_shot": {"episodes": 20, "n_query": 4, "n_way": 2, "k_shot": 1},
    "fine_tune": {"grid": {"lr": [0.01]}, "steps": 2},
    "semi_supervised": {"fraction": 4, "draws": 1, "epochs": 1},
    "lidar": {"q": 2, "n_images": 40},
    "view_retrieval": {"n_images": 40},
    "linear_aug": {"epochs": 1},
    "attentive": {"grid": {"iterations": 20}},
    "linear_grid": {"grid": {"iterations": 20}},
    "action": {"features": "once", "epochs": 1, "frames": 4, "stride": 2, "clips": 1, "crops": 1},
    "detection": {"schedule": "smoke", "steps": 1, "batch_size": 2},
    "segmentation": {"schedule": "smoke", "steps": 1, "batch_size": 2},
}
KINDS = {
    "anomaly": "defects",
    "action": "films",
    "detection": "boxes",
    "segmentation": "boxes",
    "linear_seg": "maps",
    "knn_seg": "maps",
}
WITHOUT_TRAIN = (
    "few_shot",
    "crowding",
    "lidar",
    "view_retrieval",
    "patch_quality",
    "retrieval",
    "clustering",
)  # protocols that learn from no training images
VOTING = ("knn", "knn_seg")  # whose neighbours are never the image itself
ON_VIEWS = ("fine_tune", "semi_supervised", "linear_aug", "lidar", "action", "detection", "segmentation")
COPIES, NEW = 6, 4  # test images that are training images, and others


def noise(seed: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (24, 24, 3), dtype=np.uint8))


def turned(image: Image.Image, orientation: int) -> tuple[Image.Image, Image.Exif]:
    """The image as a camera stores it: turned, with the orientation that turns it back."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return image.transpose({3: Image.Transpose.ROTATE_180, 6: Image.Transpose.ROTATE_90}[orientation]), exif


def images(folder: Path, *, orientation: int = 1, classes: tuple[str, str] = ("0", "1")) -> str:
    """Noise with labels by coin; test images are copies of training images in another format, and new ones."""
    labels = np.random.default_rng(0).permutation(np.arange(40) % 2)
    for split in ("train", "test"):
        for name in classes:
            (folder / split / name).mkdir(parents=True)
    for number, label in enumerate(labels):
        noise(number).save(folder / "train" / classes[label] / f"{number:03}.png")
        if number < COPIES:
            copy, exif = turned(noise(number), orientation) if orientation != 1 else (noise(number), None)
            copy.save(folder / "test" / classes[label] / f"x{500 - number}.{'png' if exif else 'bmp'}", exif=exif)
    for number in range(20 - COPIES):
        noise(900 + number).save(folder / "test" / classes[number % 2] / f"new-{number:03}.png")
    return str(folder)


def films(folder: Path, *, rate: int = 25, motions: tuple[str, str] = ("down", "up")) -> str:
    """Films of two motions; test films are training films under other names, and new ones."""
    for motion in motions:
        for split, seeds in (("train", range(6)), ("test", (*range(COPIES // 2), *range(90, 90 + NEW // 2)))):
            (folder / split / motion).mkdir(parents=True)
            for place, seed in enumerate(seeds):
                path = folder / split / motion / f"{split}-{place}.avi"
                write_motion(path, motion, seed=seed, rate=rate if split == "test" else 25)
    return f"video:{folder}"


def boxes(folder: Path, *, orientation: int = 1, names: tuple[str, str] = ("cup", "box"), empty: int = 0) -> str:
    """Bright rectangles on noise with boxes and polygons; some test images are training images."""
    folder.mkdir(parents=True)
    for split, seeds in (("train", range(8 + empty)), ("test", (*range(COPIES), *range(90, 90 + NEW)))):
        content = {
            "images": [],
            "annotations": [],
            "categories": [{"id": k, "name": name} for k, name in enumerate(names)],
        }
        for place, seed in enumerate(seeds):
            rng = np.random.default_rng(seed)
            pixels = rng.integers(0, 90, (64, 64, 3), dtype=np.uint8)
            x, y, w, h = (int(value) for value in (rng.integers(20, 30), rng.integers(20, 30), 16, 14))
            pixels[y : y + h, x : x + w] += 150
            image, exif = Image.fromarray(pixels), None
            if split == "test" and orientation != 1:
                image, exif = turned(image, orientation)
            image.save(folder / f"{split}-{place}.png", **({"exif": exif} if exif else {}))
            content["images"].append({"id": place, "file_name": f"{split}-{place}.png", "height": 64, "width": 64})
            if split == "train" and place >= 8:
                continue
            shape = [[x, y, x + w, y, x + w, y + h, x, y + h]]
            own = {"bbox": [x, y, w, h], "area": w * h, "iscrowd": 0, "segmentation": shape, "category_id": place % 2}
            content["annotations"].append({"id": place, "image_id": place, **own})
        (folder / f"{split}.json").write_text(json.dumps(content))
    return f"coco:{folder}"


MAKERS: dict[str, dict[str, Callable[..., str]]] = {
    "copies": {"images": images, "films": films, "boxes": boxes, "maps": boxes},
    "orientation": {
        "images": lambda folder: images(folder, orientation=6),
        "boxes": lambda folder: boxes(folder, orientation=3),
        "maps": lambda folder: boxes(folder, orientation=3),
    },
    "mirrored classes": {
        "images": lambda folder: images(folder, classes=("left", "right")),
        "films": lambda folder: films(folder, motions=("left", "right")),
        "boxes": lambda folder: boxes(folder, names=("left arrow", "right arrow")),
        "maps": lambda folder: boxes(folder, names=("left arrow", "right arrow")),
    },
    "rates": {"films": lambda folder: films(folder, rate=100)},
    "rows without an object": {
        "boxes": lambda folder: boxes(folder, empty=5),
        "maps": lambda folder: boxes(folder, empty=5),
    },
}
CASES = [
    pytest.param(hostile, name, id=f"{hostile}-{name}")
    for hostile, makers in MAKERS.items()
    for name in protocols.names()
    if KINDS.get(name, "images") in makers
]


def expected(hostile: str, name: str) -> str:
    """What must be said of a set, "" where it does not concern the protocol."""
    kind = KINDS.get(name, "images")
    if hostile == "copies" or (hostile == "orientation" and kind == "images"):
        n = 20 if kind == "images" else COPIES + NEW
        return "" if name in WITHOUT_TRAIN else f"{COPIES} of {n} test images of"
    return {
        "orientation": "has an EXIF orientation",
        "mirrored classes": "images are not mirrored in training: mirror=true" if name in ON_VIEWS else "",
        "rates": "frames per second differ: training videos 25 and test videos 100",
        "rows without an object": "(5 without an object are left out",
    }[hostile]


def judged(data: str, name: str, out: Path, lines: list[str]) -> list[Result]:
    """The results of a protocol; what is said goes into `lines`."""
    model = "random:narrow_slow" if name == "action" else "random:narrow_resnet"
    size = 16 if name == "action" else 32 if name in KINDS else 24
    how = {"options": {name: SMALL.get(name, {})}, "out": out, "cache": out / "cache", "progress": False, "workers": 0}
    return run.evaluate(model, data, [name], say=lines.append, image_size=size, **how)


@pytest.mark.parametrize(("hostile", "name"), CASES)
def test_a_hostile_set_has_its_line_or_is_refused(
    hostile: str, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(say.LOG, "propagate", True)
    data, lines, results = MAKERS[hostile][KINDS.get(name, "images")](tmp_path / f"{hostile} {name}"), [], []
    with caplog.at_level("INFO", "sslkit.say"), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            results = judged(data, name, tmp_path, lines)
        except UserError as error:
            lines.append(str(error))
            assert hostile == "orientation" and "\n" not in str(error)
    lines += [*caplog.messages, *(str(one.message) for one in warned)]
    wanted = expected(hostile, name)
    assert not wanted or len({line for line in lines if wanted in line}) == 1, lines
    assert wanted or not any("are not mirrored" in line for line in lines)
    if hostile != "copies" or name in WITHOUT_TRAIN:
        return
    result = results[0]
    assert result.details["in_train"] == COPIES and UNSEEN in result.others
    assert result.leaky == (name not in VOTING)
    assert f"; without {COPIES} images of train: " in evaluation.table([result], "markdown")
    folder = next(path.parent for path in tmp_path.rglob("results.jsonl"))
    stored = store.read(folder)[0]
    assert stored.leaky == result.leaky and stored.others[UNSEEN] == result.others[UNSEEN]


def test_a_copy_does_not_vote(tmp_path: Path) -> None:
    """All test images are training images: a neighbour that is the image itself would make 100 %."""
    folder = Path(images(tmp_path / "coins"))
    for path in folder.glob("test/*/*"):
        path.unlink()
    for path in folder.glob("train/*/*.png"):
        with Image.open(path) as image:
            image.save(folder / "test" / path.parent.name / f"other-{path.stem}.bmp")
    [result] = judged(str(folder), "knn", tmp_path, [])
    assert result.details["in_train"] == 40 and result.value < 0.75 and UNSEEN not in result.others
    assert "; all 40 images are of train" in evaluation.table([result], "markdown")


def test_no_copy_of_a_query_is_in_its_support(tmp_path: Path) -> None:
    """Every image of the pool twice, one label a pair: with a copy in the support the accuracy is far above chance."""
    folder = tmp_path / "pairs"
    for number in range(42):
        for place in ("a", "b"):
            path = folder / ("train" if number > 39 else "test") / str(number % 2) / f"{place}{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            noise(number).save(path)
    how = {"options": {"few_shot": {**SMALL["few_shot"], "k_shot": 10, "n_query": 10, "episodes": 60}}}
    [result] = evaluation.evaluate(
        "random:narrow_resnet", str(folder), "few_shot", image_size=24, out=tmp_path, cache=None, progress=False, **how
    )
    assert result.value < 0.6


def test_images_without_an_object_are_kept_as_background(tmp_path: Path) -> None:
    how = {"out": tmp_path, "progress": False, "image_size": 32}
    data = boxes(tmp_path / "some", empty=5)
    for empty, count in (("skip", 8), ("keep", 13)):
        options = {"detection": {**SMALL["detection"], "empty": empty, "batch_size": count}}
        result, *_ = evaluation.evaluate("random:narrow_resnet", data, "detection", options=options, **how)
        assert result.details["images"] == [count, COPIES + NEW]
        assert result.details["without_an_object"] == (5 if empty == "skip" else 0)
