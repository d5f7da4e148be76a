"""The sources that are arrays, and what `open_images` makes of its argument."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Subset

from sslkit.data.arrays import ArrayImages, convert_channels, to_nchw
from sslkit.data.images import Identity, ImageOptions
from sslkit.data.loader import collate
from sslkit.data.sources import builtin
from sslkit.data.sources.named import Images, open_images, splits
from sslkit.errors import UserError


def test_a_batch_has_the_promised_types() -> None:
    images = open_images("fashion_mnist")
    batch = images.__getitems__([5, 0, 5])
    assert batch["images"].shape == (3, 1, 28, 28) and batch["images"].dtype is torch.uint8
    assert batch["index"].tolist() == [5, 0, 5] and batch["index"].dtype is torch.int64
    assert batch["label"].tolist() == images.labels[[5, 0, 5]].tolist() and batch["label"].dtype is torch.int64
    assert batch["aspect"].tolist() == [1, 1, 1] and batch["aspect"].dtype is torch.float32
    assert batch["bad"] == [] and collate(batch) is batch
    row = images[-1]
    assert row["images"].shape == (1, 28, 28) and row["index"] == 7999 and row.keys() == batch.keys()
    with pytest.raises(IndexError):
        images[8000]


def test_opening_twice_gives_the_same_and_a_pickle_too() -> None:
    first, second = open_images("clipart"), open_images("clipart")
    copy = pickle.loads(pickle.dumps(first))
    for other in (second, copy):
        assert other.digest == first.digest
        assert torch.equal(other.__getitems__([3, 9])["images"], first.__getitems__([3, 9])["images"])


def test_the_digest_follows_pixels_labels_and_options(tmp_path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (4, 6, 6), dtype=np.uint8)

    def digest(pixels: np.ndarray, labels: list[int], **options: int | str) -> str:
        np.savez(tmp_path / "a.npz", x=pixels, y=np.array(labels))
        return open_images(tmp_path / "a.npz", **options).digest

    other = x.copy()
    other[2, 3, 3] ^= 1
    same = digest(x, [0, 1, 0, 1])
    assert same == digest(x, [0, 1, 0, 1])
    variants = [digest(other, [0, 1, 0, 1]), digest(x, [0, 1, 1, 1]), digest(x, [0, 1, 0, 1], image_size=5)]
    variants += [digest(x, [0, 1, 0, 1], channels=3), digest(x, [0, 1, 0, 1], fit="crop")]
    assert len({same, *variants}) == 6


def test_images_are_opened_again_only_when_something_else_is_asked() -> None:
    train = open_images("digits", image_size=16)
    assert open_images(train) is train and splits(train) == ("train", "test")
    test = open_images(train, split="test")
    assert test.split == "test" and test.image_size == 16 and len(test) == 359
    assert open_images(train, channels=3).channels == 3


def test_images_made_in_python_have_no_other_split() -> None:
    own = ArrayImages(np.zeros((2, 1, 4, 4), np.uint8), Identity("own"), ImageOptions())
    assert open_images(own) is own and "train" in own.splits
    with pytest.raises(UserError, match=r"own was built in Python.*another split"):
        open_images(own, split="test")


def test_resizing_averages_and_keeps_the_aspect(tmp_path) -> None:
    x = np.zeros((1, 4, 8), np.uint8)
    x[:, :, 4:] = 200
    np.savez(tmp_path / "wide.npz", x=x)
    squashed = open_images(tmp_path / "wide.npz", image_size=4)[0]
    assert squashed["aspect"] == 2 and squashed["images"][0, 0].tolist()[::3] == [0, 200]
    cropped = open_images(tmp_path / "wide.npz", image_size=4, fit="crop")[0]
    assert cropped["aspect"] == 1 and cropped["images"][0].tolist() == [[0, 0, 200, 200]] * 4
    assert open_images(tmp_path / "wide.npz").image_size == 8
    stripes = np.tile(np.array([255, 0, 0, 255], np.uint8), (1, 8, 2))
    np.savez(tmp_path / "stripes.npz", x=stripes)
    small = open_images(tmp_path / "stripes.npz", image_size=2)[0]["images"]
    assert small.min() > 60 and small.max() < 200  # without antialiasing only the dark middle would be seen
    np.savez(tmp_path / "steps.npz", x=np.array([[[0, 1], [1, 1]]], np.uint8))
    assert open_images(tmp_path / "steps.npz", image_size=1)[0]["images"].item() == 1  # 0.75 is rounded


def test_channels_convert() -> None:
    gray = torch.tensor([[[[10, 20]]]], dtype=torch.uint8)
    assert convert_channels(gray, 3)[0, :, 0].tolist() == [[10, 20]] * 3
    assert convert_channels(gray, 4)[0, :, 0, 0].tolist() == [10, 10, 10, 255]
    rgb = torch.tensor([255, 0, 0], dtype=torch.uint8).view(1, 3, 1, 1)
    assert convert_channels(rgb, 1).item() == 76
    rgba = torch.tensor([200, 100, 0, 51], dtype=torch.uint8).view(1, 4, 1, 1)
    assert convert_channels(rgba, 3, over_white=True).flatten().tolist() == [244, 224, 204]  # a fifth over white
    assert convert_channels(rgba, 3).flatten().tolist() == [200, 100, 0]


def test_six_bands_pass_but_do_not_convert(tmp_path) -> None:
    np.savez(tmp_path / "bands.npz", x=np.zeros((3, 8, 8, 6), np.uint8))
    images = open_images(tmp_path / "bands.npz")
    assert images.channels == 6 and images[0]["images"].shape == (6, 8, 8)
    with pytest.raises(UserError, match=r"6 channels, which cannot become data.channels=3"):
        open_images(tmp_path / "bands.npz", channels=3)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((2, 5, 7), (2, 1, 5, 7)),
        ((2, 5, 7, 3), (2, 3, 5, 7)),
        ((2, 3, 5, 7), (2, 3, 5, 7)),
        ((2, 3, 4, 4), (2, 3, 4, 4)),
        ((2, 4, 4, 3), (2, 3, 4, 4)),
        ((2, 8, 8, 13), (2, 13, 8, 8)),
        ((2, 13, 8, 8), (2, 13, 8, 8)),
    ],
)
def test_the_channel_dimension_is_found(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape)).reshape(shape)
    found = to_nchw(array, "x")
    assert found.shape == expected and np.array_equal(np.sort(found.ravel()), array.ravel())


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("fashon_mnist", "did you mean 'fashion_mnist'.*a folder of images .* a .npz file"),
        ("cifar11", "did you mean 'cifar10'"),
        ("no/such/folder", "there is no file or folder /.*no/such/folder"),
        ("torchvision:CIFAR1", "torchvision has no set of images 'CIFAR1': did you mean 'CIFAR10'"),
    ],
)
def test_an_unknown_source_names_the_nearest(source: str, message: str) -> None:
    for ask in (open_images, splits):
        with pytest.raises(UserError, match=message):
            ask(source)


def test_a_file_where_a_folder_should_be(tmp_path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"...")
    with pytest.raises(UserError, match=r"photo.jpg is a file: give the folder"):
        open_images(tmp_path / "photo.jpg")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fit": "crops"}, "fit must be squash or crop, got 'crops': did you mean 'crop'"),
        ({"on_error": "ignore"}, "on_error must be skip or raise, got 'ignore'"),
        ({"image_size": 0}, "image_size must be a whole number, at least 1 .*got 0"),
        ({"channels": -1}, "channels must be a whole number, at least 1 .*got -1"),
        ({"channels": 2}, "cannot become data.channels=2"),
        ({"split": "tset"}, "digits has no split 'tset': did you mean 'test'"),
    ],
)
def test_options_out_of_range(options: dict[str, int | str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        open_images("digits", **options)


def test_licences_ship_and_the_package_stays_small() -> None:
    folder = builtin._FOLDER
    assert sum(path.stat().st_size for path in folder.glob("*.npz")) < 18e6
    assert "Copyright (c) 2017 Zalando SE" in (folder / "LICENSE.fashion_mnist").read_text()
    assert "Open Font License" in (folder / "glyphs.txt").read_text()
    assert "public domain" in (folder / "clipart.txt").read_text()
    assert isinstance(open_images("digits"), Images)


def test_bicubic_is_another_resize_with_another_digest() -> None:
    arrays = open_images("clipart", image_size=32)
    cubic = open_images("clipart", image_size=32, interpolation="bicubic")
    a, b = (images.__getitems__([0, 1, 2])["images"].float() for images in (arrays, cubic))
    assert 0 < (a - b).abs().mean() < 8
    assert arrays.digest != cubic.digest
    shown = [Image.fromarray(image.transpose(1, 2, 0)).resize((32, 32), Image.BICUBIC) for image in arrays.pixels[:3]]
    expected = torch.from_numpy(np.stack([np.asarray(image) for image in shown])).permute(0, 3, 1, 2)
    assert (b - expected.float()).abs().max() <= 2
    with pytest.raises(
        UserError, match="interpolation must be bilinear or bicubic, got 'cubic': did you mean 'bicubic'"
    ):
        open_images("clipart", interpolation="cubic")


def test_bicubic_files_are_pillows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    picture = Image.fromarray(rng.integers(0, 256, (40, 40, 3), dtype=np.uint8))
    picture.save(tmp_path / "a.png")
    pixels = open_images(tmp_path, image_size=32, interpolation="bicubic").__getitems__([0])["images"][0]
    assert (pixels.permute(1, 2, 0).numpy() == np.asarray(picture.resize((32, 32), Image.Resampling.BICUBIC))).all()


def test_the_same_images_read_in_another_way(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        Image.fromarray(rng.integers(0, 256, (20, 30, 3), dtype=np.uint8)).save(tmp_path / f"{name}.png")
    wanted = {"image_size": 16, "channels": 1, "fit": "crop", "interpolation": "bicubic"}
    for source in ("clipart", tmp_path):
        plain = open_images(source)
        before = plain.digest
        other, opened = plain.at(**wanted), open_images(source, **wanted)
        assert torch.equal(other.__getitems__([0, 1])["images"], opened.__getitems__([0, 1])["images"])
        assert other.digest == opened.digest != before == plain.digest
        with pytest.raises(UserError, match="channels"):
            plain.at(image_size=16, channels=5, fit="crop")


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["arrays", "files", "part", "subset"])
def test_a_plain_data_loader_of_torch_reads_them(kind: str, workers: int, tmp_path: Path) -> None:
    for label in "ab":
        (tmp_path / label).mkdir()
        for row in range(3):
            Image.new("RGB", (8, 8), (row, 0, 0)).save(tmp_path / label / f"{row}.png")
    images = open_images("digits" if kind == "arrays" else tmp_path, image_size=8)
    rows = np.array([0, 1, 3, 4, 5])
    images = {"part": lambda: images.part(rows, "train"), "subset": lambda: Subset(images, rows.tolist())}.get(
        kind, lambda: images
    )()
    read = list(DataLoader(images, batch_size=2, shuffle=True, num_workers=workers))
    assert [len(batch["images"]) for batch in read[:2]] == [2, 2] and read[0]["images"].shape[2:] == (8, 8)
    there = sorted(row for batch in read for row in batch["index"].tolist())
    assert there == (rows.tolist() if kind == "subset" else list(range(len(images))))
    labels = images.dataset.labels if kind == "subset" else images.labels
    assert all((labels[batch["index"]] == batch["label"].numpy()).all() for batch in read)


def test_a_list_of_many_folders_may_be_longer_than_a_path(tmp_path: Path) -> None:
    folders = [tmp_path / f"{'a long name of a folder of pictures ' * 3}{number:02}" for number in range(60)]
    for folder in folders:
        folder.mkdir()
        Image.new("RGB", (8, 8)).save(folder / "a.png")
    assert len(open_images(folders, image_size=8)) == 60 == len(open_images(",".join(map(str, folders)), image_size=8))
    assert splits(folders) == ("train",)
    with pytest.raises(UserError, match=r"names '.*/none', and there is no such folder or list of files"):
        open_images([*folders, tmp_path / "none"])
