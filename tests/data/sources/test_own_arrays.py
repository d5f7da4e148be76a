"""Arrays and tensors of a Python program."""

from pathlib import Path

import numpy as np
import pytest
import torch

import evaluation
import sslkit
from sslkit.data.decode.scale import Scale
from sslkit.data.sources.named import is_divisible, open_images
from sslkit.data.sources.own_arrays import Arrays
from sslkit.errors import UserError

CLIPART = open_images("clipart", split="train")
PIXELS, LABELS = CLIPART.pixels[::8][:60], CLIPART.labels[::8][:60]  # (60, 3, 48, 48)
SMALL = {"batch_size": 16, "workers": 0, "epochs": 1, "eval.k": 3, "eval.tsne": 0}


@pytest.mark.parametrize(
    "given",
    [
        PIXELS,
        torch.from_numpy(PIXELS),
        PIXELS.transpose(0, 2, 3, 1),
        torch.from_numpy(PIXELS).float() / 255,
        PIXELS.astype(np.float64),
        PIXELS.astype(np.int64),
    ],
)
def test_every_kind_is_the_same_images(given) -> None:
    images = open_images(given)
    assert images.image_size == 48 and images.channels == 3 and images.labels is None
    assert np.array_equal(images.__getitems__([0, 59])["images"].numpy(), PIXELS[[0, 59]])


def test_the_shape_that_does_not_tell_is_asked_for() -> None:
    spectral = np.zeros((4, 7, 9, 8), np.uint8)
    with pytest.raises(UserError, match="the channels may be first or last; in Python channels_last= says it"):
        open_images(spectral)
    assert open_images(spectral, channels_last=True).pixels.shape == (4, 8, 7, 9)
    assert open_images(spectral, channels_last=False).pixels.shape == spectral.shape
    with pytest.raises(UserError, match="channels_last=True is for an array or a tensor"):
        open_images("digits", channels_last=True)
    with pytest.raises(UserError, match=r"is for images \(N, H, W, C\)"):
        open_images(np.zeros((4, 7, 9), np.uint8), channels_last=True)


def test_labels_and_a_part_for_evaluation() -> None:
    images = open_images((PIXELS, torch.from_numpy(LABELS)))
    assert images.labels.tolist() == np.unique(LABELS, return_inverse=True)[1].tolist()
    assert is_divisible(images) and is_divisible((PIXELS, LABELS))
    train, test = (evaluation.datasets.open_split((PIXELS, LABELS), split) for split in ("train", "test"))
    assert len(train) + len(test) == 60 and not set(train.ids) & set(test.ids)
    names = images.classes
    assert [names[y] for y in test.y[:3]] == [names[images.labels[row]] for row in _rows(test.images.pixels[:3])]
    with pytest.raises(UserError, match=r"60 images and labels of shape \(59,\)"):
        open_images((PIXELS, LABELS[:59]))


def _rows(pixels: np.ndarray) -> list[int]:
    return [int(np.flatnonzero((one == PIXELS).all((1, 2, 3)))[0]) for one in pixels]


def test_values_of_more_than_8_bits_share_one_range() -> None:
    scan = (PIXELS[:, :1].astype(np.uint16) << 4) + 7
    with pytest.warns(UserWarning, match=r"array: 16-bit images, whose .*range=\[0,4095\]"):
        images = open_images(scan)
    assert images.range == (0, 4095) and np.abs(images.pixels.astype(int) - PIXELS[:, :1]).max() <= 1
    images.rescale(Scale((0, 65535)))
    assert images.pixels.max() == round(int(scan.max()) / 257)
    part = images.part(np.array([1, 2]), "test")
    assert np.array_equal(part.pixels, images.pixels[1:3]) and part.digest != images.digest


def test_wrong_arrays() -> None:
    for given, said in (
        (np.zeros((3, 0, 4, 4)), "have no pixels"),
        (np.full((2, 4, 4), np.nan), "NaN or infinite pixels"),
        (np.array(["a", "b"]), "pixels are integers or floats"),
        ([PIXELS[0], PIXELS[1], PIXELS[2]], "a list of ndarray, not of paths: for one array write numpy.stack"),
    ):
        with pytest.raises(UserError, match=said):
            open_images(given)


def test_a_run_on_an_array_resumes_and_its_entry_is_judged(tmp_path: Path) -> None:
    how = {"method": "simclr", "backbone": "narrow_resnet", "out": str(tmp_path), **SMALL}
    entry = sslkit.pretrain(how, data=(PIXELS, LABELS))
    assert entry.card["data"]["source"] == "dataset:array" and entry.card["data"]["images"] == 60
    again = sslkit.pretrain(how, data=(torch.from_numpy(PIXELS), LABELS), resume=True)
    assert again.folder == entry.folder
    (result,) = evaluation.evaluate(entry.folder, data=(PIXELS, LABELS), protocols=["knn"], cache=tmp_path / "cache")
    assert result.n == len(evaluation.datasets.open_split((PIXELS, LABELS), "test"))


def test_arrays_are_a_data_set_of_torch() -> None:
    arrays = Arrays(PIXELS, LABELS)
    assert len(arrays) == 60 and np.array_equal(arrays[3], PIXELS[3])
