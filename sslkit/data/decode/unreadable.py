"""The errors of images that cannot be read."""

import errno
import math
from collections.abc import Iterator
from contextlib import contextmanager

from PIL import Image, UnidentifiedImageError

from sslkit.errors import UserError

_STARVED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class UnreadableImage(Exception):
    """The file is not an image, is damaged, or has pixels of unknown scale."""


class TooLarge(UnreadableImage):
    """The image has more pixels than are allowed, or than fit into the memory."""


class OverBudget(UnreadableImage):
    """The image needed more than one may, see `budget`."""


class MissingPackage(UserError):
    """Images of this format need a package that is not installed. asked: the arguments."""

    def __init__(self, what: str, package: str, extra: str) -> None:
        self.asked = (what, package, extra)
        super().__init__(f'{what} needs the package {package}: pip install "sslkit[{extra}]"')


def unreadable(error: Exception, size: tuple[int, int] = (0, 0)) -> Exception:
    """UnreadableImage with the reason in one line, for any Pillow error; lack of memory or file handles is kept.

    size: of the image; lack of memory for one that only `data.max_pixels` allows is its own fault.
    """
    if isinstance(error, MemoryError) and math.prod(size) > 2 * (Image.MAX_IMAGE_PIXELS or 2**62):
        return TooLarge(f"its {size[0]:,} x {size[1]:,} pixels do not fit into the memory: lower data.max_pixels")
    if isinstance(error, (UnreadableImage, MissingPackage, MemoryError)) or getattr(error, "errno", None) in _STARVED:
        return error
    if isinstance(error, UnidentifiedImageError):  # its message shows the object in memory, or the path once more
        return UnreadableImage("it is no image of a known format")
    return UnreadableImage(f"{type(error).__name__}: {error}".splitlines()[0])


@contextmanager
def as_unreadable(size: tuple[int, int] = (0, 0)) -> Iterator[None]:
    """Raise what `unreadable` makes of an error inside; as a decorator, of an error of the function."""
    try:
        yield
    except Exception as error:  # each format raises its own
        raise unreadable(error, size) from error
