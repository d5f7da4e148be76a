"""The calls of `timm.create_model` that a card may hold: the arguments that sslkit writes, within bounds.

No allowed argument reads a file, opens a connection, or names a file or a host.
"""

import re
from collections.abc import Mapping
from typing import Any

from sslkit.options.settings import Limits, fits

MAX_SIZE, MAX_CHANNELS = 4096, 1024  # pixels of a side; also the limits of a card
MAX_STAGES = 8  # of `channels`
MAX_TOKENS = 2**14  # patches of an image
MAX_WIDTH, MAX_DEPTH, MAX_HEADS = 2048, 64, 64  # together about 3 billion weights, as timm's largest
POOLS = ("", "avg", "max", "avgmax", "catavgmax", "token", "map")

_CHECKS: dict[str, tuple[Any, Limits, str]] = {
    "num_classes": (int, Limits(least=0, most=10_000), "a whole number from 0 to 10,000"),
    "in_chans": (int, Limits(least=1, most=MAX_CHANNELS), f"a whole number from 1 to {MAX_CHANNELS:,}"),
    "img_size": (int, Limits(least=1, most=MAX_SIZE), f"a whole number from 1 to {MAX_SIZE:,}"),
    "patch_size": (int, Limits(least=1, most=64), "a whole number from 1 to 64"),
    "dynamic_img_size": (bool, Limits(), "True or False"),
    "stem_type": (str, Limits(choices=("", "deep", "deep_tiered")), "'', 'deep' or 'deep_tiered'"),
    "avg_down": (bool, Limits(), "True or False"),
    "channels": (
        list[int],
        Limits(least=1, most=MAX_WIDTH // 2),
        f"up to {MAX_STAGES} whole numbers from 1 to {MAX_WIDTH // 2:,}",
    ),
    "embed_dim": (int, Limits(least=1, most=MAX_WIDTH), f"a whole number from 1 to {MAX_WIDTH:,}"),
    "depth": (int, Limits(least=1, most=MAX_DEPTH), f"a whole number from 1 to {MAX_DEPTH}"),
    "num_heads": (int, Limits(least=1, most=MAX_HEADS), f"a whole number from 1 to {MAX_HEADS}"),
    "global_pool": (str, Limits(choices=POOLS), f"one of {', '.join(map(repr, POOLS))}"),
}


def fault(model: str, arguments: Mapping[str, Any]) -> str:
    """The reason why a card may not call `timm.create_model(model, **arguments)`; "" if it may."""
    import timm

    if not re.fullmatch(r"\w+(\.\w+)?", model, re.ASCII) or not timm.is_model(model):
        return f"{_short(model)} is not a timm model name"
    for name, value in arguments.items():
        if name not in _CHECKS:
            return f"{_short(name)} is not one of the arguments {', '.join(_CHECKS)}"
        kind, limits, expected = _CHECKS[name]
        allowed = fits(value, kind, limits)
        if name == "channels":
            allowed &= isinstance(value, (tuple, list)) and 1 <= len(value) <= MAX_STAGES
        if not allowed:
            return f"{name}={_short(value)} must be {expected}"
    named = re.search(r"patch(\d{1,3})(?!\d)", model)  # its pixels in the model's name
    patch = arguments.get("patch_size") or (max(1, int(named[1])) if named else 16)
    size = arguments.get("img_size", 0)
    if (size // patch) ** 2 > MAX_TOKENS:
        return f"img_size={size} with patches of {patch} pixels makes more than {MAX_TOKENS:,} patches"
    return ""


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
