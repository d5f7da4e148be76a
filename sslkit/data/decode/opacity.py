"""Whether the plane behind gray or RGB is opacity: only where its file declares it so, and its values show it.

Programs that write four bands mark the last one as opacity by default, whatever it is (tifffile, GDAL, every PNG): laid
over white by its near infrared, a picture of 16 bits vanishes.
"""

from dataclasses import dataclass

import numpy as np

from sslkit.data.decode.deep import PlainPlanes
from sslkit.data.decode.fill import TAGGED
from sslkit.data.decode.opening import Picture
from sslkit.data.decode.pixels import is_deep
from sslkit.data.decode.planes import Planes, opaque
from sslkit.data.decode.scale import Scale
from sslkit.data.decode.unreadable import UnreadableImage, as_unreadable

_NEAR = 0.01  # of the greatest value: lossy formats change the opacity of an opaque pixel by a level or two
# Of the pixels that are not transparent: of cut-out objects all but the edges, of other bands next to none.
MOSTLY = 0.5
_BANDS = ("A", "a")  # of opacity in Pillow's modes; the second has multiplied the colours


@dataclass
class Opacity:
    """The values of opacity in some images. visible: pixels above 0. full: those of them that are opaque."""

    images: int = 0
    visible: int = 0
    full: int = 0

    def add(self, values: np.ndarray) -> None:
        """The declared opacity of one image, (H, W)."""
        self.images += 1
        self.visible += int((values > 0).sum())
        most = opaque(values.dtype)
        self.full += int((np.abs(values - most) <= _NEAR * most).sum())

    @property
    def is_shown(self) -> bool:
        """Return whether the values are those of opacity: 0 or, mostly, full."""
        return self.share >= MOSTLY

    @property
    def share(self) -> float:
        """The share of the values above 0 that are full; 1 of none."""
        return self.full / self.visible if self.visible else 1.0

    def describe(self, channels: int) -> str:
        """The line's part on what was decided. channels: that are read."""
        number = "an image has" if self.images == 1 else f"{self.images:,} of the images looked at have"
        if self.is_shown:
            use = "kept as the last channel" if channels == 4 else "laid over white"
            return f"{number} opacity, which is {use}: opacity=false reads it as a channel like the others"
        use = "read" if channels in (2, 4) else f"not read, as it is by data.channels={2 if channels == 1 else 4}"
        return (
            f"{number} a last plane declared as opacity, of whose values above 0 {self.share:.0%} are "
            f"full: it is a channel like the others, and {use}; opacity=true takes it for opacity"
        )


def declares_opacity(image: Picture) -> bool:
    """Return whether the file has a plane that it calls opacity; a transparent colour, as of a palette, is none."""
    return image.has_alpha if isinstance(image, Planes) else image.getbands()[-1] in _BANDS


@as_unreadable()
def opacity_of(image: Picture) -> np.ndarray:
    """Decode the plane that the file calls opacity, (H, W). Raises UnreadableImage."""
    return image.opacity() if isinstance(image, Planes) else np.asarray(image.getchannel(len(image.getbands()) - 1))


def apply_scale(image: Picture, scale: Scale) -> Picture:
    """The image with what was decided of its data set: its last plane, and what stands for no value."""
    if scale.opacity is not None:
        image = _with_opacity(image) if scale.opacity else _without_opacity(image)
    if scale.fill in (None, TAGGED) or not is_deep(image):
        return image
    image = image if isinstance(image, Planes) else PlainPlanes(image)
    image.fill = scale.fill
    return image


def _with_opacity(image: Picture) -> Picture:
    """The image with the last of two or four planes as opacity."""
    if isinstance(image, Planes) and image.count in (2, 4) and not image.has_alpha:
        image.has_alpha, image.colours, image.spare = True, image.count - 1, 0
    return image


def _without_opacity(image: Picture) -> Picture:
    """The image with what its file calls opacity as a plane like the others: read where all planes are asked for."""
    if not declares_opacity(image):
        return image
    if not isinstance(image, Planes):
        return PlainPlanes(image)
    image.has_alpha = image.is_associated = False
    image.spare = image.count - image.colours
    return image


def check_planes(image: Picture, channels: int) -> None:
    """Raises UnreadableImage for an image that lacks the last of the channels, where that is no opacity.

    Gray becomes colours, as everywhere.
    """
    have = image.count if isinstance(image, Planes) else len(image.getbands())
    if have < channels and channels > 3:
        raise UnreadableImage(f"it has {have} channels, which cannot become data.channels={channels}")
