"""The identity of a network: a digest of its structure and weights."""

import hashlib
import inspect

import torch
from torch import nn

LIBRARIES = ("torch", "torchvision", "timm", "open_clip")


def weights_digest(net: nn.Module) -> str:
    """Return the sha256 of a network: its classes (with the source of those outside libraries), settings, weights."""
    digest = hashlib.sha256(repr(net).encode())
    for name, module in net.named_modules():
        kind = type(module)
        digest.update(f"{name} {kind.__module__}.{kind.__qualname__} {_settings(module)}".encode())
        if kind.__module__.partition(".")[0] not in LIBRARIES:
            digest.update(_source(kind).encode())
    for name, value in [*net.named_parameters(), *net.named_buffers()]:  # a state dict lacks non-persistent buffers
        digest.update(f"{name}{tuple(value.shape)}{value.dtype}".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def _settings(module: nn.Module) -> list[str]:
    """Return attributes of plain types and the code of functions, which `repr` may leave out."""
    said = []
    for name, value in sorted(vars(module).items()):
        if name.startswith("_") or name == "training":
            continue
        if isinstance(value, (bool, int, float, str, tuple)) or value is None:
            said.append(f"{name}={value!r}")
        elif code := getattr(value, "__code__", None):
            said.append(f"{name}={code.co_code.hex()} {code.co_consts!r} {code.co_names!r}")
    return said


def _source(kind: type) -> str:
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):  # typed into an interpreter
        return ""
