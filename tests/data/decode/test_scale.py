"""One linear function from the values of a data set to bytes."""

import numpy as np
import pytest

from sslkit.data.decode import scale
from sslkit.data.decode.scale import Values
from sslkit.data.decode.unreadable import UnreadableImage
from sslkit.data.image_options import parse_range
from sslkit.errors import UserError


def usual(values: np.ndarray) -> scale.Range:
    found = Values()
    found.add([values])
    return found.usual()


@pytest.mark.parametrize(
    ("dtype", "values", "expected"),
    [
        ("uint16", [0, 257, 32768, 65535], [0, 1, 128, 255]),
        ("uint16", [0, 1024, 4095], [0, 64, 255]),  # 12 bits
        ("int16", [-1024, 0, 1024], [0, 128, 255]),
        ("int32", [0, 2**20 - 1], [0, 255]),
        ("float32", [0, 0.5, 1], [0, 128, 255]),
        ("float64", [0, 99.6, 255], [0, 100, 255]),
        ("float16", [0, 0.25, 1], [0, 64, 255]),
        ("float32", [-0.5, 0, 1.5], [0, 64, 255]),
        ("float32", [0, 1, 2.5], [0, 102, 255]),  # neither [0, 1] nor [0, 255]
        ("int64", [0, 1, 255], [0, 1, 255]),
    ],
)
def test_values_of_any_type_become_bytes(dtype: str, values: list[float], expected: list[int]) -> None:
    given = np.array(values, dtype=dtype)
    assert scale.to_bytes(given, usual(given)).tolist() == expected


def test_bytes_and_booleans_have_no_other_scale() -> None:
    assert scale.to_bytes(np.array([0, 7, 255], np.uint8), (0.0, 9.0)).tolist() == [0, 7, 255]
    assert scale.to_bytes(np.array([False, True]), (0.0, 9.0)).tolist() == [0, 255]


@pytest.mark.parametrize("dtype", ["uint16", "int16", "uint32", "int32", "float32", "float64"])
def test_a_scale_rises_and_clips(dtype: str) -> None:
    values = np.arange(0, 30000, 7).astype(dtype)
    found = scale.to_bytes(values, (1000.0, 20000.0)).astype(int)
    assert (np.diff(found) >= 0).all() and np.diff(found).max() == 1
    assert (found[values <= 1000] == 0).all() and (found[values >= 20000] == 255).all()
    assert np.abs(found - ((values.astype(float) - 1000) * 255 / 19000).clip(0, 255)).max() <= 0.5 + 1e-3


@pytest.mark.parametrize("values", [[0, 4020], [17, 2049]])
def test_the_range_of_integers_is_of_whole_bits(values: list[int]) -> None:
    assert usual(np.array(values, np.uint16)) == (0.0, 4095.0)


def test_a_constant_image_has_a_range() -> None:
    low, high = usual(np.full((4, 4), 3.5, np.float32))
    assert low < high
    assert np.isfinite(scale.to_bytes(np.full(3, 3.5, np.float32), (low, high))).all()


def test_integers_and_floats_share_no_scale() -> None:
    found = Values()
    found.add([np.array([0, 4095], np.uint16)])
    with pytest.raises(UserError, match=r"16-bit images among float ones.*give range="):
        found.add([np.array([0.0, 1.0])])


def test_few_levels_are_said_with_a_better_range() -> None:
    found = Values()
    found.add([np.random.default_rng(0).integers(2000, 2300, (64, 64)).astype(np.uint16)])
    text = found.describe(found.usual())
    assert "range=[0,4095]" in text and "20 of the 256 levels" in text and "range=[2000,2299] spreads" in text
    found.add([np.array([0, 4095], np.uint16)])
    assert "levels" not in found.describe(found.usual())


@pytest.mark.parametrize("given", [[1], [2, 1], [0, 0], [0, np.inf], [0, np.nan], ["a", "b"], "all", 7, [0, 1, 2]])
def test_a_range_that_is_none_is_refused(given: object) -> None:
    with pytest.raises(UserError, match=r"^range=.* must be two numbers that rise, such as \[0,4095\]"):
        parse_range(given)


def test_a_range_is_written_as_a_command_line_takes_it() -> None:
    assert scale.written((0.0, 4095.0)) == "[0,4095]" and scale.written((-0.25, 1.0)) == "[-0.25,1]"


@pytest.mark.parametrize(
    ("values", "message"),
    [([-3.0, 1], "float pixels from -3"), ([0, 300.0], "float pixels from 0 to 300"), ([0, 70000], "integer pixels")],
)
def test_a_single_image_of_unknown_scale_is_unreadable(values: list[float], message: str) -> None:
    with pytest.raises(UnreadableImage, match=message):
        scale.guess_range(np.array(values))


def test_nan_is_unreadable() -> None:
    with pytest.raises(UnreadableImage, match="NaN"):
        scale.finite(np.array([0, np.nan]))
