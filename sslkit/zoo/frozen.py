"""A frozen network with what must be known to use it: its image size, channels, width and normalisation."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sslkit import json_files
from sslkit.errors import UserError
from sslkit.zoo import card

FORMAT = 1


@dataclass(frozen=True)
class About:
    """What travels along with exported weights.

    name: of the entry. method: that it was trained with. lines: Python that makes the network.
    width: number of features. image_size: pixels of a side. in_chans: channels.
    mean, std: of each channel of pixels in [0, 1]. crop_pct: share of a resized image's side that the network sees.
    interpolation: how images are resized.
    frames, stride: of the clips that the network takes, and the frames from one to the next; None for images.
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
    frames: int | None = None
    stride: int | None = None

    def to_json(self, **more: Any) -> str:
        """One line; more: further fields, which `from_json` leaves out."""
        own = dataclasses.asdict(self)
        if self.frames is None:
            del own["frames"], own["stride"]
        return json.dumps({"format": FORMAT, **own, **more})

    @classmethod
    def from_json(cls, text: str, path: Path) -> "About":
        """Raises UserError, naming `path`, for what `to_json` did not write or a newer sslkit did."""
        given = json_files.parse(text, path, "export again")
        number = given.get("format") if isinstance(given, dict) else None
        if isinstance(number, int) and number > FORMAT:
            raise UserError(f"{path} was exported by a newer sslkit (format {number}): pip install --upgrade sslkit")
        try:
            card.check_export(given, path)
        except UserError as error:
            raise UserError(f"{error}: what sslkit wrote about its network is damaged, export again") from error
        known = {f.name: given.get(f.name) for f in dataclasses.fields(cls)}
        return cls(**{key: tuple(value) if isinstance(value, list) else value for key, value in known.items()})

    @property
    def input_size(self) -> tuple[int, ...]:
        """(C, S, S) of an image, (C, T, S, S) of a clip."""
        time = () if self.frames is None else (self.frames,)
        return (self.in_chans, *time, self.image_size, self.image_size)


class Frozen(nn.Module):
    """A network that gives features and is not trained: normalised images (B, C, S, S) -> (B, width), float32.

    One of clips takes (B, C, T, S, S). net: the network inside, in eval mode, its parameters without gradient.
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
        """Pixels (B, C, H, W) or (B, C, T, H, W), uint8 or floats in [0, 1], as the network takes them."""
        pixels = pixels.float() / 255 if pixels.dtype is torch.uint8 else pixels
        ones = [1] * (pixels.dim() - 2)
        mean, std = (pixels.new_tensor(values).view(-1, *ones) for values in (self.mean, self.std))
        return (pixels - mean) / std

    def extra_repr(self) -> str:
        return f"{self.name}: {self.about.input_size} -> {self.width}, mean={self.mean}, std={self.std}"
