"""Weights of the original vision transformers (.npz of JAX), which timm's networks read themselves."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from sslkit.backbones.fitting import Match
from sslkit.errors import UserError, first_line
from sslkit.files.reading import regular
from sslkit.numerics.state_dicts import check_finite

SUFFIX = ".npz"


def fill(net: nn.Module, path: Path, *, network: str, head: Sequence[str], where: str, remedy: str) -> Match:
    """Load a .npz file into a network of timm that can read it; see `fitting.fill`.

    Raises UserError for a network that cannot, for a file of another one, and for one that cannot be read.
    """
    if not hasattr(net, "load_pretrained"):
        raise UserError(f"{where}: timm's {network} reads no {SUFFIX} files: {path} is for another network; {remedy}")
    arrays = _arrays(path, where)
    fault = _fault(net, arrays)
    try:
        with torch.no_grad():
            net.load_pretrained(str(path))
    except Exception as error:  # a name that is missing, another shape, another layout
        fault = fault or first_line(error)
    if fault:
        raise UserError(f"{path} does not fit the network: {fault}; {remedy}")
    check_finite(net.state_dict(), path)
    return Match(_classifier(arrays, head), _line(net, path, arrays, network))


def _arrays(path: Path, where: str) -> dict[str, np.ndarray]:
    try:
        with np.load(regular(path), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except Exception as error:  # numpy, zipfile and zlib each raise their own
        raise UserError(f"{where}: {path} is no {SUFFIX} file of numbers: {first_line(error)}") from error


def _fault(net: nn.Module, arrays: Mapping[str, np.ndarray]) -> str:
    """A fault that timm would not see: a file of more blocks, and one for patches of another size; "" for neither."""
    blocks = {int(number[1]) for name in arrays if (number := re.search(r"encoderblock_(\d+)/", name))}
    if blocks and hasattr(net, "blocks") and len(blocks) != len(net.blocks):
        return f"it has {len(blocks)} blocks, the network {len(net.blocks)}"
    kernel = next((value for name, value in arrays.items() if name.endswith("embedding/kernel")), None)
    patch = getattr(getattr(net, "patch_embed", None), "patch_size", None)
    if kernel is not None and patch is not None and tuple(kernel.shape[:2]) != tuple(patch):
        return f"it is for patches of {kernel.shape[0]} pixels, the network for {patch[0]}"
    return ""


def _classifier(arrays: Mapping[str, np.ndarray], head: Sequence[str]) -> dict[str, Tensor]:
    parts = ("head/kernel", "head/bias")
    kernel, bias = (next((value for name, value in arrays.items() if name.endswith(suffix)), None) for suffix in parts)
    if len(head) != 1 or kernel is None or bias is None or kernel.ndim != 2:
        return {}
    values = {"weight": np.ascontiguousarray(kernel.T), "bias": bias}
    return {f"{head[0]}.{key}": torch.from_numpy(value) for key, value in values.items()}


def _line(net: nn.Module, path: Path, arrays: Mapping[str, np.ndarray], network: str) -> str:
    line = f"{network}: {len(net.state_dict())} tensors from the {len(arrays)} of {path.name} (JAX, read by timm)"
    places = next((value for name, value in arrays.items() if name.endswith("pos_embedding")), None)
    if places is not None and places.shape != tuple(net.pos_embed.shape):
        line += f"; resampled: pos_embed {places.shape} -> {tuple(net.pos_embed.shape)}"
    return line
