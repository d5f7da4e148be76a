"""Networks by name: any of timm, `package.module:function`, or a module; small images get another stem."""

import difflib
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from sslkit.backbones import clips, network_lines, timm_allowed
from sslkit.backbones.base import Backbone, Recipe, reason
from sslkit.backbones.network_lines import TimmNetwork
from sslkit.data.items import item_of
from sslkit.data.resizing import SMALL
from sslkit.errors import UserError
from sslkit.options import own_code

# The default networks: timm's ResNet with one basic block a stage, 14 million multiply-adds at 28 pixels, and a ViT
# of four blocks, 23 million with 49 patches of 4 pixels.
NARROW = {
    "narrow_resnet": ("resnet10t", {"stem_type": "", "avg_down": False, "channels": (16, 32, 64, 128)}),
    "narrow_vit": ("vit_tiny_patch16_224", {"embed_dim": 96, "depth": 4, "num_heads": 4, "global_pool": "avg"}),
}
SMALLEST = 32  # pixels: up to this size the default network is the smallest


def default(family: str, image_size: int, frames: int | None, *, on_cpu: bool = False) -> str:
    """The name of the default network.

    family: "resnet" or "vit"; clips have one family. image_size: in pixels. frames: of a clip; None for images.
    on_cpu: of images one that a CPU finishes: the smallest up to 64 pixels, where larger ones keep the resolution; else
        the one of 64.
    """
    if frames is not None:
        return clips.default(image_size)
    if on_cpu:
        image_size = SMALLEST if image_size <= SMALL else SMALL
    small, medium, large = {
        "resnet": ("narrow_resnet", "resnet18", "resnet50"),
        "vit": ("narrow_vit", "vit_tiny_patch16_224", "vit_small_patch16_224"),
    }[family]
    return small if image_size <= SMALLEST else medium if image_size <= SMALL else large


def build(backbone: str | nn.Module, *, image_size: int, in_chans: int, frames: int | None = None) -> Backbone:
    """A Backbone from a timm name, `narrow_resnet`, `narrow_vit`, `package.module:function` or an nn.Module.

    image_size, in_chans: side in pixels and channels of the images.
    frames: of a clip, for a network of clips: one of `clips.NAMES` (None is 16), a function or a module. Up to 64
    pixels the stem is changed to keep the resolution, see `recipe.stem`. A function is called without arguments and
    returns an nn.Module.
    Raises UserError for an unknown name, with the nearest one, and for a network of images on clips.
    """
    if isinstance(backbone, Backbone):
        return backbone
    if isinstance(backbone, nn.Module):
        net, recipe = backbone, Recipe(type(backbone).__name__, stem="its own")
    elif ":" in backbone:
        module, _, function = backbone.partition(":")
        net = own_code.network(backbone, "backbone")
        recipe = Recipe(backbone, [f"from {module} import {function}", f"net = {function}()"], "its own")
    elif (seen := _frames_of(backbone, frames)) is not None:
        frames = seen
        net, recipe = clips.build(backbone, image_size, in_chans)
    else:
        made_of = NARROW.get(backbone, (backbone, {}))
        _check_name(backbone, made_of[0])
        sizes = _size_arguments(made_of[0], image_size)
        return _of_size(backbone, made_of, sizes, image_size, in_chans, adapt=image_size <= SMALL)
    return Backbone(net, recipe, image_size=image_size, in_chans=in_chans, item=item_of(frames))


def _frames_of(name: str, frames: int | None) -> int | None:
    """The frames of a clip for this network, None for images. Raises UserError if it takes only images."""
    if name in clips.NAMES:
        return frames or clips.FRAMES
    if frames is not None:
        near = difflib.get_close_matches(name, clips.NAMES, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"give one of {', '.join(clips.NAMES)}"
        raise UserError(f"backbone: {name} takes images, and the data are clips: {hint}, or package.module:function")
    return None


def build_published(
    name: str, *, image_size: int, in_chans: int, arguments: Mapping[str, Any] = MappingProxyType({})
) -> Backbone:
    """A timm network with the stem and the patches that its published weights have, also for small images.

    arguments: of `timm.create_model`, beside those of the size.

    Raises UserError for an unknown name, and for a size that the network cannot take.
    """
    _check_name(name, name)
    sizes = [arguments for arguments in _size_arguments(name, image_size) if "patch_size" not in arguments]
    return _of_size(name, (name, dict(arguments)), sizes, image_size, in_chans)


def _of_size(
    name: str,
    made_of: tuple[str, dict[str, Any]],
    tries: list[dict[str, Any]],
    image_size: int,
    in_chans: int,
    *,
    adapt: bool = False,
) -> Backbone:
    """The network of the first size arguments that timm accepts. Raises UserError if it accepts none.

    made_of: timm's name and the arguments that do not depend on the size. adapt: change the stem for small images.
    """
    faults: list[Exception] = []
    state = torch.get_rng_state()
    for sizes in tries:
        try:
            arguments = {"num_classes": 0, "in_chans": in_chans, **made_of[1], **sizes}
            net, recipe = _timm_network(name, made_of[0], arguments)
            if adapt:
                net = _keep_resolution(net, recipe, wide_stride=name == "narrow_resnet")
            return Backbone(net, recipe, image_size=image_size, in_chans=in_chans)
        except Exception as error:  # timm's constructors raise many classes
            faults.append(error)
            torch.set_rng_state(state)  # failed attempts do not change the weights
    first = next((fault for fault in faults if "keyword argument" not in str(fault)), faults[0])
    if isinstance(first, UserError):
        raise first
    wanted = f"{name} for images of {in_chans} x {image_size} x {image_size}"
    raise UserError(f"backbone: timm cannot make {wanted}: {reason(first)}") from first


def _check_name(name: str, timm_name: str) -> None:
    """Raises UserError for a name, or a tag of weights, that timm does not know."""
    import timm

    if not timm.is_model(timm_name):
        near = difflib.get_close_matches(name, [*NARROW, *timm.list_models()], n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "timm.list_models() has the names"
        raise UserError(f"backbone: timm knows no model {name!r}; {hint}")
    try:
        timm.get_pretrained_cfg(timm_name)
    except RuntimeError as error:
        plain = timm_name.partition(".")[0]
        raise UserError(f"backbone: timm knows no weights {timm_name!r}; write {plain}: it starts at random") from error


def _timm_network(name: str, timm_name: str, arguments: dict[str, Any]) -> tuple[nn.Module, Recipe]:
    """Raises UserError for arguments that a card may not hold, and any error of timm's."""
    import timm

    if fault := timm_allowed.fault(timm_name, arguments):
        raise UserError(f"backbone {name}: {fault}")
    net = timm.create_model(timm_name, pretrained=False, **arguments)
    recipe = Recipe(name, TimmNetwork(timm_name, arguments).lines())
    if "patch_size" in arguments:
        recipe.stem = f"{arguments['patch_size']}-pixel patches, for images of {SMALL} pixels or less"
    return net, recipe


def _size_arguments(timm_name: str, image_size: int) -> list[dict[str, Any]]:
    """The size arguments to try with timm, in order.

    Transformers with a position for each patch need the size, and small images need small patches. Only timm knows
    which networks these are: for names of known transformers the size comes first, for others the plain call.
    A plain ViT also takes the smaller crops of multi-crop: its positions are interpolated.
    """
    import timm

    module = timm.model_entrypoint(timm_name).__module__.rpartition(".")[2]
    size = (timm.get_pretrained_cfg(timm_name) or object()).__dict__.get("input_size", (3, 224, 224))[-1]
    tries: list[dict[str, Any]] = [{}]
    if image_size != size:
        told = [{"img_size": image_size}]
        if image_size <= SMALL:
            patch = max((p for p in (2, 4, 7, 8) if image_size % p == 0 and image_size // p >= 7), default=1)
            told = [{"img_size": image_size, "patch_size": patch}, *told]
        transformer = "vit" in timm_name or "deit" in timm_name or "eva" in timm_name
        tries = [*told, {}] if transformer else [{}, *reversed(told)]
    if module in ("vision_transformer", "deit", "eva"):
        named = int((re.search(r"patch(\d+)", timm_name) or [0, 1])[1])
        for sizes in tries:
            if image_size % sizes.get("patch_size", named) == 0:  # else timm refuses the size itself
                sizes["dynamic_img_size"] = True
    return tries


def _keep_resolution(net: nn.Module, recipe: Recipe, *, wide_stride: bool) -> nn.Module:
    """Give a ResNet a 3x3 stem (a deep stem keeps its own) without pooling, other nets a first stride of 1.

    The weights of a changed stem have another shape or another name than timm's, so that no other network takes them.
    """
    stem = getattr(net, "conv1", getattr(net, "conv_stem", None))
    pooled = hasattr(net, "conv1") and hasattr(net, "maxpool")
    if pooled and isinstance(stem, nn.Conv2d):
        stride = stem.stride if wide_stride else (1, 1)
        recipe.stem = f"3x3 with stride {stride[0]} and no pooling, for images of {SMALL} pixels or less"
        made = f"torch.nn.Conv2d({stem.in_channels}, {stem.out_channels}, 3, {stride}, 1, bias=False)"
        changes = [f"net.conv1, net.maxpool = {made}, torch.nn.Identity()"]
    elif pooled and isinstance(stem, nn.Sequential):
        recipe.stem = f"stride 1 and no pooling, for images of {SMALL} pixels or less"
        changes = ["net.conv1[0], net.maxpool = torch.nn.Sequential(net.conv1[0]), torch.nn.Identity()"]
        changes.append("net.conv1[0][0].stride = (1, 1)")
    elif isinstance(stem, nn.Conv2d) and not hasattr(net, "conv1"):
        recipe.stem = f"stride 1, for images of {SMALL} pixels or less"
        changes = ["net.conv_stem = torch.nn.Sequential(net.conv_stem)", "net.conv_stem[0].stride = (1, 1)"]
    else:
        return net
    recipe.lines += ["import torch", *changes]
    return network_lines.parse(recipe.lines).change(net, recipe.name)
