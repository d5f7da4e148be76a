"""COCO's form, written to disk from generated pictures and read back; pycocotools says the same of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

pytest.importorskip("faster_coco_eval")

from evaluation.datasets import Reading
from evaluation.ranking.inputs.objects import open_objects
from evaluation.tasks.detection.datasets import coco
from evaluation.tasks.detection.datasets.boxes import for_training
from evaluation.tasks.detection.datasets.clipart_boxes import CLASSES, open_clipart_boxes
from evaluation.tasks.detection.datasets.coco import coco_results
from evaluation.tasks.detection.datasets.sources import open_boxes
from evaluation.tasks.detection.measure import open_splits
from evaluation.tasks.detection.protocols import detection, segmentation
from evaluation.tasks.segmentation.sources import open_label_maps
from sslkit.errors import UserError

Json = dict[str, Any]


def test_what_was_written_comes_back(own: Path) -> None:
    source = open_clipart_boxes("test", seed=0)
    for split, first, many in (("train", 0, 12), ("test", 12, 5)):
        data = open_boxes(f"coco:{own}", split)
        assert len(data) == many and data.has_masks and data.split == split and data.voc_form == "area"
        assert data.category_ids == (3, 17, 44, 90) and data.classes == (*CLASSES[1:], CLASSES[0])
        assert data.image_ids.tolist() == [150 - place for place in range(many)]
        for row in range(many):
            (image, got), (pixels, wanted) = data[row], source[first + row]
            assert torch.equal(image, pixels) and torch.equal(got["boxes"], wanted["boxes"])
            assert torch.equal(got["masks"], wanted["masks"]) and torch.equal(got["area"], wanted["area"])
            assert [data.classes[label - 1] for label in got["labels"]] == [
                source.classes[label - 1] for label in wanted["labels"]
            ]


def test_ids_are_turned_back_in_results(own: Path) -> None:
    """The truth given as a prediction: pycocotools finds every object, under the file's own ids."""
    coco_module = pytest.importorskip("pycocotools.coco")
    from pycocotools.cocoeval import COCOeval

    data = open_boxes(f"coco:{own}", "test")
    results = []
    for row in range(len(data)):
        target = data.target(row)
        results += coco_results(data, row, {**target, "scores": torch.ones(len(target["labels"]))})
    assert {entry["category_id"] for entry in results} <= {3, 17, 44, 90}
    json.dumps(results)
    truth = coco_module.COCO(str(own / "test.json"))
    for kind in ("bbox", "segm"):
        judged = COCOeval(truth, truth.loadRes(results), kind)
        judged.evaluate()
        judged.accumulate()
        judged.summarize()
        assert judged.stats[0] == pytest.approx(1)


def test_masks_of_polygons_and_run_lengths_are_pycocotools(own: Path, change: Callable[..., None]) -> None:
    coco_module = pytest.importorskip("pycocotools.coco")
    from pycocotools import mask as mask_module

    rng = np.random.default_rng(0)

    def other_shapes(content: Json) -> None:
        for number, annotation in enumerate(content["annotations"]):
            x, y, width, height = annotation["bbox"]
            corners = [x, y, x + width, y, x + width / 2, y + height]
            loose = (rng.random(10) * 60 + 30).round(2).tolist()
            counts = [int(count) for count in np.diff([0, *sorted(rng.integers(0, 128 * 128, 6)), 128 * 128])]
            annotation["segmentation"] = (
                [corners],
                [corners, loose, [1, 2, 3, 4]],
                {"size": [128, 128], "counts": counts},
                annotation["segmentation"],
            )[number % 4]
            whole = truth_of(annotation["segmentation"])
            annotation["bbox"], annotation["area"] = mask_module.toBbox(whole).tolist(), float(mask_module.area(whole))

    def truth_of(shape: Any) -> Json:
        if isinstance(shape, list):
            parts = [part for part in shape if len(part) >= 6]
            return mask_module.merge(mask_module.frPyObjects(parts, 128, 128))
        return mask_module.frPyObjects(shape, 128, 128) if isinstance(shape["counts"], list) else shape

    change(other_shapes)
    data = open_boxes(f"coco:{own}", "train")
    truth = coco_module.COCO(str(own / "train.json"))
    for row in range(len(data)):
        wanted = []
        for annotation in truth.loadAnns(truth.getAnnIds(imgIds=int(data.image_ids[row]))):
            if isinstance(annotation["segmentation"], list):
                annotation["segmentation"] = [part for part in annotation["segmentation"] if len(part) >= 6]
            wanted.append(truth.annToMask(annotation))
        assert np.array_equal(data.target(row)["masks"].numpy(), np.stack(wanted))


def test_without_masks_none_are_read(own: Path, change: Callable[..., None]) -> None:
    change(lambda content: content["annotations"][0].update(segmentation=[[1, 2, 3]]))
    assert not open_boxes(f"coco:{own}", "train", masks=False).has_masks
    with pytest.raises(UserError, match=r"train\.json: annotation \d+: a polygon of the segmentation is not"):
        open_boxes(f"coco:{own}", "train")
    change(lambda content: [row.pop("segmentation") for row in content["annotations"]])
    assert not open_boxes(f"coco:{own}", "train").has_masks and open_boxes(f"coco:{own}", "test").has_masks


def test_train_leaves_out_images_with_nothing_to_learn_and_test_keeps_them(own: Path, change: Callable) -> None:
    def thin(content: Json) -> None:
        empty, crowded = content["images"][2]["id"], content["images"][4]["id"]
        content["annotations"] = [row for row in content["annotations"] if row["image_id"] != empty]
        for row in content["annotations"]:
            row["iscrowd"] = int(row["image_id"] == crowded)

    change(thin)
    change(thin, "test")
    train, test = open_boxes(f"coco:{own}", "train"), open_boxes(f"coco:{own}", "test")
    assert len(train) == 10 and 148 not in train.image_ids and 146 not in train.image_ids
    assert len(test) == 5 and test.target(2)["boxes"].shape == (0, 4)
    assert test.target(2)["masks"].shape == (0, 128, 128) and test.target(4)["iscrowd"].all()
    source = open_clipart_boxes("test", seed=0)
    assert torch.equal(train.target(-1)["masks"], source.target(11)["masks"])


def test_a_pixel_over_the_edge_is_let_pass_and_cut_for_training(own: Path, change: Callable) -> None:
    shape = [[-0.5, 10, 128.5, 10, 128.5, 30, -0.5, 30]]
    change(lambda content: content["annotations"][0].update(bbox=[-0.5, 10, 129, 20], area=2580, segmentation=shape))
    target = open_boxes(f"coco:{own}", "train").target(0)
    assert [-0.5, 10, 128.5, 30] in target["boxes"].tolist()
    assert [0, 10, 128, 30] in for_training(target, 128, 128)["boxes"].tolist()


def test_labels_of_test_are_those_of_train(own: Path, change: Callable) -> None:
    """Whatever test.json lists, a category keeps its label."""
    before = open_boxes(f"coco:{own}", "test").instances.labels

    def unused_gone_and_new_come(content: Json) -> None:
        content["categories"] = [{"id": 1, "name": "never seen"}, *content["categories"][::-1]]

    change(unused_gone_and_new_come, "test")
    assert np.array_equal(open_boxes(f"coco:{own}", "test").instances.labels, before)


@pytest.mark.parametrize("orientation", [3, 6])
def test_an_image_that_is_turned_without_a_change_of_size_is_refused(own: Path, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.new("RGB", (128, 128)).save(own / "images/000.png", exif=exif)
    with pytest.raises(UserError, match=r"000\.png has an EXIF orientation that keeps its size"):
        open_boxes(f"coco:{own}", "train")


def test_an_image_lying_on_its_side_is_turned_where_the_json_says_so(own: Path, change: Callable) -> None:
    image = Image.fromarray(np.arange(128 * 96, dtype=np.uint32).reshape(96, 128).astype(np.uint8)).convert("RGB")
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(own / "images/000.png", exif=exif)
    change(lambda content: content["images"][0].update(width=128, height=96))

    def keep_inside(content: Json) -> None:
        for row in content["annotations"]:
            if row["image_id"] == content["images"][0]["id"]:
                row.update(bbox=[1, 1, 20, 20], area=400)

    change(keep_inside)
    as_stored = open_boxes(f"coco:{own}", "train", masks=False)[0][0]
    change(lambda content: content["images"][0].update(width=96, height=128))
    upright = open_boxes(f"coco:{own}", "train", masks=False)[0][0]
    assert as_stored.shape == (3, 96, 128) and torch.equal(upright, as_stored.rot90(-1, (1, 2)))


@pytest.fixture
def published(tmp_path: Path, write_split: Callable[..., Json], monkeypatch: pytest.MonkeyPatch) -> Path:
    """COCO 2017's layout with a few images; the last of each split has no annotation, one box has no height."""
    for split, name, rows in (("train", "train2017", range(8)), ("test", "val2017", range(8, 12))):
        path = tmp_path / f"coco/annotations/instances_{name}.json"
        content = write_split(path, tmp_path / "coco" / name, rows)
        last = content["images"][-1]["id"]
        content["annotations"] = [row for row in content["annotations"] if row["image_id"] != last]
        content["annotations"][0]["bbox"][3] = 0
        path.write_text(json.dumps(content))
        monkeypatch.setitem(coco.COUNTS, split, len(rows))
    monkeypatch.setattr(coco, "CATEGORIES", 4)
    return tmp_path


def test_coco_2017_is_read_as_it_is_published(published: Path) -> None:
    train, test = (open_boxes("coco2017", split, root=published) for split in ("train", "val"))
    source = open_clipart_boxes("test", seed=0)
    lone = source.instances.counts[0] == 1  # the image whose box has no height is left out if it has no other
    assert len(train) == 7 - lone and len(test) == 4 and test.split == "test"
    assert test.target(3)["labels"].numel() == 0 and torch.equal(test[3][0], source[11][0])
    assert test.ids[0] == "008.png" and test.category_ids == (3, 17, 44, 90)
    assert torch.equal(test.target(1)["masks"], source.target(9)["masks"])
    assert not open_boxes("coco2017", "test", root=published, masks=False).has_masks
    assert open_boxes(f"coco2017:{published}/coco", "test").digest == test.digest


def test_coco_2017_that_is_not_whole_is_said(published: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(coco.COUNTS, "test", 5000)
    with pytest.raises(UserError, match="'test' has 4 images instead of 5000"):
        open_boxes("coco2017", "test", root=published)
    with pytest.warns(UserWarning, match="4 images instead of 5000"):
        part = open_boxes("coco2017", "test", root=published, counts="warn")
    assert "not the published set" in part.note and not part.whole
    monkeypatch.setattr(coco, "CATEGORIES", 80)
    with pytest.raises(UserError, match="has 4 categories instead of 80"):
        open_boxes("coco2017", "train", root=published)
    empty = tmp_path / "empty"
    with pytest.raises(UserError) as caught:
        open_boxes("coco2017", "train", root=empty)
    message = str(caught.value)
    assert "annotations/instances_train2017.json, train2017" in message and "https://cocodataset.org" in message
    assert "\n" not in message and message.endswith("coco2017:FOLDER")


def test_the_published_counts() -> None:
    assert coco.COUNTS == {"train": 118_287, "test": 5_000} and coco.CATEGORIES == 80


def test_images_of_12_bits_have_one_range_in_all_splits(own: Path, change: Callable[..., None]) -> None:
    """They use 4,096 of 65,536 values: by the type's range 16 levels would be left, by each file's own no scale."""
    rng = np.random.default_rng(0)
    pixels = {}
    for place, split in enumerate(("train", "test")):
        for image in json.loads((own / f"{split}.json").read_text())["images"]:
            name = image["file_name"]
            pixels[name] = rng.integers(0, (4096, 2048)[place], (128, 128), dtype=np.uint16)
            Image.fromarray(pixels[name]).save(own / name)
    with pytest.warns(UserWarning, match=r"16-bit images .* scaled to 8 bits by range=\[0,4095\]"):
        splits = {split: open_boxes(f"coco:{own}", split) for split in ("train", "test")}
    for data in splits.values():
        for row in range(len(data)):
            wanted = np.rint(pixels[data.ids[row]] * (255 / 4095))
            assert np.abs(data[row][0].numpy() - wanted).max() <= 1
    assert splits["test"].pixels.take(np.array([0])).scale.range == (0.0, 4095.0)

    given, found = Reading(range=[0, 2047]), splits["train"].digest
    for data in (*open_splits(f"coco:{own}", given, empty="skip"), open_label_maps(f"coco:{own}", "test", given)):
        wanted = np.rint(np.minimum(pixels[data.ids[0]], 2047) * (255 / 2047))
        assert np.abs(data[0][0].numpy() - wanted).max() <= 1 and data.digest != found
    assert not np.array_equal(*(open_objects(f"coco:{own}", "test", how).images.pixels for how in (given, Reading())))
    filled = Reading(range=[0, 4095], fill=float(pixels[splits["test"].ids[0]][0, 0]))
    for data in (open_splits(f"coco:{own}", filled, empty="skip")[1], open_label_maps(f"coco:{own}", "test", filled)):
        stored = pixels[data.ids[0]]
        assert (data[0][0].numpy()[:, stored == filled.fill] == 0).all() and (stored == filled.fill).any()
    with pytest.warns(UserWarning, match=r"\(12 of 12 looked at\), whose values 0 to 4095"):
        assert open_boxes(f"coco:{own}", "test", range="auto").pixels.scale.range == (0.0, 4095.0)
    for judged in (detection.detection, segmentation.segmentation):
        with pytest.raises(UserError, match=r"range=\[9, 3\] must be two numbers that rise"):
            judged("random:narrow_resnet", f"coco:{own}", range=[9, 3], schedule="smoke", progress=False)
