"""From a picture of any size to the square that a network is judged on: as timm's transform for evaluation does it.

One definition for files, arrays and deep pixels, for cards, exports and evaluation. The whole picture is resized, then
whole pixels are cut out at its centre (timm.data.transforms_factory.transforms_imagenet_eval).
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

SMALL = 64  # pixels: up to this size no border is cut off, and a stem that shrinks the image by four loses most of it
MODES = {"center": "crop", "squash": "squash"}  # timm's crop_mode, and `fit` of images
LONGEST = 64  # widths of a picture: a longer one would fill the memory, of it only the middle is resized


@dataclass(frozen=True)
class Resizing:
    """How a picture becomes the square of a network, in timm's terms.

    image_size: side in pixels. crop_pct: the share of the resized picture's side that the square has.
    interpolation: "bilinear" or "bicubic", antialiased. crop_mode: "center" resizes the shorter side, "squash" both.
    """

    image_size: int
    crop_pct: float
    interpolation: str = "bicubic"
    crop_mode: str = "center"

    @classmethod
    def usual(cls, image_size: int) -> "Resizing":
        """Of our own networks: 256 pixels for a square of 224; images of at most `SMALL` pixels are not cut."""
        return cls(image_size, 0.875 if image_size > SMALL else 1.0)

    @classmethod
    def of_timm(cls, config: Mapping[str, Any], image_size: int | None) -> "Resizing":
        """Of one of timm's configurations. image_size: None is the configuration's."""
        bilinear = config["interpolation"] == "bilinear"
        mode = config.get("crop_mode")
        size = image_size or min(config["input_size"][1:])
        return cls(
            size,
            config["crop_pct"],
            "bilinear" if bilinear else "bicubic",
            mode if mode in MODES else "center",
        )

    @property
    def resize(self) -> int:
        """Length in pixels of the shorter side, or of both, before the square is cut out."""
        return math.floor(self.image_size / self.crop_pct)

    def at(self, resize: int | None, interpolation: str | None) -> "Resizing":
        """The same with another length of `resize`, or interpolation; None keeps it."""
        crop_pct = self.crop_pct if resize is None else self.image_size / (resize + 0.5)  # rounded down to it again
        return replace(self, crop_pct=crop_pct, interpolation=interpolation or self.interpolation)

    def of_images(self) -> dict[str, Any]:
        """The options of `Images.at`."""
        fit = MODES[self.crop_mode]
        return {"image_size": self.image_size, "resize": self.resize, "fit": fit, "interpolation": self.interpolation}

    def of_card(self) -> dict[str, Any]:
        """In timm's terms, for `pretrained_cfg`, without the size."""
        return {key: value for key, value in asdict(self).items() if key != "image_size"}


def fit_size(height: int, width: int, side: int, fit: str) -> tuple[int, int]:
    """Height and width of the resized picture: "crop" gives its shorter side this length, "squash" both sides."""
    if fit == "squash":
        return side, side
    shorter = min(height, width)
    return int(side * height / shorter), int(side * width / shorter)


def centre(height: int, width: int, size: int) -> tuple[int, int]:
    """Top and left of the square at the centre; halves are rounded to even, as torchvision's CenterCrop does."""
    return round((height - size) / 2), round((width - size) / 2)


def middle(height: int, width: int) -> tuple[int, int, int, int] | None:
    """Left, top, right and bottom of the middle of a picture that is too long to be resized; None of others."""
    most = LONGEST * min(height, width)
    if max(height, width) <= most:
        return None
    top, left = (max(0, (side - most) // 2) for side in (height, width))
    return left, top, min(width, left + most), min(height, top + most)
