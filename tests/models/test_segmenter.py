"""Segmenters as entries keep them: masks at the size of each image, against SciPy's interpolation; in files."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from photographs import photographs
from PIL import Image
from scipy.ndimage import map_coordinates
from torch import nn

import sslkit
from evaluation.tuning.keeping import keep_network
from sslkit.errors import UserError
from sslkit.models import places
from sslkit.models.loading import load
from sslkit.models.places import enlarge
from sslkit.numerics.figures import palette
from sslkit.zoo.heads import SEGMENTER, Head

CLASSES = ("path", "sky", "=leaf")
SIZES = ((97, 61), (64, 131))  # width and height
QUICK = {"workers": 0, "progress": False}


def segmenting(folder: Path) -> Path:
    """An entry of random weights with a segmenter."""
    model = load("random:narrow_vit", image_size=32)
    about = {"data": {"source": "photographs"}, "config": {}, "epochs": 0, "seed": 0}
    entry = keep_network(folder, model, model.backbone.export(), **about)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer = nn.Linear(model.width, len(CLASSES))
    about = {"classes": list(CLASSES), "blocks": 1, "scales": [], "data": "x"}
    entry.keep_part(Head.from_layers(SEGMENTER, nn.Sequential(layer), {}), about)
    return folder


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A segmenter, two photographs of odd sizes, of which one is stored on its side, and a damaged file."""
    monkeypatch.chdir(tmp_path)
    segmenting(Path("a"))
    Path("photos").mkdir()
    exif = Image.Exif()
    for number, size in enumerate(SIZES):
        picture = photographs()[number].resize(size)
        exif[0x0112] = 6 if number else 1
        stored = picture.transpose(Image.Transpose.ROTATE_90) if number else picture
        stored.save(f"photos/{number}.png", exif=exif)
    Path("photos/damaged.png").write_bytes(b"no picture")
    return tmp_path


def test_masks_have_the_size_of_the_image_and_the_classes_of_the_nearest_places(place: Path) -> None:
    model = sslkit.load("a")
    found = model.predict("photos", **QUICK)
    assert model.classes == CLASSES and found.unreadable == ("photos/damaged.png",)
    weight, bias = model.dense.layers[0].weight, model.dense.layers[0].bias
    for number, (width, height) in enumerate(SIZES):
        picture = np.asarray(photographs()[number].resize((width, height)), np.float32).transpose(2, 0, 1) / 255
        pixels = nn.functional.interpolate(torch.from_numpy(picture)[None], (32, 32), mode="bicubic", antialias=True)
        with torch.no_grad():
            tokens = model.net.forward_features(model.normalize(pixels.clamp(0, 1)))[:, model.net.num_prefix_tokens :]
            scores = (model.net.fc_norm(tokens)[0] @ weight.T + bias).T.unflatten(
                1, (-1, 32 // model.net.patch_embed.patch_size[0])
            )
        rows, columns = (
            (np.arange(n) + 0.5) * cells / n - 0.5 for n, cells in zip((height, width), scores.shape[1:], strict=True)
        )
        grid = np.meshgrid(rows, columns, indexing="ij")
        large = np.stack([map_coordinates(plane, grid, order=1, mode="nearest") for plane in scores.double().numpy()])
        top = np.sort(large, 0)
        clear = top[-1] - top[-2] > 1e-4
        mask = found.masks[number]
        assert mask.shape == (height, width) and mask.dtype == np.uint8 and clear.mean() > 0.99
        np.testing.assert_array_equal(mask[clear], large.argmax(0)[clear])
        assert len(np.unique(mask)) > 1
        np.testing.assert_allclose(found.sure[number], scores.softmax(0).amax(0).mean(), atol=1e-5)


def test_large_pictures_are_enlarged_class_by_class(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = torch.randn(7, 5, 4, generator=torch.Generator().manual_seed(0))
    whole = enlarge(scores, (31, 17))
    assert torch.equal(whole, nn.functional.interpolate(scores[None], (31, 17), mode="bilinear")[0].argmax(0).byte())
    for at_once in (1, 3):
        monkeypatch.setattr(places, "ENLARGED", at_once * 31 * 17)
        assert torch.equal(enlarge(scores, (31, 17)), whole)


def test_predict_writes_shares_and_pictures_of_the_masks(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    done = sslkit.predict("a", "photos", out="p.csv", device="cpu", cache=None, **QUICK)
    found = sslkit.load("a").predict("photos", **QUICK)
    with Path("p.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["path", "mask", "path_", "sky", "'=leaf"] and len(rows) == 2
    colours = (255 * palette(CLASSES)).round().astype(np.uint8)
    for row, mask, name in zip(rows, found.masks, found.ids, strict=True):
        picture = Image.open(row["mask"])
        assert picture.mode == "P" and row["path"] == name
        np.testing.assert_array_equal(np.asarray(picture), mask)
        np.testing.assert_array_equal(np.asarray(picture.convert("RGB")), colours[mask])
        shares = [float(row[key]) for key in ("path_", "sky", "'=leaf")]
        np.testing.assert_allclose(shares, [(mask == number).mean() for number in range(3)], atol=1e-6)
    assert Path("p-masks/classes.csv").read_text().split() == ["number,class", "0,path", "1,sky", "2,'=leaf"]
    told = str(done)
    for line in (
        "predicted 2 images: p.csv",
        "pixels    ",
        "masks     p-masks",
        "left out  1 image",
        "sheet     p.png",
    ):
        assert line in told, told
    assert Path("p.png").is_file() and str(found).splitlines()[0].split() == ["path", "path_", "sky", "=leaf"]
    assert "earlier call" not in caplog.text
    sslkit.predict("a", rows[0]["path"], out="p.csv", device="cpu", cache=None, **QUICK)
    assert "p-masks also has 1 mask of an earlier call" in " ".join(caplog.text.split())


def test_no_export_holds_a_segmenter(place: Path) -> None:
    with pytest.raises(UserError, match="a is a segmenter, which no format holds: predict with it here"):
        sslkit.zoo.export("a", to="timm")
