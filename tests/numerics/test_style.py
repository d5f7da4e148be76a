"""The colours of pictures can be told apart, also by the colour-blind, on white and on dark; a class keeps its own."""

from itertools import combinations

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from sslkit.numerics.figures import COLOURS, FIRST, SECOND, class_styles, line_style

SIGHTS = {  # Machado et al. 2009, severity 1, on linear RGB
    "normal": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
DARK = "#161a1f"


def linear(colour: str) -> np.ndarray:
    c = np.array(to_rgb(colour))
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def oklab(rgb: np.ndarray) -> np.ndarray:
    """Ottosson 2020."""
    lms = [[0.41222, 0.53633, 0.05145], [0.21190, 0.68070, 0.10740], [0.08830, 0.28172, 0.62998]]
    lab = [[0.21045, 0.79362, -0.00407], [1.97800, -2.42859, 0.45059], [0.02590, 0.78277, -0.80868]]
    return np.array(lab) @ np.cbrt(np.array(lms) @ np.clip(rgb, 0, 1))


def contrast(a: str, b: str) -> float:
    light = sorted(float(linear(colour) @ [0.2126, 0.7152, 0.0722]) + 0.05 for colour in (a, b))
    return light[1] / light[0]


@pytest.mark.parametrize("sight", SIGHTS)
def test_any_two_colours_can_be_told_apart(sight: str) -> None:
    seen = [oklab(np.array(SIGHTS[sight]) @ linear(colour)) for colour in COLOURS]
    assert min(np.linalg.norm(a - b) for a, b in combinations(seen, 2)) > 0.085, "tab10 under protanopia: 0.007"


def test_colours_stand_out_on_white_and_on_dark() -> None:
    assert min(contrast(colour, "#ffffff") for colour in (*COLOURS, FIRST, SECOND)) >= 2.55
    assert min(contrast(colour, DARK) for colour in COLOURS) >= 2.25


def test_a_class_has_its_colour_and_marker_by_its_name() -> None:
    names = [f"kind {k}" for k in range(120)]
    styles = dict(zip(names, class_styles(names), strict=True))
    assert class_styles(names[::-1]) == [styles[name] for name in names[::-1]]
    assert len(set(styles.values())) == 120 and len({colour for colour, _ in class_styles(names[:12])}) == 12


def test_lines_differ() -> None:
    assert len({tuple(line_style(k).values()) for k in range(36)}) == 36
