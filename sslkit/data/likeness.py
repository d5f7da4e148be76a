"""How alike pictures look: hashes that survive recompression, resizing, brightness, small crops, borders, mirroring.

A hash holds the signs of the low frequencies of a small gray picture's cosine transform (Zauner 2010, Implementation
and Benchmarking of Perceptual Image Hash Functions, 3.2.1): once of the whole picture, once without its plain border.
The mirror image's signs differ in the odd horizontal frequencies alone, so one hash serves both orientations.
Pictures are near-copies where one of the two parts differs in few bits; how few follows from the pictures at hand.
"""

from functools import cache

import numpy as np
from PIL import Image

from sslkit.numerics.near_copies import FEWEST, chance_similarity, group_by_leaders

KEY = "likeness"  # of a batch
WORDS = 4  # int64 of a hash: two of each half
SIDE = 32  # pixels of the small picture
# Pixels of the shorter side that an opened file is first reduced to, at least: a photograph of 0.2 megapixels takes a
# quarter of the time so, 0.2 ms beside 3 ms of decoding, and its hash differs in 0 to 2 bits.
REDUCED = 64
# Frequencies u + v < 14: 95 % of 600 clip arts cropped by a twentieth differ in less than 0.15 of these bits, 75 % with
# u, v < 16; with u, v < 8 unrelated ones come nearer (the spread of their distances is a quarter larger).
DIAGONAL = 14
PLAIN = 24  # of 255, range of a border's line: JPEG at quality 30 adds less to a plain one
SMALLEST = 4  # lines of what may lie within a border
BLANK = 2.0  # of 255, standard deviation of a small picture without structure: below it lie scans of empty pages
# Share of the bits beyond which no threshold goes: unrelated clip art begins to look alike there, at 600 of them.
MOST = 0.19
# Share for too few pictures to measure chance on: no two unrelated ones of 600 in three sets were nearer.
FEW = 0.1
# Pictures whose nearest other one is looked for: of ten thousand clothes (fashion_mnist) the threshold is the same.
ASKED = 4096
# Share of those with a near one within the level of chance: of 15,000 letters (glyphs) one of 90 had it within 2 bits.
RARE = 0.02
COMPARED = 250_000  # pictures that are grouped: the time grows with the square, to some ten minutes here
BITS = DIAGONAL * (DIAGONAL + 1) // 2 - 1  # of each half: all such frequencies but 0, 104, in 128
_WAVES = np.cos(np.pi / SIDE * (np.arange(DIAGONAL)[:, None] * (np.arange(SIDE) + 0.5)))  # (14, 32), of the transform


def hash_pixels(pixels: np.ndarray) -> np.ndarray:
    """Hash pixels (H, W, C), upright, of any dtype: (4,) int64; all zero for a picture without structure."""
    return hash_squares(np.stack(_shrink(_gray(pixels)))[None])[0]


def hash_picture(image: Image.Image) -> np.ndarray:
    """Hash an upright Pillow image in mode RGB: (4,) int64, as `hash_pixels` up to a few bits."""
    return hash_pixels(np.asarray(image.reduce(max(1, min(image.size) // REDUCED))))


def hash_images(images: np.ndarray) -> np.ndarray:
    """Hash images (N, C, H, W), such as squares of uint8: (N, 4) int64; all zero for those without structure."""
    squares = [np.stack(_shrink(_gray(image.transpose(1, 2, 0)))) for image in images]
    return hash_squares(np.stack(squares) if squares else np.empty((0, 2, SIDE, SIDE), np.float32))


def hash_squares(squares: np.ndarray) -> np.ndarray:
    """Hash small gray pictures (N, 2, 32, 32), whole and without border, of 0 to 255: (N, 4) int64."""
    v, u = _frequencies()
    transformed = _WAVES @ squares @ _WAVES.T
    bits = np.zeros((*transformed.shape[:2], 128), bool)
    bits[:, :, :BITS] = transformed[:, :, v, u] > 0
    bits[squares[:, 0].std((1, 2)) < BLANK] = False
    return np.packbits(bits, axis=2).reshape(len(squares), 32).view(np.int64)


def is_blank(hashes: np.ndarray) -> np.ndarray:
    """Return (N,) bool: pictures without structure, which are no copies of each other. hashes: (N, 4)."""
    return ~hashes.any(1)


def count_differences(hashes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the number of differing bits of pairs: (P,) int64, of the nearer half and orientation.

    hashes, others: (P, 4), or shapes that broadcast with a last axis of 4.
    """
    apart = (hashes ^ others).view(np.uint64)
    count = getattr(np, "bitwise_count", count_bits)  # numpy 2 has it, 50 times as fast
    both = (count(apart), count(apart ^ _mirror().view(np.uint64)))
    halves = [bits[..., start] + bits[..., start + 1] for bits in both for start in (0, 2)]
    return np.minimum.reduce(halves).astype(np.int64)


def count_bits(words: np.ndarray) -> np.ndarray:
    """Return how many bits of each word are set: uint64 of the same shape, by sums in parallel (Warren, Hacker's
    Delight, 2002, section 5-1).

    words: uint64. numpy's own function counts other bits of a negative number.
    """
    odd, pairs, nibbles, bytes_ = (np.uint64(0x0101010101010101 * byte) for byte in (0x55, 0x33, 0x0F, 0x01))
    count = words - ((words >> np.uint64(1)) & odd)
    count = (count & pairs) + ((count >> np.uint64(2)) & pairs)
    return (((count + (count >> np.uint64(4))) & nibbles) * bytes_) >> np.uint64(56)


def near_bits(hashes: np.ndarray) -> int:
    """Return the most bits in which near-copies differ.

    hashes: (N, 4). At most a fifth of the bits, and so few that less than one unrelated pair is expected to differ in
    no more; a tenth for fewer than 32 pictures, on which chance cannot be measured.
    Copies lie near each other, as alike ones of a kind (shoes, digits, letters) do not: of the pictures whose nearest
    other one differs, but within the threshold, half have it within half of it; where that is so for none, only equal
    hashes are near. Without this rule 0.3 % of the
    test images of fashion_mnist, 2.5 % of glyphs and 7 % of digits have a "near-copy" in train, of which none is a copy
    to the eye.
    """
    rows = np.flatnonzero(~is_blank(hashes))
    most = min(chance_bits(hashes), int(MOST * BITS))
    if len(rows) < FEWEST:
        return most
    rows = rows[np.lexsort(hashes[rows].T)]  # in an order that depends on no listing
    apart = _nearest_distances(hashes[rows])
    within = np.bincount(apart[apart > 0], minlength=most + 1).cumsum()
    half = within[np.arange(most + 1) // 2]
    is_flat = 2 * half >= within[: most + 1]
    is_known = (half > RARE * within[most]) | (len(rows) <= ASKED)  # a few of some tell little of all
    return most if is_flat[most] else int(np.flatnonzero(is_flat & is_known).max(initial=0))


def chance_bits(hashes: np.ndarray) -> int:
    """Return the most bits in which less than one unrelated pair is expected to differ, however many; see `near_bits`.

    Hashes beyond a fifth of the bits are told apart by chance, but not by meaning: other evidence must agree.
    """
    rows = np.flatnonzero(~is_blank(hashes))
    if len(rows) < FEWEST:
        return int(FEW * BITS)
    rows = rows[np.lexsort(hashes[rows].T)]  # in an order that depends on no listing
    level = chance_similarity(lambda a, b: -count_differences(hashes[a], hashes[b]), rows)
    return max(int(np.floor(-level)), 0)


def group_near_copies(hashes: np.ndarray, bits: int | None = None) -> np.ndarray:
    """Return the row (N,) int64 of the picture that each is a near-copy of; its own for the first of a group.

    hashes: (N, 4). bits: see `near_bits`, whose number None stands for. All members of a group are near the picture
    that stands for it; which one does depends on the hashes alone. Blank ones stand alone.
    """
    bits = near_bits(hashes) if bits is None else bits
    order = np.lexsort(hashes.T)
    return group_by_leaders(order[~is_blank(hashes)[order]], len(hashes), HashIndex(hashes, bits))


class HashIndex:
    """Representatives among pictures: those that differ in at most `bits` bits of a half are near."""

    def __init__(self, hashes: np.ndarray, bits: int) -> None:
        import faiss

        self.hashes, self.bits = np.ascontiguousarray(hashes), bits
        self._parts = [faiss.IndexBinaryFlat(128) for _ in range(2)]

    def search(self, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Differing bits and positions (n, 4 k) of the k representatives nearest by each half and orientation."""
        both = (self.hashes[rows], self.hashes[rows] ^ _mirror())
        parts = [(index, half) for hashes in both for index, half in zip(self._parts, _split(hashes), strict=True)]
        apart, at = zip(*(index.search(half, k) for index, half in parts), strict=True)
        return np.concatenate(apart, 1), np.concatenate(at, 1)

    def nearest(self, rows: np.ndarray) -> np.ndarray:
        """See `sslkit.numerics.near_copies.Index`."""
        apart, at = self.search(rows, 1)
        first = np.lexsort((at, apart))[:, :1]
        return np.where(np.take_along_axis(apart, first, 1) <= self.bits, np.take_along_axis(at, first, 1), -1)[:, 0]

    def compare(self, rows: np.ndarray) -> np.ndarray:
        """See `sslkit.numerics.near_copies.Index`."""
        return self.distances(rows) <= self.bits

    def distances(self, rows: np.ndarray) -> np.ndarray:
        """(n, n) differing bits of rows."""
        hashes = self.hashes[rows]
        starts = range(0, len(rows), 64)
        return np.concatenate([count_differences(hashes[start : start + 64, None], hashes) for start in starts])

    def add(self, rows: np.ndarray) -> None:
        """See `sslkit.numerics.near_copies.Index`."""
        for index, half in zip(self._parts, _split(self.hashes[rows]), strict=True):
            index.add(half)


def _nearest_distances(hashes: np.ndarray) -> np.ndarray:
    """The differing bits (n,) between some pictures, a random draw, and the nearest other one of all."""
    index = HashIndex(hashes, BITS)
    index.add(np.arange(len(hashes)))
    rows = np.random.default_rng(0).permutation(len(hashes))[:ASKED]
    apart, at = index.search(rows, 2)
    return np.where(at == rows[:, None], BITS, apart).min(1)


def _split(hashes: np.ndarray) -> list[np.ndarray]:
    """The two parts of hashes as bytes (N, 16)."""
    return [np.ascontiguousarray(hashes[:, start : start + 2]).view(np.uint8) for start in (0, 2)]


@cache
def _frequencies() -> tuple[np.ndarray, np.ndarray]:
    """The vertical and horizontal frequency of each bit, (104,)."""
    v, u = np.mgrid[:DIAGONAL, :DIAGONAL]
    return np.nonzero((u + v < DIAGONAL) & (u + v > 0))


@cache
def _mirror() -> np.ndarray:
    """(4,) int64, the bits of odd horizontal frequencies."""
    bits = np.zeros((2, 128), bool)
    bits[:, :BITS] = _frequencies()[1] % 2 == 1
    return np.packbits(bits, axis=1).reshape(-1).view(np.int64)


def _gray(pixels: np.ndarray) -> np.ndarray:
    """The gray picture (H, W) uint8; values of more than 8 bits by their range."""
    if pixels.dtype == np.uint8 and pixels.shape[2] == 3:
        return np.asarray(Image.fromarray(np.ascontiguousarray(pixels)).convert("L"))
    if pixels.dtype == np.uint8 and pixels.shape[2] == 1:
        return pixels[:, :, 0]
    values = pixels.mean(2, dtype=np.float64)
    if pixels.dtype != np.uint8:
        is_finite = np.isfinite(values)
        low, high = np.percentile(values[is_finite], (0.1, 99.9)) if is_finite.any() else (0, 0)
        values = (np.where(is_finite, values, low) - low) * (255 / (high - low) if high > low else 0)
    return values.clip(0, 255).astype(np.uint8)


def _shrink(gray: np.ndarray) -> list[np.ndarray]:
    """The small pictures (32, 32) float32 of the whole and of what lies within plain borders."""
    whole, inner = _resize(gray), _trim(gray)
    return [whole, whole if inner.shape == gray.shape else _resize(inner)]


def _trim(gray: np.ndarray) -> np.ndarray:
    """What lies within plain borders, one in another too, as a frame around a drawing on white.

    Resizing mixes a border with the line beside it, which goes too, and the ends of its own lines with another border.
    """
    inner = gray
    while min(inner.shape) >= SMALLEST:
        bounds = []
        for spread in (np.ptp(inner[:, 1:-1], axis=1), np.ptp(inner[1:-1], axis=0)):
            lines = np.flatnonzero(spread > PLAIN)
            if not len(lines):
                return inner
            last = len(spread) - 1
            bounds.append(slice(lines[0] + (lines[0] > 0), lines[-1] + 1 - (lines[-1] < last)))
        outer, inner = inner, inner[tuple(bounds)]
        if inner.shape == outer.shape:
            break
    return inner if inner.size else gray


def _resize(gray: np.ndarray) -> np.ndarray:
    small = Image.fromarray(np.ascontiguousarray(gray)).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    return np.asarray(small, np.float32)
