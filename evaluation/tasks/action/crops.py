"""Spatial crops of clips: random crops for training, one or three crops for testing.

Sizes follow PySlowFast's at 224 pixels: in training the shorter side is resized to a random length from 256 to 320 and
224 pixels are cropped; in tests it is resized to 256, and squares of 256 are cropped at both ends and in the middle of
the longer side. For other image sizes they scale in proportion.
"""

from dataclasses import dataclass

# pixels: the crop and the shorter sides of frames (Feichtenhofer et al. 2019, SlowFast)
PUBLISHED, SHORT, LONG = 224, 256, 320


@dataclass(frozen=True)
class Sizes:
    """In pixels. crop: side of a training clip. short: smallest and largest shorter side of the frames before cropping.
    test: side of a test clip.
    """

    crop: int
    short: tuple[int, int]
    test: int

    @classmethod
    def for_size(cls, image_size: int) -> "Sizes":
        """The sizes for a network of this image size."""
        low, high = (round(image_size * side / PUBLISHED) for side in (SHORT, LONG))
        return cls(image_size, (low, high), low)


def short_side(aspect: float, short: int) -> tuple[int, int]:
    """(height, width) of frames whose shorter side has `short` pixels. aspect: width / height."""
    return (short, max(round(short * aspect), short)) if aspect >= 1 else (max(round(short / aspect), short), short)


def crop_places(height: int, width: int, size: int, crops: int) -> list[tuple[int, int]]:
    """(top, left) of each test crop: the middle one, or the start, the middle and the end of the longer side.

    The middle is rounded up as in PySlowFast. crops: 1 or 3. height, width: at least `size`.
    """
    top, left = -((size - height) // 2), -((size - width) // 2)
    if crops == 1:
        return [(top, left)]
    if height > width:
        return [(0, left), (top, left), (height - size, left)]
    return [(top, 0), (top, left), (top, width - size)]
