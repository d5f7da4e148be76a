"""What an export says of its network: image size, channels, width and normalisation."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sslkit.data.items import item_of
from sslkit.errors import UserError
from sslkit.files import reading
from sslkit.zoo import card
from sslkit.zoo.classifier import SIGMOID, SOFTMAX

FORMAT = 1  # of an export's description: raised when an older sslkit would misread it


@dataclass(frozen=True)
class About:
    """The metadata of exported weights.

    name: of the entry. method: of its training. lines: Python that makes the network.
    width: number of features. image_size: side in pixels. in_chans: channels.
    mean, std: of each channel of pixels in [0, 1].
    crop_pct, interpolation, crop_mode: how pictures become squares, see `sslkit.data.resizing.Resizing`.
    frames, stride: of the network's clips, and the distance between two of the frames; None for images.
    range: the values of pixels of more than 8 bits that are 0 and 1; None for a network of 8 bits.
    classes, link: of its classifier, see `sslkit.zoo.classifier.Classifier`; None for a network of features.
    half_widths: of numbers, likewise.
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
    classes: tuple[str, ...] | None = None
    link: str | None = None
    half_widths: tuple[float, ...] = ()

    def content(self, **more: Any) -> dict[str, Any]:
        """The metadata for a JSON file; more: further fields, ignored by `from_content`."""
        fields = dataclasses.asdict(self)
        if self.frames is None:
            del fields["frames"], fields["stride"]
        for name in ("range", "classes", "link"):
            if fields[name] is None:
                del fields[name]
        if not self.half_widths:
            del fields["half_widths"]
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
    def use(self) -> str:
        """What the outputs `y` of the network become by, in Python: "features = y", "probabilities = y.softmax(1)"."""
        if self.link is None:
            return "features = {}"
        return {SOFTMAX: "probabilities = {}.softmax(1)", SIGMOID: "probabilities = {}.sigmoid()"}.get(
            self.link, "numbers = {}"
        )

    @property
    def input_size(self) -> tuple[int, ...]:
        """(C, S, S) of an image, (C, T, S, S) of a clip."""
        return item_of(self.frames).shape(self.in_chans, self.image_size)
