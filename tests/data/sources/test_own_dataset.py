"""Datasets of a Python program."""

import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Subset, TensorDataset, random_split

from sslkit.data.images import ImageOptions
from sslkit.data.sources.named import is_divisible, open_images, reusable, splits
from sslkit.data.sources.own_dataset import OwnImages, open_dataset
from sslkit.errors import UserError

DIGITS = load_digits()
PIXELS = np.round(DIGITS.images[:40] * 255 / 16).astype(np.uint8)
TARGETS = DIGITS.target[:40]


class Own(Dataset):
    """Forty digits, as `made` makes them of pixels; with labels as the second part."""

    def __init__(self, made: Callable[[np.ndarray], Any], labels: bool = True, **attributes: Any) -> None:
        self.made, self.labels = made, labels
        vars(self).update(attributes)
        self.read: list[int] = []

    def __len__(self) -> int:
        return len(PIXELS)

    def __getitem__(self, row: int) -> Any:
        self.read.append(row)
        image = self.made(PIXELS[row])
        return (image, int(TARGETS[row])) if self.labels else image


def pixels(images: OwnImages) -> np.ndarray:
    return images.__getitems__(list(range(len(images))))["images"].numpy()


@pytest.mark.parametrize(
    "made",
    [
        Image.fromarray,
        lambda x: x,
        lambda x: x[:, :, None],
        lambda x: x[None],
        lambda x: torch.from_numpy(x)[None],
        lambda x: torch.from_numpy(x)[None].float() / 255,
        lambda x: x.astype(np.float64),
        lambda x: x.astype(np.int64),
        lambda x: torch.from_numpy(x.astype(np.int32)),
    ],
)
def test_items_of_every_kind_are_the_same_images(made: Callable) -> None:
    images = open_images(Own(made), image_size=8)
    assert len(images) == 40 and images.channels == 1 and images.decodes and images.name == "Own"
    assert np.array_equal(pixels(images)[:, 0], PIXELS)
    assert images.labels.tolist() == TARGETS.tolist() and images.classes == list(map(str, range(10)))


@pytest.mark.parametrize("made", [lambda x: np.stack([x] * 3, -1), lambda x: torch.from_numpy(np.stack([x] * 3)) / 255])
def test_colour(made: Callable) -> None:
    images = open_images(Own(made), image_size=8)
    assert images.channels == 3 and np.array_equal(pixels(images)[:, 1], PIXELS)


def test_other_kinds_of_pixels() -> None:
    assert set(np.unique(pixels(open_images(Own(lambda x: x > 99), image_size=8)))) == {0, 255}
    rgba = open_images(Own(lambda x: Image.fromarray(x).convert("RGBA"), labels=False), image_size=8)
    assert rgba.labels is None and np.array_equal(pixels(rgba)[:, 0], PIXELS)


@pytest.mark.parametrize(
    ("made", "given", "levels"),
    [
        (lambda x: x.astype(np.uint16) * 16, None, (0, 4095)),  # 12 bits: no level is lost
        (lambda x: x.astype(np.float32) / 128 - 1, None, (-1, 127 / 128)),  # as after a normalisation
        (lambda x: x.astype(np.int64), (0, 510), (0, 510)),
    ],
)
def test_values_of_more_than_8_bits_have_one_range(made: Callable, given: tuple | None, levels: tuple) -> None:
    images = open_images(Own(made), image_size=8, range=given)
    low, high = levels
    expected = np.rint((np.stack([made(x) for x in PIXELS]).astype(np.float64) - low) / (high - low) * 255)
    assert np.abs(pixels(images)[:, 0] - expected).max() <= 1 and len(np.unique(pixels(images))) > 10


def test_any_number_of_channels() -> None:
    images = open_images(Own(lambda x: np.stack([x, x // 2, *[x] * 5], -1)), image_size=8)
    assert images.channels == 7 and np.array_equal(pixels(images)[:, 1], PIXELS // 2)


def test_images_of_different_sizes_and_their_aspect() -> None:
    class Sizes(Dataset):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, row: int) -> Image.Image:
            return Image.new("RGB", (10 * (row + 1), 10), (row, 0, 0))

    batch = open_images(Sizes(), image_size=5).__getitems__([0, 2])
    assert batch["images"].shape == (2, 3, 5, 5) and batch["aspect"].tolist() == [1, 3]


def test_an_image_that_the_data_set_keeps_is_neither_closed_nor_changed(tmp_path) -> None:
    Image.new("RGB", (800, 600), (10, 20, 30)).save(tmp_path / "1.jpg")
    kept = Image.open(tmp_path / "1.jpg")

    class Keeping(Dataset):
        def __len__(self) -> int:
            return 1

        def __getitem__(self, row: int) -> Image.Image:
            return kept

    images = open_images(Keeping(), image_size=8)
    for _ in range(3):
        assert images[0]["bad"] == []
    assert kept.size == (800, 600) and kept.getpixel((0, 0))[0] in range(8, 13)


def test_labels_are_read_from_targets_without_reading_items() -> None:
    own = Own(lambda x: x, targets=TARGETS.tolist(), classes=[f"digit {k}" for k in range(10)])
    images = open_images(own, image_size=8)
    assert images.classes[3] == "digit 3" and images.labels.tolist() == TARGETS.tolist()
    assert len(set(own.read)) < 40  # some are looked at for their kind of pixels
    plain = Own(lambda x: x)
    assert open_images(plain, image_size=8).labels.tolist() == TARGETS.tolist() and len(set(plain.read)) == 40


def test_subsets_and_several_data_sets() -> None:
    own = Own(lambda x: x, targets=torch.from_numpy(TARGETS))
    part = Subset(own, [5, 3, 39])
    images = open_images(part, image_size=8)
    assert [images.classes[label] for label in images.labels] == [str(label) for label in TARGETS[[5, 3, 39]]]
    both = ConcatDataset([part, own])
    assert open_images(both, image_size=8).labels.tolist() == [*TARGETS[[5, 3, 39]], *TARGETS]
    first, _ = random_split(own, [30, 10], torch.Generator().manual_seed(0))
    images = open_images(first, image_size=8)
    assert np.array_equal(pixels(images)[:, 0], PIXELS[first.indices])


def test_a_subset_without_some_classes_keeps_the_numbers_of_names() -> None:
    own = Own(lambda x: x, targets=TARGETS, classes=[f"digit {k}" for k in range(10)])
    rows = np.flatnonzero(TARGETS >= 8)
    images = open_images(Subset(own, rows), image_size=8)
    assert [images.classes[label] for label in images.labels] == [f"digit {k}" for k in TARGETS[rows]]


def test_tensors_in_memory() -> None:
    own = TensorDataset(torch.from_numpy(PIXELS)[:, None] / 255, torch.from_numpy(TARGETS))
    images = open_images(own, image_size=8)
    assert np.array_equal(pixels(images)[:, 0], PIXELS) and images.labels.tolist() == TARGETS.tolist()


@pytest.mark.parametrize(
    ("labels", "classes", "numbers"),
    [
        (["dog", "cat", "dog"], ["cat", "dog"], [1, 0, 1]),
        ([1.0, 0.0, float("nan")], ["0", "1"], [1, 0, -1]),
        ([True, False, True], ["False", "True"], [1, 0, 1]),
        ([5, -1, 7], ["5", "7"], [0, -1, 1]),
        ([0.5, 1.0, 2.0], None, None),
        ([{"boxes": 1}] * 3, None, None),
        ([torch.zeros(4)] * 3, None, None),
    ],
)
def test_labels_of_every_kind(labels: list, classes: list | None, numbers: list | None) -> None:
    class Few(Dataset):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, row: int) -> tuple:
            return PIXELS[row], labels[row]

    if classes is None:
        with pytest.warns(UserWarning, match="Few: its labels are .*, which are no classes, and not used"):
            assert open_images(Few()).labels is None
    else:
        images = open_images(Few())
        assert images.classes == classes and images.labels.tolist() == numbers


def test_the_identity_is_that_of_the_pixels() -> None:
    first = open_images(Own(lambda x: x), image_size=8)
    assert open_images(Own(lambda x: x), image_size=8).digest == first.digest
    assert open_images(Own(lambda x: x ^ (x == x[3, 3])), image_size=8).digest != first.digest
    assert open_images(Own(lambda x: x), image_size=16).digest != first.digest
    other = first.at(image_size=8, channels=1, fit="crop")
    assert other.content_digest == first.content_digest and other.digest != first.digest


def test_the_content_is_read_once_for_all_copies() -> None:
    own = Own(lambda x: x, targets=TARGETS)
    images = open_images(own, image_size=8)
    _ = images.listing
    before = len(own.read)
    _ = (
        images.digest,
        images.at(image_size=9, channels=3, fit="crop").digest,
        images.part(np.array([3, 4]), "test").digest,
    )
    assert len(own.read) == before + 40


def test_items_that_vary_have_no_identity_and_that_is_said() -> None:
    rng = np.random.default_rng(0)
    varied = lambda x: np.ascontiguousarray(x[:, ::-1]) if rng.random() < 0.5 else x  # noqa: E731
    with pytest.warns(UserWarning, match="reading a row twice gives other pixels, as a random transform does"):
        first, second = (open_dataset(Own(varied), ImageOptions()) for _ in range(2))
    assert first.varies and first.digest == first.digest != second.digest
    assert not open_images(Own(lambda x: x)).varies


def test_an_item_that_cannot_be_read_is_replaced_and_named() -> None:
    def made(x: np.ndarray) -> Any:
        if np.array_equal(x, PIXELS[7]):
            raise OSError("the disk is gone")
        return "no image" if np.array_equal(x, PIXELS[9]) else x

    images = open_images(Own(made), image_size=8)
    batch = images.__getitems__([6, 7, 9])
    assert batch["bad"] == ["Own[7]", "Own[9]"] and batch["index"].tolist() == [6, 8, 10] and images.labels[7] == -1
    with pytest.raises(UserError, match=r"cannot read Own\[9\]: str instead of an image: an item is a PIL image"):
        open_images(Own(made), image_size=8, on_error="raise").__getitems__([9])


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda x: np.zeros(8, np.uint8), "shape"),
        (lambda x: np.zeros((2, 3, 8, 8), np.uint8), "shape"),
        (lambda x: np.zeros((0, 0, 3), np.uint8), "no pixels"),
        (lambda x: {"image": x}, "dict instead of an image"),
        (lambda x: None, "NoneType instead of an image"),
        (lambda x: np.array(["a"]), "shape|no image"),
        (lambda x: np.full((4, 4), np.nan), "NaN or infinite pixels"),
    ],
)
def test_items_that_are_no_images(made: Callable, message: str) -> None:
    with pytest.raises(UserError, match=f"Own: none of its 40 images can be read; .*{message}"):
        open_images(Own(made, targets=TARGETS))


def test_data_sets_that_cannot_be_asked_for_rows() -> None:
    class Stream(IterableDataset):
        def __iter__(self) -> Any:
            yield PIXELS[0]

    class Empty(Dataset):
        def __len__(self) -> int:
            return 0

        def __getitem__(self, row: int) -> Any:
            raise IndexError(row)

    with pytest.raises(UserError, match="Stream has no length and no rows to ask for"):
        open_images(Stream())
    with pytest.raises(UserError, match="Empty has no items"):
        open_images(Empty())
    with pytest.raises(UserError, match="Own has no split 'test'"):
        open_images(Own(lambda x: x), split="test")
    with pytest.raises(UserError, match="dataset:Own was a Dataset of a Python program: open it there"):
        open_images("dataset:Own")


def test_it_is_opened_once_and_can_be_divided() -> None:
    own = Own(lambda x: x)
    images = reusable(own)
    assert isinstance(images, OwnImages) and reusable(images) is images and reusable("digits") == "digits"
    assert splits(own) == ("train",) == splits(images) and is_divisible(own) and is_divisible(images)
    part = images.part(np.array([4, 2]), "test")
    assert not is_divisible(part) and part.image_name(0) == "4" and part.path(1) == "Own[2]"
    assert part.labels.tolist() == TARGETS[[4, 2]].tolist()


def test_copies_and_workers_read_the_same() -> None:
    images = open_images(TensorDataset(torch.from_numpy(PIXELS)), image_size=8)
    copy = pickle.loads(pickle.dumps(images))
    assert copy.digest == images.digest and np.array_equal(pixels(copy), pixels(images))
    loader = torch.utils.data.DataLoader(
        images, batch_sampler=[[1, 2], [3]], collate_fn=lambda batch: batch, num_workers=1
    )
    assert [batch["index"].tolist() for batch in loader] == [[1, 2], [3]]


def test_threads_read_one_after_the_other() -> None:
    reading, together = [], []

    def made(x: np.ndarray) -> np.ndarray:
        reading.append(1)
        together.append(len(reading))
        threading.Event().wait(0.001)
        reading.pop()
        return x

    images = open_images(Own(made, targets=TARGETS), image_size=8)
    thread = threading.Thread(target=lambda: images.digest)
    thread.start()
    pixels(images)
    thread.join()
    assert max(together) == 1


@pytest.mark.parametrize("length", [10**12, 2**62])
def test_a_length_without_end_is_refused(length: int) -> None:
    class Endless(Own):
        def __len__(self) -> int:
            return length

    endless = Endless(Image.fromarray)
    with pytest.raises(UserError, match=rf"Endless says that it has {length:,} items: .* more than the .* free bytes"):
        open_images(endless)
    assert not endless.read
