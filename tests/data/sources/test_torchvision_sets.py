"""torchvision's data sets, on files written here in the form that each class reads."""

import gzip
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from sslkit.data.sources import torchvision_sets
from sslkit.data.sources.named import open_images, splits
from sslkit.errors import UserError


def write_idx(path: Path, array: np.ndarray) -> None:
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(header + array.tobytes())


@pytest.fixture
def fashion(tmp_path) -> Path:
    """Some of the real images in torchvision's own layout."""
    for split, prefix in (("train", "train"), ("test", "t10k")):
        images = open_images("fashion_mnist", split=split)
        raw = tmp_path / "FashionMNIST" / "raw"
        write_idx(raw / f"{prefix}-images-idx3-ubyte", images.pixels[:60, 0])
        write_idx(raw / f"{prefix}-labels-idx1-ubyte", images.labels[:60].astype(np.uint8))
    return tmp_path


@pytest.fixture
def pets(tmp_path) -> Path:
    """Oxford Pets with five pictures, one of them CMYK and one gray, as in the real set."""
    images, annotations = tmp_path / "oxford-iiit-pet" / "images", tmp_path / "oxford-iiit-pet" / "annotations"
    images.mkdir(parents=True)
    annotations.mkdir()
    modes = ["RGB", "CMYK", "L", "RGB", "RGB"]
    names = ["Abyssinian_1", "Abyssinian_2", "beagle_1", "beagle_2", "beagle_3"]
    for i, (mode, name) in enumerate(zip(modes, names, strict=True)):
        Image.new(mode, (20 + 10 * i, 20)).save(images / f"{name}.jpg")
    lines = [f"{name} {1 if name.startswith('A') else 2} 1 1\n" for name in names]
    (annotations / "trainval.txt").write_text("".join(lines[:4]))
    (annotations / "test.txt").write_text(lines[4])
    return tmp_path


@pytest.mark.parametrize("name", ["torchvision:FashionMNIST", "torchvision:fashionmnist"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_an_array_set_is_what_its_files_hold(fashion, name: str, split: str) -> None:
    images = open_images(f"{name}:{fashion}", split=split)
    embedded = open_images("fashion_mnist", split=split)
    assert splits(f"{name}:{fashion}") == ("train", "test") and not images.decodes
    assert (images.name, images.channels, images.native_size, len(images)) == ("FashionMNIST", 1, (28, 28), 60)
    assert np.array_equal(images.pixels, embedded.pixels[:60]) and np.array_equal(images.labels, embedded.labels[:60])
    assert images.classes[9] == "Ankle boot"


def test_a_plain_name_looks_below_data(fashion, monkeypatch) -> None:
    monkeypatch.chdir(fashion)
    (fashion / "data").mkdir()
    (fashion / "FashionMNIST").rename(fashion / "data" / "FashionMNIST")
    assert len(open_images("fashionmnist")) == 60


def test_cifar_pickles(tmp_path, monkeypatch) -> None:
    from torchvision.datasets import CIFAR10

    x = np.random.default_rng(0).integers(0, 256, (12, 3, 32, 32), dtype=np.uint8)
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for i in range(6):
        batch = {"data": x[2 * i : 2 * i + 2].reshape(2, -1), "labels": [i, 9]}
        (folder / ("test_batch" if i == 5 else f"data_batch_{i + 1}")).write_bytes(pickle.dumps(batch))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": [f"class {i}" for i in range(10)]}))
    with pytest.raises(UserError, match="not found or corrupted"):  # not the md5 of the real ones
        open_images(f"torchvision:CIFAR10:{tmp_path}")
    monkeypatch.setattr(CIFAR10, "_check_integrity", lambda self: True)
    monkeypatch.setitem(CIFAR10.meta, "md5", None)
    train, test = (open_images(f"torchvision:cifar10:{tmp_path}", split=split) for split in ("train", "test"))
    assert np.array_equal(train.pixels, x[:10]) and np.array_equal(test.pixels, x[10:])
    assert train.labels.tolist() == [0, 9, 1, 9, 2, 9, 3, 9, 4, 9] and test.classes[5] == "class 5"


def test_a_set_of_files_is_decoded_row_by_row(pets) -> None:
    images = open_images(f"torchvision:OxfordIIITPet:{pets}", image_size=8)
    assert images.decodes and images.channels == 3 and images.native_size is None
    batch = images.__getitems__([0, 1, 2, 3])
    assert batch["images"].shape == (4, 3, 8, 8) and batch["label"].tolist() == [0, 0, 1, 1]
    assert batch["aspect"].tolist() == [1, 1.5, 2, 2.5]
    assert images.classes == ["Abyssinian", "Beagle"]
    assert len(open_images(images, split="test")) == 1
    copy = pickle.loads(pickle.dumps(images))
    assert torch.equal(copy.__getitems__([2])["images"], batch["images"][2:3])


def test_a_corrupt_file_of_a_set_is_named(pets) -> None:
    broken = pets / "oxford-iiit-pet" / "images" / "Abyssinian_2.jpg"
    digest = open_images(f"torchvision:OxfordIIITPet:{pets}").digest
    broken.write_bytes(b"broken")
    images = open_images(f"torchvision:OxfordIIITPet:{pets}")
    batch = images.__getitems__([1])
    assert batch["bad"] == [str(broken)] and batch["index"].tolist() == [2] and batch["label"].tolist() == [1]
    assert images.digest != digest
    with pytest.raises(UserError, match=r"Abyssinian_2.jpg: it is no image of a known format"):
        open_images(images, on_error="raise").__getitems__([1])


def test_a_set_that_takes_a_loader_keeps_gray_and_never_decodes_whole(tmp_path) -> None:
    for name in ("Forest", "River"):
        folder = tmp_path / "eurosat" / "2750" / name
        folder.mkdir(parents=True)
        Image.new("L", (64, 64), 77).save(folder / f"{name}_1.jpg", quality=100)
    images = open_images(f"torchvision:EuroSAT:{tmp_path}", image_size=8)
    assert images.channels == 1 and images.classes == ["Forest", "River"] and images.labels.tolist() == [0, 1]
    assert images[1]["images"].unique().tolist() == [77] and splits("eurosat") == ("train",)


@pytest.mark.parametrize("name", ["FashionMNIST", "CIFAR10", "SVHN", "Food101", "DTD", "Places365", "EMNIST"])
def test_missing_files_say_where_and_how_to_get_them(tmp_path, name: str) -> None:
    with pytest.raises(UserError) as caught:
        open_images(f"torchvision:{name}:{tmp_path}")
    message = str(caught.value)
    assert f"torchvision's {name} cannot be opened from {tmp_path}" in message
    assert f"from torchvision.datasets import {name}; {name}('{tmp_path}'" in message
    assert message.count("download=True)") == 1 and "\n" not in message


def test_missing_files_are_listed_where_the_class_knows_them(tmp_path) -> None:
    with pytest.raises(UserError, match=r"cifar-10-batches-py/data_batch_1, .*cifar-10-batches-py/test_batch"):
        open_images(f"torchvision:CIFAR10:{tmp_path}")
    with pytest.raises(UserError, match="FashionMNIST/raw/t10k-images-idx3-ubyte"):
        open_images(f"torchvision:FashionMNIST:{tmp_path}")


@pytest.mark.parametrize("name", ["ImageNet", "StanfordCars", "FER2013"])
def test_sets_that_torchvision_cannot_fetch_say_so(tmp_path, name: str) -> None:
    with pytest.raises(UserError, match="torchvision cannot fetch it: get it from its authors"):
        open_images(f"torchvision:{name}:{tmp_path}")


@pytest.mark.parametrize("name", torchvision_sets.names().values())
def test_every_set_opens_each_of_its_splits_without_a_socket(tmp_path, monkeypatch, name: str) -> None:
    def no_network(*args: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr("socket.socket.connect", no_network)
    source = f"torchvision:{name}:{tmp_path}"
    assert splits(source)[0] == "train"
    for split in splits(source):
        with pytest.raises(UserError, match=f"torchvision's {name} cannot be opened"):
            open_images(source, split=split)
    with pytest.raises(UserError, match="no split 'nothing'"):
        open_images(source, split="nothing")


def test_the_list_holds_images_and_neither_pairs_nor_films() -> None:
    names = set(torchvision_sets.names().values())
    assert {"CIFAR10", "STL10", "FashionMNIST", "ImageNet", "Food101", "SUN397", "EMNIST"} <= names
    assert not names & {"Kinetics", "UCF101", "SintelStereo", "FlyingChairs", "FakeData", "ImageFolder"}


def test_a_zipped_set_is_not_taken_for_the_files(fashion) -> None:
    raw = fashion / "FashionMNIST" / "raw"
    for path in list(raw.iterdir()):
        (raw / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    with pytest.raises(UserError, match="Dataset not found"):
        open_images(f"torchvision:FashionMNIST:{fashion}")
