"""Random numbers of the images of a batch: each rank draws those of its own images alone.

Number j of image i of the global batch is a function of a key, i and j: SplitMix64 (Steele, Lea and Flood 2014, "Fast
splittable pseudorandom number generators", OOPSLA), whose k-th output needs none of those before it. The key of a call
comes from a torch.Generator that is in the same state on all ranks. So N processes draw what one would draw, and the
cost does not depend on their number.
"""

import math

import numpy as np
import torch
from torch import Tensor

from sslkit.runtime import distributed

_GAMMA, _FIRST, _SECOND = (np.uint64(x) for x in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_ROUNDS = 8  # of a permutation; four make it look random to an observer of a few places (Luby and Rackoff 1988)


def own_rows(n: int) -> range:
    """The places in the global batch of this rank's n images."""
    return range(distributed.rank(), n * distributed.world_size(), distributed.world_size())


def words(rows: range, count: int, generator: torch.Generator | None) -> np.ndarray:
    """(len(rows), count) uint64, all values equally likely. rows: places of the images in the global batch."""
    key = np.array([[new_key(generator)]], np.uint64)
    start = np.arange(rows.start, rows.stop, rows.step, dtype=np.uint64)[:, None] * np.uint64(count)
    offset = np.arange(1, count + 1, dtype=np.uint64)[None] * _GAMMA
    return _mix(key + start * _GAMMA + offset)


def uniform(rows: range, shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
    """(len(rows), *shape) float32 in [0, 1), multiples of 2^-24 as of torch.rand. rows: as in `words`."""
    count = math.prod(shape)
    halves = words(rows, -(-count // 2), generator).view(np.uint32)[:, :count]
    numbers = (halves >> np.uint32(8)).astype(np.float32)
    numbers *= np.float32(2**-24)
    return torch.from_numpy(numbers).view(len(rows), *shape)


def shuffle(rows: np.ndarray, total: int, key: int, *, back: bool = False) -> np.ndarray:
    """int64, the new places of these rows in a random order of 0, ..., total - 1. back: the rows at these places.

    A Feistel network permutes the numbers of an even number of bits; those that leave the range go on until they are
    back in it (Black and Rogaway 2002, "Ciphers with arbitrary finite domains").
    key: of `new_key`.
    """
    half = np.uint64(max((total - 1).bit_length() + 1, 2) // 2)
    rounds = _mix(np.arange(_ROUNDS, dtype=np.uint64)[:, None] * _GAMMA + np.array([[key]], np.uint64))
    places = rows.astype(np.uint64).ravel()
    out = np.ones(len(places), bool)
    while out.any():
        places[out] = _feistel(places[out], rounds[::-1] if back else rounds, half, back)
        out = places >= total
    return places.astype(np.int64).reshape(rows.shape)


def normal(shape: tuple[int, ...], key: int, device: torch.device) -> Tensor:
    """Standard normal float32 numbers of a key, drawn on the device: the same on all, but for rounding.

    SplitMix64 in int64, whose products wrap as those of uint64 do; each of its numbers gives two by Box and Muller.
    """
    count = math.prod(shape)
    z = torch.arange(1, -(-count // 2) + 1, device=device) * _to_signed(_GAMMA) + key
    z = (z ^ _shift(z, 30)) * _to_signed(_FIRST)
    z = (z ^ _shift(z, 27)) * _to_signed(_SECOND)
    z = z ^ _shift(z, 31)
    radius = (_shift(z, 40) + 0.5).mul(2**-24).log().mul(-2).sqrt()
    angle = (z & (2**24 - 1)).float().mul(2 * math.pi * 2**-24)
    return torch.cat([radius * angle.cos(), radius * angle.sin()])[:count].view(shape)


def _to_signed(constant: np.uint64) -> int:
    return int(constant.astype(np.int64))


def _shift(z: Tensor, bits: int) -> Tensor:
    """Right by so many bits, zeros from the left."""
    return z >> bits & 2 ** (64 - bits) - 1


def new_key(generator: torch.Generator | None) -> int:
    """A key for `shuffle`, of 63 bits."""
    return torch.randint(2**63 - 1, (), generator=generator).item()


def _mix(z: np.ndarray) -> np.ndarray:
    """SplitMix64's output function, in place."""
    shifted = z >> np.uint64(30)
    z ^= shifted
    z *= _FIRST
    np.right_shift(z, np.uint64(27), out=shifted)
    z ^= shifted
    z *= _SECOND
    np.right_shift(z, np.uint64(31), out=shifted)
    z ^= shifted
    return z


def _feistel(x: np.ndarray, rounds: np.ndarray, half: np.uint64, back: bool) -> np.ndarray:
    """A permutation of the numbers of 2 half bits; with the rounds reversed and `back` its inverse."""
    low = (np.uint64(1) << half) - np.uint64(1)
    left, right = x >> half, x & low
    if back:
        left, right = right, left
    for key in rounds:
        left, right = right, left ^ (_mix(key + right * _GAMMA) & low)
    if back:
        left, right = right, left
    return left << half | right
