"""A frozen network with its image size, channels, width and normalisation."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sslkit.data.items import item_of
from sslkit.errors import UserError
from sslkit.files import reading
from sslkit.zoo import card

FORMAT = 1  # of an export's description: raised when an older sslkit would misread it
BEYOND = (
    0.5  # bicubic resizing overshoots by up to 0.2 at an edge; normalised pixels and those of 0 to 255 are farther out
)


@dataclass(frozen=True)
class About:
    """The metadata of exported weights.

    name: of the entry. method: of its training. lines: Python that makes the network.
    width: number of features. image_size: side in pixels. in_chans: channels.
    mean, std: of each channel of pixels in [0, 1].
    crop_pct, interpolation, crop_mode: how pictures become squares, see `sslkit.data.resizing.Resizing`.
    frames, stride: of the network's clips, and the distance between two of the frames; None for images.
    range: the values of pixels of more than 8 bits that are 0 and 1; None for a network of 8 bits.
    """

    name: str
    method: str
    lines: tuple[str, ...]
    width: int
    image_size: int
    in_chans: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop_pct: float
    interpolation: str = "bicubic"
    crop_mode: str = "center"
    frames: int | None = None
    stride: int | None = None
    range: tuple[float, float] | None = None

    def content(self, **more: Any) -> dict[str, Any]:
        """The metadata for a JSON file; more: further fields, ignored by `from_content`."""
        fields = dataclasses.asdict(self)
        if self.frames is None:
            del fields["frames"], fields["stride"]
        if self.range is None:
            del fields["range"]
        return {"format": FORMAT, **fields, **more}

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(self.content())

    @classmethod
    def from_json(cls, text: str, path: Path) -> "About":
        """Raises UserError, naming `path`, for text that `to_json` did not write, or that a newer sslkit wrote."""
        return cls.from_content(reading.parse_json(text, path, "export again"), path)

    @classmethod
    def from_content(cls, given: Any, path: Path) -> "About":
        """Read the content of a JSON file, see `from_json`."""
        number = given.get("format") if isinstance(given, dict) else None
        if isinstance(number, int) and number > FORMAT:
            raise UserError(f"{path} was exported by a newer sslkit (format {number}): pip install --upgrade sslkit")
        try:
            card.check_export(given, path)
        except UserError as error:
            raise UserError(f"{error}: the metadata written by sslkit are damaged, export again") from error
        values = {f.name: given.get(f.name, f.default) for f in dataclasses.fields(cls)}
        return cls(**{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})

    @property
    def input_size(self) -> tuple[int, ...]:
        """(C, S, S) of an image, (C, T, S, S) of a clip."""
        return item_of(self.frames).shape(self.in_chans, self.image_size)


class Frozen(nn.Module):
    """A feature network that is not trained: normalised images (B, C, S, S) -> (B, width), float32.

    For clips (B, C, T, S, S). net: the network inside, in eval mode, its parameters without gradient.
    about: see `About`; its fields image_size, in_chans, width, mean, std, name, frames and stride are attributes here.
    """

    def __init__(self, net: nn.Module, about: About) -> None:
        super().__init__()
        self.net = net.requires_grad_(False)
        self.about = about
        self.name, self.width = about.name, about.width
        self.image_size, self.in_chans = about.image_size, about.in_chans
        self.mean, self.std = about.mean, about.std
        self.frames, self.stride = about.frames, about.stride
        self.eval()

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def normalize(self, pixels: Tensor) -> Tensor:
        """Normalise pixels (B, C, H, W) or (B, C, T, H, W) for the network, see `normalize_pixels`."""
        return normalize_pixels(pixels, self.mean, self.std, self.name, self.about.range)

    def extra_repr(self) -> str:
        return f"{self.name}: {self.about.input_size} -> {self.width}, mean={self.mean}, std={self.std}"


def normalize_pixels(
    pixels: Tensor,
    mean: Sequence[float],
    std: Sequence[float],
    name: str,
    range: tuple[float, float] | None,
) -> Tensor:
    """Pixels (B, C, H, W) or (B, C, T, H, W) in [0, 1], less `mean` and over `std` of each channel.

    pixels: uint8, other integers, or floats in [0, 1]. Integers of more than 8 bits lie in `range`, and are clipped to
    it; without one those of uint16 have all 16 bits. name: of the network, for messages.
    Raises UserError for other integers without a range, and for floats beyond what resizing adds to [0, 1].
    """
    if pixels.is_floating_point():
        _check_share(pixels, name)
    else:
        whole = {torch.uint8: (0.0, 255.0), torch.uint16: range or (0.0, 65535.0)}
        low, high = whole.get(pixels.dtype) or range or (0.0, 0.0)
        if high == low:
            raise UserError(
                f"{name} was trained on pixels of 8 bits, and {pixels.dtype} may hold any: give pixels.byte() of "
                "0 to 255, or floats in [0, 1]"
            )
        pixels = ((pixels.float() - low) / (high - low)).clamp(0, 1)
    ones = [1] * (pixels.dim() - 2)
    centre, scale = (pixels.new_tensor(values).view(-1, *ones) for values in (mean, std))
    return (pixels - centre) / scale


def _check_share(pixels: Tensor, name: str) -> None:
    least, most = (pixels.amin().item(), pixels.amax().item()) if pixels.numel() else (0, 0)
    if not (least >= -BEYOND and most <= 1 + BEYOND):
        raise UserError(
            f"{name} takes floats in [0, 1], and these are from {least:.3g} to {most:.3g}: divide pixels up to 255 by "
            "255 or give them as pixels.byte(), and give what is normalised already to the network itself"
        )
