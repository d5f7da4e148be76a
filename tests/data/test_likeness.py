"""Copies of clip art keep near hashes, others do not; groups have no chains and do not depend on the listing."""

import io

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps

from sslkit import open_images
from sslkit.data.copies import nearest_across
from sslkit.data.likeness import (
    BITS,
    HashIndex,
    _mirror,
    count_bits,
    count_differences,
    group_near_copies,
    hash_images,
    hash_pixels,
    is_blank,
    near_bits,
)


@pytest.fixture(scope="module")
def arts() -> list[Image.Image]:
    images = open_images("clipart", split="train")
    pixels = images.__getitems__(list(range(0, len(images), 17)))["images"].permute(0, 2, 3, 1).numpy()
    return [Image.fromarray(art) for art in pixels]


@pytest.fixture(scope="module")
def hashes(arts) -> np.ndarray:
    return np.stack([hash_pixels(np.asarray(art)) for art in arts])


def jpeg(art: Image.Image) -> Image.Image:
    file = io.BytesIO()
    art.save(file, "jpeg", quality=75)
    return Image.open(file).convert("RGB")


COPIES = {
    "jpeg": jpeg,
    "half": lambda art: art.resize((24, 24), Image.Resampling.BICUBIC),
    "double": lambda art: art.resize((96, 96), Image.Resampling.BICUBIC),
    "contrast": lambda art: ImageEnhance.Contrast(art).enhance(0.7),
    "bright": lambda art: art.point(lambda value: min(255, round(1.15 * value))),
    "cropped": lambda art: art.crop((1, 1, 47, 47)),
    "border": lambda art: ImageOps.expand(art, 3, "white"),
    "framed": lambda art: ImageOps.expand(ImageOps.expand(art, 2, "white"), 3, "black"),
    "mirrored": ImageOps.mirror,
}


@pytest.mark.parametrize("kind", COPIES)
def test_a_changed_copy_is_near(arts, hashes, kind: str) -> None:
    copies = np.stack([hash_pixels(np.asarray(COPIES[kind](art))) for art in arts])
    assert (count_differences(hashes, copies) <= near_bits(hashes)).mean() >= 0.9


def test_planted_copies_are_grouped_and_few_others(arts, hashes) -> None:
    first = group_near_copies(hashes)
    kinds = list(COPIES.values())
    copies = np.stack([hash_pixels(np.asarray(kinds[n % len(kinds)](art))) for n, art in enumerate(arts)])
    both = np.concatenate([hashes, copies])
    group = group_near_copies(both)
    n = len(hashes)
    assert (group[n:] == group[:n]).mean() >= 0.9
    alone = first == np.arange(n)
    assert alone.mean() > 0.9  # playing cards of one deck look alike


@pytest.mark.parametrize(("objects", "copies"), [(12, 10), (40, 10), (200, 2), (12, 40)])
def test_sets_that_are_mostly_copies_have_a_threshold(objects: int, copies: int) -> None:
    images = open_images("clipart", split="train")
    pixels = images.__getitems__(list(range(0, len(images), len(images) // objects))[:objects])["images"]
    kinds = [lambda art: art, *COPIES.values()]
    made = [
        kinds[number % 10](art).rotate(number // 10, fillcolor="white")
        for art in map(Image.fromarray, pixels.permute(0, 2, 3, 1).numpy())
        for number in range(copies)
    ]
    hashes = np.stack([hash_pixels(np.asarray(art)) for art in made])
    same = np.repeat(np.arange(objects), copies)
    assert near_bits(hashes) >= 0.15 * BITS
    group = group_near_copies(hashes)
    pure = same[group] == same
    joined = np.mean([np.bincount(group[same == one]).max() for one in range(objects)]) / copies
    assert pure.mean() >= 0.94 and joined >= 0.75  # some drawings of a series look alike


def test_a_mirror_image_differs_in_no_bit(arts, hashes) -> None:
    mirrored = np.stack([hash_pixels(np.asarray(ImageOps.mirror(art))) for art in arts])
    assert np.median(count_differences(hashes, mirrored)) == 0 and (hashes != mirrored).any(1).all()


def test_gray_deep_and_batched_pixels_have_the_hash_of_their_picture(arts) -> None:
    gray = np.stack([np.asarray(art.convert("L"))[..., None] for art in arts])
    one = hash_images(gray.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(one, [hash_pixels(pixels) for pixels in gray])
    deep = np.stack([hash_pixels(pixels.astype(np.uint16) * 200) for pixels in gray])
    assert np.median(count_differences(one, deep)) <= 0.05 * BITS
    assert hash_images(gray[:0].transpose(0, 3, 1, 2)).shape == (0, 4)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_pictures_without_structure_are_blank_and_in_no_group(dtype: type) -> None:
    noise = np.random.default_rng(0).normal(250, 2, (1500, 40, 40, 1)).clip(0, 255)
    pages = [np.full((20, 20, 1), 7, dtype), *noise.round().astype(np.uint8)]
    hashes = np.stack([hash_pixels(page) for page in pages])
    assert is_blank(hashes).all()
    assert (group_near_copies(hashes) == np.arange(len(hashes))).all()


def test_values_that_are_not_finite_are_no_structure() -> None:
    empty = np.full((9, 9, 1), np.nan, np.float32)
    part = np.where(np.eye(9)[..., None] > 0, np.inf, np.arange(9.0)[:, None, None]).astype(np.float32)
    assert is_blank(np.stack([hash_pixels(empty)])).all() and not is_blank(np.stack([hash_pixels(part)])).any()


@pytest.mark.parametrize("size", [(48, 1), (1, 48), (2, 2), (3, 30), (5, 5)])
def test_the_smallest_pictures_have_a_hash(size: tuple[int, int]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (*size, 1)).astype(np.uint8)
    assert not is_blank(hash_pixels(pixels)[None]).any()


def test_groups_do_not_depend_on_the_order(hashes) -> None:
    order = np.random.default_rng(1).permutation(len(hashes))
    there = group_near_copies(hashes, bits=24)
    here = group_near_copies(hashes[order], bits=24)
    assert (hashes[there][order] == hashes[order][here]).all() and len(np.unique(there)) < len(hashes)


def test_differences_are_counted_in_every_bit() -> None:
    bits = np.random.default_rng(0).random((40, 2, 128)) < 0.5
    bits[:, :, BITS:] = False
    hashes = np.packbits(bits, axis=2).reshape(40, -1).view(np.int64)
    mirrored = bits ^ np.unpackbits(_mirror().view(np.uint8)).astype(bool).reshape(2, 128)
    expected = [[min((half ^ b).sum(1).min() for half in (bits[a], mirrored[a])) for b in bits] for a in range(40)]
    assert count_differences(hashes[:, None], hashes).tolist() == expected
    assert (HashIndex(hashes, 40).distances(np.arange(40)) == expected).all()


def test_a_chain_joins_no_opposites() -> None:
    bits = np.zeros((60, 2, 128), bool)
    bits[:, :, 90:104] = True
    for row in range(60):
        bits[row, :, :row] = True  # each a bit from the next, the last 59 from the first
    hashes = np.packbits(bits, axis=2).reshape(60, -1).view(np.int64)
    group = group_near_copies(hashes, bits=8)
    assert (count_differences(hashes, hashes[group]) <= 8).all() and len(np.unique(group)) > 3


@pytest.mark.parametrize("name", ["digits", "fashion_mnist", "glyphs"])
def test_pictures_of_one_kind_are_no_copies(name: str) -> None:
    """Shoes, and digits, are alike: without the rule of `near_bits` every tenth picture would have a near-copy."""
    splits = [open_images(name, split=split) for split in ("train", "test")]
    some = [images.__getitems__(list(range(0, len(images), 1 + len(images) // 10_000))) for images in splits]
    hashes = [hash_images(batch["images"].numpy()) for batch in some]
    is_learned = np.repeat([True, False], list(map(len, hashes)))
    assert (nearest_across(np.concatenate(hashes), is_learned) < 0).all()


def test_copies_of_pictures_of_one_kind_are_told_from_them() -> None:
    images = open_images("fashion_mnist", split="train")
    pixels = images.__getitems__(list(range(1000)))["images"].numpy()
    copies = hash_images(pixels[::5, :, :, ::-1])
    both = np.concatenate([hash_images(pixels), copies])
    has_copy = nearest_across(both, np.arange(len(both)) >= 1000) >= 0
    assert has_copy[:1000:5].all() and np.delete(has_copy[:1000], np.s_[::5]).mean() < 0.06


def test_series_leave_a_threshold_for_copies() -> None:
    images = open_images("clipart", split="train")  # with four decks of cards
    pixels = images.__getitems__(list(range(len(images))))["images"].numpy()
    assert near_bits(hash_images(pixels)) >= 3


def test_few_pictures_have_a_threshold(hashes) -> None:
    assert near_bits(hashes[:5]) == int(0.1 * BITS) and near_bits(hashes[:0]) == int(0.1 * BITS)


def test_bits_are_counted_as_by_hand_also_of_the_sign() -> None:
    words = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, (50, 3)).view(np.uint64)
    words[0] = 0, 2**64 - 1, 2**63
    assert count_bits(words).tolist() == [[bin(word).count("1") for word in row] for row in words.tolist()]


def test_differences_are_the_same_without_numpy_2(monkeypatch) -> None:
    hashes = np.random.default_rng(0).integers(-(2**62), 2**62, (40, 4))
    ours = count_differences(hashes[:, None], hashes)
    monkeypatch.delattr(np, "bitwise_count", raising=False)
    assert (count_differences(hashes[:, None], hashes) == ours).all()
