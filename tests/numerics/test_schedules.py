"""The schedules against their equations."""

import math

import pytest

from sslkit.numerics.schedules import along_cosine, along_line, warm_up


def test_a_cosine_goes_from_start_to_end() -> None:
    assert along_cosine(0.99, 1.0, 0.0) == pytest.approx(0.99)
    assert along_cosine(0.99, 1.0, 0.5) == pytest.approx(0.995)
    assert along_cosine(0.99, 1.0, 1.0) == 1.0
    assert along_cosine(0.2, 0.6, 0.25) == pytest.approx(0.6 - 0.4 * (1 + math.sqrt(0.5)) / 2)


def test_a_line_goes_from_start_to_end() -> None:
    assert [along_line(0.996, 1.0, p) for p in (0.0, 0.25, 1.0)] == pytest.approx([0.996, 0.997, 1.0])


def test_a_warm_up_rises_in_equal_steps_and_then_stays() -> None:
    assert [warm_up(0.0, 1.0, epoch, 5) for epoch in range(7)] == pytest.approx([0, 0.25, 0.5, 0.75, 1, 1, 1])
    assert warm_up(0.04, 0.07, 0, 0) == 0.07
    assert [warm_up(0.04, 0.07, epoch, 1) for epoch in (0, 1)] == [0.04, 0.07]
