"""Which part of the frames a clip shows: random crops to learn from, three crops to be judged by.

Sizes follow PySlowFast's at 224 pixels: for training the shorter side is drawn from 256 to 320 and 224 pixels are cut
out of it, for tests it is 256, and squares of 256 are cut out at both ends and in the middle of the longer side. For
other sizes they are in proportion.
"""

from dataclasses import dataclass

PUBLISHED, SHORT, LONG = 224, 256, 320


@dataclass(frozen=True)
class Sizes:
    """In pixels. crop: side of a training clip. short: least and most of the frames' shorter side before it is cut out.
    test: side of a test clip.
    """

    crop: int
    short: tuple[int, int]
    test: int

    @classmethod
    def of(cls, image_size: int) -> "Sizes":
        """Those for a network of this image size."""
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
