"""Names of tensors in other libraries and projects, translated name by name to those of timm's networks.

A naming is known by a tensor that each of its files has. timm's own conversions (`checkpoint_filter_fn` of a network's
module: OpenCLIP and CLIP, DINOv2 with registers, Meta's ConvNeXt, Swin, ...) come last.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sslkit.backbones.state_dicts import Reading, StateDict, below, prefixes
from sslkit.backbones.weight_files import is_dense

Rules = tuple[tuple[str, str], ...]  # regular expressions and their replacements

_VIT = (
    (r"^class_token$", "cls_token"),
    (r"^encoder\.pos_embedding$", "pos_embed"),
    (r"^conv_proj\.", "patch_embed.proj."),
    (r"^encoder\.ln\.", "norm."),
    (r"^heads\.head\.", "head."),
    (r"^encoder\.layers\.encoder_layer_(\d+)\.", r"blocks.\1."),
    (r"\.ln_([12])\.", r".norm\1."),
    (r"\.self_attention\.in_proj_", ".attn.qkv."),
    (r"\.self_attention\.out_proj\.", ".attn.proj."),
    (r"\.mlp\.(?:linear_1|0)\.", ".mlp.fc1."),
    (r"\.mlp\.(?:linear_2|3)\.", ".mlp.fc2."),
)
# The children of torchvision's ResNet in a row, as `nn.Sequential(*list(resnet.children())[:-1])` numbers them.
_CHILDREN = (
    *((r"^0\.", "conv1."), (r"^1\.", "bn1.")),
    *((rf"^{number}\.", f"layer{number - 3}.") for number in (4, 5, 6, 7)),
)
_CHUNKED = "blocks.0.0.norm1.weight"
_CHUNKS = ((r"^blocks\.\d+\.(\d+)\.", r"blocks.\1."),)


def _efficientnet(net: nn.Module) -> Rules:
    """EfficientNet-PyTorch counts its blocks through all stages.

    None for a network that does not pad as TensorFlow: the weights would fit and give other features.
    """
    from timm.layers import Conv2dSame

    if not isinstance(getattr(net, "conv_stem", None), Conv2dSame):
        return ()
    rules = [(r"^_conv_stem\.", "conv_stem."), (r"^_bn0\.", "bn1."), (r"^_conv_head\.", "conv_head.")]
    rules += [(r"^_bn1\.", "bn2."), (r"^_fc\.", "classifier.")]
    blocks = [(f"blocks.{i}.{j}", block) for i, stage in enumerate(net.blocks) for j, block in enumerate(stage)]
    for number, (name, block) in enumerate(blocks):
        expands = hasattr(block, "conv_pwl")
        layers = {"_depthwise_conv": "conv_dw", "_se_reduce": "se.conv_reduce", "_se_expand": "se.conv_expand"}
        layers |= {"_project_conv": "conv_pwl" if expands else "conv_pw", "_expand_conv": "conv_pw"}
        layers |= {f"_bn{i}": f"bn{i + 1 if expands else i}" for i in range(3)}
        rules += [(rf"^_blocks\.{number}\.{theirs}\.", f"{name}.{ours}.") for theirs, ours in layers.items()]
    return tuple(rules)


@dataclass(frozen=True)
class Naming:
    """title: in the line about a file. known_by: a tensor of each file. rules: for a network; none: not for this."""

    title: str
    known_by: str
    rules: Callable[[nn.Module], Rules]

    def readings(self, source: StateDict, net: nn.Module) -> Iterator[Reading]:
        """The tensors below each prefix that has this naming, by the network's names."""
        starts = prefixes(source.tensors, {self.known_by})
        rules = self.rules(net) if starts else ()
        for prefix in starts if rules else ():
            used = {rename(name, rules): whole for name, whole in below(source, prefix).items()}
            tensors = {name: source.tensors[whole] for name, whole in used.items()}
            yield Reading(source, prefix, tensors, used, f"names of {self.title}")


NAMINGS = (
    Naming("torchvision's ViT", "conv_proj.weight", lambda net: _VIT),
    Naming("a ResNet's layers in a row", "4.0.conv1.weight", lambda net: _CHILDREN),
    Naming("DINOv2's training", _CHUNKED, lambda net: _CHUNKS),
    Naming("EfficientNet-PyTorch", "_blocks.0._depthwise_conv.weight", _efficientnet),
)


def rename(name: str, rules: Rules) -> str:
    """A name after all rules, in their order."""
    for pattern, other in rules:
        name = re.sub(pattern, other, name)
    return name


def same_names(source: StateDict, net: nn.Module) -> Iterator[Reading]:
    """The tensors by their own names, below each prefix at which some of the network's names stand.

    A whole network below another prefix is no part of the one around it.
    """
    names = net.state_dict().keys()
    starts = prefixes(source.tensors, names)
    whole = [prefix for prefix in starts if names <= below(source, prefix).keys()]
    for prefix in starts:
        inner = tuple(other for other in whole if other != prefix and other.startswith(prefix))
        used = {name: full for name, full in below(source, prefix).items() if not full.startswith(inner)}
        yield Reading(source, prefix, {name: source.tensors[full] for name, full in used.items()}, used)


def by_timm(source: StateDict, net: nn.Module) -> Iterator[Reading]:
    """The tensors as timm's own conversion for this network names them; none for networks without one."""
    convert: Any = getattr(sys.modules[type(net).__module__], "checkpoint_filter_fn", None)
    if convert is None:
        return
    more = {"adapt_layer_scale": True} if "adapt_layer_scale" in inspect.signature(convert).parameters else {}
    for prefix in _outer(source):
        names = below(source, prefix)
        if _CHUNKED in names:
            names = {rename(name, _CHUNKS): whole for name, whole in names.items()}
        by_name = {name: source.tensors[whole] for name, whole in names.items()}
        try:
            with torch.no_grad():
                tensors = convert(dict(by_name), net, **more)
        except Exception:  # it meets a file of any form
            continue
        yield Reading(source, prefix, tensors, _origins(tensors, by_name, names), "names translated by timm")


def _outer(source: StateDict) -> list[str]:
    """Prefixes that timm's conversions do not know, before the names that they look for: such as `module.`, and ""."""
    outer = {"": None}
    for name in source.tensors:
        parts = name.split(".")
        for end in (1, 2, 3):
            if end < len(parts) and not any(piece.isdigit() for piece in parts[:end]):
                outer[".".join([*parts[:end], ""])] = None
    return sorted(outer, key=lambda prefix: -prefix.count("."))


def _origins(tensors: dict[str, Tensor], given: dict[str, Tensor], names: dict[str, str]) -> dict[str, str]:
    """The whole names of the tensors that a conversion has used, by the name that it gave them, or by their own.

    It has used one whose name or whose memory is among the results, and those beside it that are joined into one.
    """
    memory = {_memory(value): name for name, value in tensors.items()}
    used = {name: whole for name, whole in names.items() if name in tensors}
    for name, value in given.items():
        if name not in used and (other := memory.get(_memory(value))):
            used[other] = names[name]
    return used


def _memory(value: Tensor) -> int | None:
    return value.untyped_storage().data_ptr() if is_dense(value) else None
