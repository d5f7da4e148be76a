"""The calls of `timm.create_model` that a card may hold: the arguments that sslkit writes, within bounds.

No allowed argument reads a file, opens a connection, or names a file or a host.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

MAX_SIZE, MAX_CHANNELS = 4096, 1024  # pixels of a side; also the limits of a card
MAX_TOKENS = 2**14  # patches of an image
MAX_WIDTH, MAX_DEPTH, MAX_HEADS = 2048, 64, 64  # together about 3 billion weights, as timm's largest
POOLS = ("", "avg", "max", "avgmax", "catavgmax", "token", "map")


def _whole(least: int, most: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and least <= value <= most


def _flag(value: Any) -> bool:
    return type(value) is bool


def _one_of(*values: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and value in values


def _channels(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and 1 <= len(value) <= 8 and all(map(_whole(1, MAX_WIDTH // 2), value))


_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "num_classes": (_whole(0, 10_000), "a whole number from 0 to 10,000"),
    "in_chans": (_whole(1, MAX_CHANNELS), f"a whole number from 1 to {MAX_CHANNELS:,}"),
    "img_size": (_whole(1, MAX_SIZE), f"a whole number from 1 to {MAX_SIZE:,}"),
    "patch_size": (_whole(1, 64), "a whole number from 1 to 64"),
    "dynamic_img_size": (_flag, "True or False"),
    "stem_type": (_one_of("", "deep", "deep_tiered"), "'', 'deep' or 'deep_tiered'"),
    "avg_down": (_flag, "True or False"),
    "channels": (_channels, f"up to 8 whole numbers from 1 to {MAX_WIDTH // 2:,}"),
    "embed_dim": (_whole(1, MAX_WIDTH), f"a whole number from 1 to {MAX_WIDTH:,}"),
    "depth": (_whole(1, MAX_DEPTH), f"a whole number from 1 to {MAX_DEPTH}"),
    "num_heads": (_whole(1, MAX_HEADS), f"a whole number from 1 to {MAX_HEADS}"),
    "global_pool": (_one_of(*POOLS), f"one of {', '.join(map(repr, POOLS))}"),
}


def fault(model: str, arguments: Mapping[str, Any]) -> str:
    """The reason why a card may not call `timm.create_model(model, **arguments)`; "" if it may."""
    import timm

    if not re.fullmatch(r"\w+(\.\w+)?", model, re.ASCII) or not timm.is_model(model):
        return f"{_short(model)} is not a timm model name"
    for name, value in arguments.items():
        if name not in _CHECKS:
            return f"{_short(name)} is not one of the arguments {', '.join(_CHECKS)}"
        allowed, expected = _CHECKS[name]
        if not allowed(value):
            return f"{name}={_short(value)} must be {expected}"
    size, patch = arguments.get("img_size", 0), arguments.get("patch_size") or _named_patch(model)
    if (size // patch) ** 2 > MAX_TOKENS:
        return f"img_size={size} with patches of {patch} pixels makes more than {MAX_TOKENS:,} patches"
    return ""


def _named_patch(model: str) -> int:
    """Pixels of a patch from the model's name; 16 if the name has none."""
    patch = re.search(r"patch(\d{1,3})(?!\d)", model)
    return max(1, int(patch[1])) if patch else 16


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
