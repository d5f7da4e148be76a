"""Source heads: classifiers over the classes of a backbone's pretraining, kept beside it; no pickle is executed.

`ENTRY/heads/NAME.safetensors` has the tensors, and as metadata the kinds of the layers and the sha256 of the backbone's
file. The card's field `source_heads` has the recipe of each. LEEP and NCE read them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sslkit.errors import UserError
from sslkit.files import reading
from sslkit.files.writing import write_whole
from sslkit.zoo import weights

if TYPE_CHECKING:
    from torch import Tensor, nn

FOLDER = "heads"
DETECTOR, SEGMENTER = "detector", "segmenter"  # what predicts beside a classifier: of the file, and of the card's field
PROTOTYPES, LABELS, CLUSTERS = "prototypes", "labels", "clusters"
REMEDY = "train the entry again, or give source=clusters; a fitted head is fitted anew once its file is removed"


@dataclass(frozen=True, eq=False)
class Head:
    """A head as it is kept. name: of its file. kinds: of its layers. state: the tensors of the linear ones.

    recipe: for the card: `classes`, `data` and how it was made.
    """

    name: str
    kinds: list[str]
    state: dict[str, Tensor]
    recipe: dict[str, Any]

    @classmethod
    def from_layers(cls, name: str, layers: nn.Sequential, recipe: dict[str, Any]) -> Head:
        """layers: features (N, F) -> logits (N, S): Linear, BatchNorm1d after it, ReLU, GELU, Identity, UnitLength.

        recipe: without the number of classes, which is that of the logits. Raises UserError for other layers.
        """
        kinds, linear = _plain(layers)
        state = {}
        for number, pair in enumerate(linear):
            for kind, value in zip(("weight", "bias"), pair, strict=True):
                state[f"{number}.{kind}"] = value.detach().float().cpu().contiguous().clone()
        return cls(name, kinds, state, {"classes": len(linear[-1][0]), **recipe})


def path(folder: Path, name: str) -> Path:
    """The file of a head. folder: of the entry. Raises UserError for a name that is no plain word."""
    if not re.fullmatch(r"[\w-]+", name):
        raise UserError(f"a source head cannot be called {name!r}: letters, digits, _ and - only")
    return folder / FOLDER / f"{name}.safetensors"


def write(folder: Path, head: Head, backbone: str) -> None:
    """Write a head of the entry in `folder`. backbone: the sha256 of the backbone's file. Raises UserError."""
    metadata = {"backbone": backbone, "layers": json.dumps(head.kinds)}
    with write_whole(path(folder, head.name)) as partial:
        partial.write_bytes(weights.as_bytes(head.state, metadata))


def read_head(folder: Path, name: str, backbone: str) -> nn.Sequential:
    """The layers of a head in eval mode, features (N, F) -> logits (N, S). backbone: the sha256 of the backbone's file.

    Raises UserError for a damaged file, one that `write` did not make, and the head of another backbone.
    """
    state, kinds = read_state(folder, name, backbone)
    try:
        return _layers(kinds, state).eval()
    except (KeyError, TypeError) as error:
        raise UserError(f"{path(folder, name)} is no head that sslkit wrote ({error}): {REMEDY}") from error


def read_state(folder: Path, name: str, backbone: str) -> tuple[dict[str, Tensor], Any]:
    """The tensors of a head and the kinds of its layers, none of a detector's. Raises UserError as `read_head` does."""
    from safetensors import safe_open

    file = path(folder, name)
    state = weights.read_weights(file)
    with safe_open(file, framework="numpy") as opened:
        metadata = opened.metadata() or {}
    if metadata.get("backbone") != backbone:
        raise UserError(f"{file} is the head of another backbone than the one beside it: {REMEDY}")
    return state, reading.parse_json(metadata.get("layers", ""), file, REMEDY)


def _plain(layers: nn.Sequential) -> tuple[list[str], list[tuple[Tensor, Tensor]]]:
    """The kinds of the layers, and weights and biases of the linear ones, with batch norm in the one before it."""
    from torch import nn

    from sslkit.layers.heads import UnitLength

    kinds: list[str] = []
    linear: list[tuple[Tensor, Tensor]] = []
    for layer in layers:
        if isinstance(layer, nn.Linear):
            kinds.append("linear")
            bias = layer.weight.new_zeros(len(layer.weight)) if layer.bias is None else layer.bias
            linear.append((layer.weight, bias))
        elif isinstance(layer, nn.BatchNorm1d) and kinds[-1:] == ["linear"]:
            linear[-1] = _fold(*linear[-1], layer)
        elif isinstance(layer, nn.GELU) and layer.approximate == "none":
            kinds.append("gelu")
        elif isinstance(layer, nn.ReLU):
            kinds.append("relu")
        elif isinstance(layer, UnitLength):
            kinds.append("unit_length")
        elif not isinstance(layer, nn.Identity):
            raise UserError(f"a source head cannot hold a {type(layer).__name__}, only Linear, norm, ReLU and GELU")
    if kinds[-1:] != ["linear"]:
        raise UserError("the last layer of a source head must be a Linear")
    return kinds, linear


def _fold(weight: Tensor, bias: Tensor, norm: nn.BatchNorm1d) -> tuple[Tensor, Tensor]:
    """One Linear for a Linear and the batch norm after it, by the running statistics."""
    scale = (norm.running_var.double() + norm.eps).rsqrt()
    if norm.weight is not None:
        scale = scale * norm.weight.double()
    shift = 0 if norm.bias is None else norm.bias.double()
    return scale[:, None] * weight.double(), (bias.double() - norm.running_mean.double()) * scale + shift


def _layers(kinds: Any, state: dict[str, Tensor]) -> nn.Sequential:
    import torch
    from torch import nn

    from sslkit.layers.heads import UnitLength

    plain = {"relu": nn.ReLU, "gelu": nn.GELU, "unit_length": UnitLength}
    made: list[nn.Module] = []
    number, width = 0, None
    for kind in kinds:
        if kind != "linear":
            made.append(plain[kind]())
            continue
        weight, bias = state[f"{number}.weight"], state[f"{number}.bias"]
        fits = weight.dim() == 2 and weight.shape[1] in (width or weight.shape[1],) and bias.shape == weight.shape[:1]
        if not fits or {weight.dtype, bias.dtype} != {torch.float32}:
            raise KeyError(f"tensors of shape {tuple(weight.shape)} and {tuple(bias.shape)}, {weight.dtype}")
        width = len(weight)
        layer = nn.utils.skip_init(nn.Linear, weight.shape[1], weight.shape[0])
        layer.weight, layer.bias = nn.Parameter(weight, requires_grad=False), nn.Parameter(bias, requires_grad=False)
        made.append(layer)
        number += 1
    if not made or kinds[-1] != "linear":
        raise KeyError("its last layer is not linear")
    return nn.Sequential(*made)
