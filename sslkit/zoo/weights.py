"""Weights in a safetensors file: read, check and load them into a network; no pickle is executed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sslkit.errors import UserError
from sslkit.files.reading import regular

if TYPE_CHECKING:  # a header is read without torch
    from torch import Tensor, nn

REMEDY = "copy the file again from an intact copy, or train the entry again"


def shapes(path: Path) -> dict[str, list[int]]:
    """Return the shape of each tensor, from the file's header. Raises UserError for a file that is not whole."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(regular(path), framework="numpy") as file:
            return {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise _damage_error(path, error) from error


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file, on the CPU. Raises UserError for a damaged file and for NaN or infinite weights."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from sslkit.numerics.state_dicts import check_finite

    try:
        state = load_file(regular(path))
    except (SafetensorError, OSError, ValueError, KeyError) as error:  # KeyError: a dtype that torch does not have
        raise _damage_error(path, error) from error
    check_finite(state, path)
    return state


def as_bytes(state: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """The content of a safetensors file, the same for equal tensors: the library writes metadata in random order."""
    from safetensors.torch import save

    written = save(dict(state), dict(metadata))
    end = 8 + int.from_bytes(written[:8], "little")
    header = json.loads(written[8:end])
    header["__metadata__"] = dict(sorted(metadata.items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # the format's alignment of the tensors
    return len(text).to_bytes(8, "little") + text + written[end:]


def sha256(path: Path) -> str:
    """The sha256 (hex) of a file. Raises UserError for one that cannot be read."""
    try:
        with regular(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error


def fill(net: nn.Module, state: dict[str, Tensor], path: Path) -> nn.Module:
    """Load weights into a network, every name and shape matching, and return it.

    path: of the weights file, for messages. Raises UserError with the tensors that do not fit.
    """
    from sslkit.numerics.state_dicts import mismatch

    told = mismatch(net.state_dict(), state)
    if told:
        raise UserError(
            f"{path} does not fit the network that the card beside it makes ({told}): the two belong to different "
            f"networks; {REMEDY}"
        )
    net.load_state_dict(state, strict=True)
    return net


def _damage_error(path: Path, error: Exception) -> UserError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else " ".join(str(error).split())
    return UserError(f"{path} is not a whole safetensors file ({reason}): {REMEDY}")
