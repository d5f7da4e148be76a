"""Python that loads weights and reads pictures for them without sslkit: on cards, in exports, and as it is printed.

Beside `net` the lines bind `transform`, from one of Pillow's pictures to normalised pixels, and `read`, from the path
of a file to a batch of one. They are made from the preprocessing in timm's terms, see `sslkit.zoo.entry.preprocessing`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sslkit.data.decode.scale import Range

MODES = {1: "L", 3: "RGB"}  # Pillow's, by channels; pictures of other channels are read by no line
PICTURE = "net(read('picture.jpg'))"  # the outputs of a picture
FEATURES = f"features = {PICTURE}"
OF_TIMM = "net = timm.create_model("
TIMM_TRANSFORM = "transform = timm.data.create_transform(**timm.data.resolve_model_data_config(net))"


def load_lines(
    build: Sequence[str],
    pixels: Mapping[str, Any] | None = None,
    file: str = "backbone.safetensors",
    *,
    range: Range | None,
    use: str = FEATURES,
) -> list[str]:
    """Python that loads a network, in the folder of its file; the last line is an expression.

    build: lines that bind `net`; without any the expression is the weights.
    pixels: the preprocessing, for one of timm's networks also its `net.pretrained_cfg`; None for unknown ones.
    range, use: see `picture_lines`.
    """
    weights = f"load_file({file!r})"
    load = ["from safetensors.torch import load_file", weights]
    if not build:
        return load
    load[-1] = f"net.load_state_dict({weights}, strict=True)"
    if pixels is None:
        return [*build, *load, "net.eval()"]
    if is_timm := any(line.startswith(OF_TIMM) for line in build):
        end = f", pretrained_cfg_overlay={dict(pixels)!r})"
        build = [line[:-1] + end if line.startswith(OF_TIMM) else line for line in build]
    transform = [TIMM_TRANSFORM] if is_timm else torchvision_transform(pixels)
    return [*build, *load, *picture_lines(transform, pixels, range, use), "net.eval()"]


def picture_lines(
    transform: Sequence[str], pixels: Mapping[str, Any], range: Range | None, use: str = FEATURES
) -> list[str]:
    """`transform`, and `read` for files that Pillow opens, made upright and of the channels of the network.

    transform: its lines. range: the values of pixels of more than 8 bits that are 0 and 1; Pillow cuts them to 8, so
    that no line reads them. use: what is made of a picture, for the comment. Clips have no lines.
    """
    channels = pixels["input_size"][0]
    if len(pixels["input_size"]) > 3:
        return []
    if range is not None:
        return [f"# its pixels have more than 8 bits: {range[0]:g} to {range[1]:g} become 0 to 1 before mean and std"]
    if channels not in MODES:
        return [f"# its pictures have {channels} channels, in [0, 1] before mean and std"]
    opened = f"ImageOps.exif_transpose(Image.open(path)).convert({MODES[channels]!r})"
    return [
        *transform,
        "from PIL import Image, ImageOps",
        f"read = lambda path: transform({opened})[None]  # {use}",
    ]


def torchvision_transform(pixels: Mapping[str, Any]) -> list[str]:
    """`transform` by torchvision, the same as timm's."""
    resize = _resize(pixels)
    sides = (resize, resize) if pixels["crop_mode"] == "squash" else resize
    return [
        "from torchvision import transforms",
        "transform = transforms.Compose([",
        f"    transforms.Resize({sides}, transforms.InterpolationMode.{pixels['interpolation'].upper()}),",
        f"    transforms.CenterCrop({pixels['input_size'][-1]}),",
        "    transforms.ToTensor(),",
        f"    transforms.Normalize({list(pixels['mean'])}, {list(pixels['std'])}),",
        "])",
    ]


def numpy_transform(pixels: Mapping[str, Any]) -> list[str]:
    """`transform` by Pillow and numpy, the same as timm's."""
    size, resize = pixels["input_size"][-1], _resize(pixels)
    shorter = "side" if pixels["crop_mode"] == "squash" else "min(picture.size)"
    mean, std = list(pixels["mean"]), list(pixels["std"])
    return [
        "import numpy",
        "def transform(picture):",
        f"    width, height = (int({resize} * side / {shorter}) for side in picture.size)",
        f"    left, top = round((width - {size}) / 2), round((height - {size}) / 2)",
        f"    picture = picture.resize((width, height), Image.Resampling.{pixels['interpolation'].upper()})",
        f"    picture = picture.crop((left, top, left + {size}, top + {size}))",
        f"    x = numpy.asarray(picture, 'float32').reshape({size}, {size}, {len(mean)}) / 255",
        f"    return ((x - numpy.float32({mean})) / numpy.float32({std})).transpose(2, 0, 1)",
    ]


def _resize(pixels: Mapping[str, Any]) -> int:
    return math.floor(pixels["input_size"][-1] / pixels["crop_pct"])
