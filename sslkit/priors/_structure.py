"""A network's identity: its classes, settings and numbers, as text and bytes that are the same in every process."""

import functools
import hashlib
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype)
_OF_EVERY_MODULE = frozenset(vars(nn.Module()))


def digest_of(network: nn.Module) -> str:
    """Return the sha256 (hex) of a network's structure, parameters and buffers.

    The same weights may serve several networks, as those of another padding, activation or eps: the classes of the
    modules count, what they say of themselves, and their public attributes that are numbers, texts, arrays or
    functions. The code of a class does not.
    """
    digest = hashlib.sha256(repr(network).encode())
    for name, module in network.named_modules():
        kind = type(module)
        digest.update(f"{name} {kind.__module__}.{kind.__qualname__} {_settings(module)}".encode())
    for name, value in [*network.named_parameters(), *network.named_buffers()]:  # a state dict lacks some buffers
        digest.update(f"{name}{tuple(value.shape)}{value.dtype}".encode())
        digest.update(_bytes(value))
    return digest.hexdigest()


def _settings(module: nn.Module) -> list[str]:
    """Return the public attributes; private ones may change with a call, as what was computed once."""
    attributes = ((name, value) for name, value in sorted(vars(module).items()) if name not in _OF_EVERY_MODULE)
    return [f"{name}={_to_text(value)}" for name, value in attributes if not name.startswith("_")]


def _bytes(x: Tensor) -> np.ndarray:
    return x.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()


def _to_text(value: Any) -> str:
    """Return a value as text: functions and classes by their names, and nothing of other objects.

    Nor of mappings: those of timm's networks name the file that the weights came from.
    """
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, (tuple, list)):
        return str([_to_text(entry) for entry in value])
    if isinstance(value, Tensor):
        return f"{tuple(value.shape)} {value.dtype} {hashlib.sha256(_bytes(value)).hexdigest()}"
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc":
        return f"{value.shape} {value.dtype} {hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, functools.partial):
        return f"{_to_text(value.func)} {_to_text(value.args)} {_to_text(sorted(value.keywords.items()))}"
    return getattr(value, "__qualname__", "")
