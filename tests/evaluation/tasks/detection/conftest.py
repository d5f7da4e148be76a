"""A detection set of the user's own in COCO's form, written to disk from generated pictures."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from evaluation.tasks.detection.datasets.clipart_boxes import CLASSES, open_clipart_boxes
from evaluation.tasks.detection.datasets.run_lengths import compress

Json = dict[str, Any]
IDS = (90, 3, 17, 44)  # of the drawings' categories: sparse, and in another order than the labels


def annotations(rows: range, below: str) -> Json:
    """What COCO's json would say of some drawings. Images' ids fall, and annotations lie across each other."""
    data = open_clipart_boxes("test", seed=0)
    content: Json = {"images": [], "annotations": [], "info": {}}
    content["categories"] = [{"id": number, "name": name} for number, name in zip(IDS, CLASSES, strict=True)]
    for place, row in enumerate(rows):
        target, image_id = data.target(row), 150 - place
        content["images"].append({"id": image_id, "file_name": f"{below}{row:03d}.png", "height": 128, "width": 128})
        for k, (x0, y0, x1, y1) in enumerate(target["boxes"].tolist()):
            own = {"id": 1000 * (k + 1) + row, "image_id": image_id, "bbox": [x0, y0, x1 - x0, y1 - y0], "iscrowd": 0}
            own["category_id"] = IDS[target["labels"][k] - 1]
            own["segmentation"] = compress(target["masks"][k].numpy())
            content["annotations"].append({**own, "area": float(target["area"][k])})
    content["annotations"].sort(key=lambda annotation: annotation["id"])
    return content


@pytest.fixture(scope="session")
def write_split() -> Callable[[Path, Path, range, str], Json]:
    """Writes rows of the generated test set to a folder of images and a json, whose file names begin with `below`."""

    def written(path: Path, images: Path, rows: range, below: str = "") -> Json:
        path.parent.mkdir(parents=True, exist_ok=True)
        images.mkdir(parents=True, exist_ok=True)
        content = annotations(rows, below)
        path.write_text(json.dumps(content))
        data = open_clipart_boxes("test", seed=0)
        for row in rows:
            pixels = data[row][0].permute(1, 2, 0).numpy()
            Image.fromarray(pixels).save(images / f"{row:03d}.png")
        return content

    return written


@pytest.fixture(scope="session")
def written_once(tmp_path_factory: pytest.TempPathFactory, write_split: Callable[..., Json]) -> Path:
    root = tmp_path_factory.mktemp("own")
    for split, rows in (("train", range(12)), ("test", range(12, 17))):
        write_split(root / f"{split}.json", root / "images", rows, "images/")
    return root


@pytest.fixture
def own(tmp_path: Path, written_once: Path) -> Path:
    """A folder of the user's own: 12 images of train, 5 of test. A copy, which the test may change."""
    return shutil.copytree(written_once, tmp_path, dirs_exist_ok=True)


@pytest.fixture
def change(own: Path) -> Callable[..., None]:
    """Changes a json file of that folder by a function."""

    def changed(how: Callable[[Json], Any], split: str = "train") -> None:
        path = own / f"{split}.json"
        content = json.loads(path.read_text())
        how(content)
        path.write_text(json.dumps(content))

    return changed
