"""Detectors as entries keep them: the same boxes, in pixels of each image, in files and pictures."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from kept_detectors import CLASSES, detecting
from photographs import photographs
from PIL import Image
from random_entries import made

import sslkit
from sslkit.errors import UserError
from sslkit.models.detectors.detector import detect
from sslkit.zoo import heads
from sslkit.zoo.heads import DETECTOR
from sslkit.zoo.weights import read_weights

QUICK = {"workers": 0, "progress": False}
SIZES = ((97, 61), (64, 131), (100, 100))  # width and height
RED = (20, 11, 47, 33)  # x0, y0, x1, y1 of a rectangle


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    detecting(folder / "boxes")
    return folder


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three photographs of odd sizes and a damaged file."""
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    for number, size in enumerate(SIZES):
        photographs()[number % 2].resize(size).save(f"photos/{number}.png")
    Path("photos/damaged.png").write_bytes(b"no picture")
    return Path("photos")


def pixels_of(path: Path) -> torch.Tensor:
    return torch.from_numpy(np.asarray(Image.open(path).convert("RGB")).transpose(2, 0, 1).copy())


@pytest.mark.parametrize(
    ("arch", "masks", "tune", "in_chans"),
    [
        ("c4", False, "all", 1),
        ("c4", True, "all", 3),
        ("c4", True, "none", 3),
        ("fpn", True, "none", 3),
        ("vit_pyramid", False, "all", 3),
    ],
)
def test_a_kept_detector_says_what_the_trained_one_says(
    arch: str, masks: bool, tune: str, in_chans: int, photos: Path, tmp_path: Path
) -> None:
    detector = detecting(tmp_path / "a", arch, masks=masks, tune=tune, in_chans=in_chans)
    model = sslkit.load(tmp_path / "a")
    found = model.predict("photos", **QUICK)
    assert model.classes == tuple(CLASSES) and len(found) == 3 and len(found.boxes) > 0
    assert found.sizes.tolist() == [[height, width] for width, height in SIZES]
    for number in range(3):
        expected = detect(detector, pixels_of(photos / f"{number}.png"), in_chans)
        rows = np.flatnonzero(found.image == number)
        np.testing.assert_array_equal(found.boxes[rows], expected["boxes"])
        np.testing.assert_array_equal(found.scores[rows], expected["scores"])
        np.testing.assert_array_equal(found.labels[rows] + 1, expected["labels"])
        if masks:
            np.testing.assert_array_equal([found.mask(row) for row in rows], expected["masks"])
    if arch != "vit_pyramid":
        weights = [value for name, value in detector.state_dict().items() if name.endswith("layer1.0.conv1.weight")]
        assert torch.equal(model.net.state_dict()["layer1.0.conv1.weight"], weights[0])
    kept = read_weights(heads.path(tmp_path / "a", DETECTOR)).keys()
    assert not [name for name in kept if "layer1." in name or ".blocks." in name], "the backbone is kept once"


@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize("size", SIZES)
def test_boxes_are_in_pixels_of_the_upright_image(
    size: tuple[int, int], orientation: int, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network is replaced by one that finds red pixels in what it is given, resized and padded."""
    picture = np.zeros((size[1], size[0], 3), np.uint8)
    picture[RED[1] : RED[3], RED[0] : RED[2], 0] = 255
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = Image.fromarray(picture)
    (stored if orientation == 1 else stored.transpose(Image.Transpose.ROTATE_90)).save(tmp_path / "a.png", exif=exif)
    model = sslkit.load(kept / "boxes")
    net, seen = model.dense.net, []
    real = net.backbone.forward
    monkeypatch.setattr(net.backbone, "forward", lambda x: seen.append(x) or real(x))

    def find(*_):
        red = seen[-1][0, 0] * model.std[0] + model.mean[0] > 0.5
        rows, columns = (torch.nonzero(red.any(axis))[:, 0] for axis in (1, 0))
        box = torch.stack([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]).float()
        return [{"boxes": box[None], "labels": torch.tensor([2]), "scores": torch.tensor([0.75])}], {}

    monkeypatch.setattr(net.roi_heads, "forward", find)
    found = model.predict(tmp_path / "a.png", **QUICK)
    step = max(1, min(size) / 96)  # a pixel of the resized image, in those of this one
    assert found.labels.tolist() == [1] and found.sizes.tolist() == [[size[1], size[0]]]
    assert np.abs(found.boxes - RED).max() <= 0.5 * step + 0.01


def rows_of(path: str) -> list[dict[str, str]]:
    with Path(path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_folder_without_a_box_is_said(kept: Path, photos: Path, tmp_path: Path) -> None:
    shutil.copytree(kept / "boxes", tmp_path / "a")
    card = json.loads((tmp_path / "a/card.json").read_text())
    card["detector"]["score"] = 1
    (tmp_path / "a/card.json").write_text(json.dumps(card))
    done = sslkit.predict("a", "photos", out="none.csv", cache=None, device="cpu", **QUICK)
    assert "boxes     none in any of 3 images" in str(done) and rows_of("none.csv") == []
    assert str(sslkit.load("a").predict("photos", **QUICK)) == "no box in 3 images" and done.sheet.is_file()
    pyarrow = pytest.importorskip("pyarrow.parquet")
    sslkit.predict("a", "photos", out="none.parquet", cache=None, pictures=False, device="cpu", **QUICK)
    assert pyarrow.read_table("none.parquet").column_names == ["path", "class", "score", "x0", "y0", "x1", "y1"]


def test_masks_are_pictures_with_the_number_of_the_best_object(photos: Path, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow.parquet")
    detecting(tmp_path / "a", masks=True)
    done = sslkit.predict("a", "photos", out="p.parquet", cache=None, device="cpu", **QUICK)
    found, rows = sslkit.load("a").predict("photos", **QUICK), pyarrow.read_table("p.parquet").to_pylist()
    assert done.masks == Path("p-masks") and f"masks     {done.masks}" in str(done)
    for number in range(3):
        of_image = np.flatnonzero(found.image == number)
        assert [rows[row]["object"] for row in of_image] == [*range(1, len(of_image) + 1)]
        expected = np.zeros(found.sizes[number], np.uint8)
        for place, row in enumerate(of_image, 1):
            expected[found.mask(row) & (expected == 0)] = place
        drawn = Image.open(rows[of_image[0]]["mask"])
        assert drawn.mode == "P"
        np.testing.assert_array_equal(np.asarray(drawn), expected)
    assert len(list(Path("p-masks").iterdir())) == 3


def test_arrays_and_lists_have_the_same_boxes(kept: Path, photos: Path) -> None:
    model = sslkit.load(kept / "boxes")
    expected = model.predict("photos/2.png", **QUICK)
    for source in (pixels_of(photos / "2.png")[None], ["photos/2.png"]):
        np.testing.assert_array_equal(model.predict(source, **QUICK).boxes, expected.boxes)


def test_what_does_not_fit_is_one_line(kept: Path, photos: Path, tmp_path: Path) -> None:
    entry = shutil.copytree(kept / "boxes", tmp_path / "a")
    with pytest.raises(UserError, match=r"a is a detector, which no format holds: predict with it here") as error:
        sslkit.zoo.export(entry, to="onnx")
    assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="precision=bfloat16: a detector predicts in float32"):
        sslkit.load(entry).predict("photos", precision="bfloat16", **QUICK)
    with pytest.raises(UserError, match="image_size=64: a is a detector, which has sizes of its own"):
        sslkit.load(entry, image_size=64).predict("photos", **QUICK)
    with pytest.raises(UserError, match="has no classifier, and so no classes"):
        sslkit.load(made(tmp_path, "plain", "digits")).predict("photos", **QUICK)
    card, whole = entry / "card.json", (entry / "card.json").read_text()
    for change, said in (
        ({"classes": ["a"]}, "does not fit the detector of"),
        ({"arch": "c44"}, "there is no arch 'c44'"),
        ({"most": 0}, "detector.most is 0, expected boxes of an image, at least 1"),
        ({"sizes": 3}, "detector.sizes is 3, expected the sizes of images"),
    ):
        content = json.loads(whole)
        content["detector"] |= change
        card.write_text(json.dumps(content))
        with pytest.raises(UserError, match=said):
            sslkit.load(entry)
    card.write_text(whole)
    detecting(tmp_path / "b", "fpn")
    shutil.copy(tmp_path / "b/heads/detector.safetensors", entry / "heads")
    with pytest.raises(UserError, match="is the head of another backbone than the one beside it"):
        sslkit.load(entry)
    (entry / "heads/detector.safetensors").unlink()
    with pytest.raises(UserError, match=r"detector\.safetensors"):
        sslkit.load(entry)
