"""Backbones: any timm model by name, `package.module:function`, or a module; the width is measured, not asked.

The networks of clips are in video_backbones.py.
"""

import difflib
import re
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sslkit import own_code
from sslkit.backbones import timm_allowed
from sslkit.errors import UserError

SMALL = 64  # pixels: up to here a stem that shrinks the image by four throws most of it away

# The default runs' networks: timm's ResNet with one basic block a stage, 14 million multiply-adds at 28 pixels.
# And a ViT of four blocks, 23 million with 49 patches of 4 pixels.
NARROW = {
    "narrow_resnet": ("resnet10t", {"stem_type": "", "avg_down": False, "channels": (16, 32, 64, 128)}),
    "narrow_vit": ("vit_tiny_patch16_224", {"embed_dim": 96, "depth": 4, "num_heads": 4, "global_pool": "avg"}),
}


def default(family: str, image_size: int, frames: int | None = None) -> str:
    """The network that a run takes if none is asked for. family: "resnet" or "vit"; of clips there is one."""
    if frames is not None:
        from sslkit.backbones import clips as video_backbones

        return video_backbones.default(image_size)
    small, medium, large = {
        "resnet": ("narrow_resnet", "resnet18", "resnet50"),
        "vit": ("narrow_vit", "vit_tiny_patch16_224", "vit_small_patch16_224"),
    }[family]
    return small if image_size <= 32 else medium if image_size <= SMALL else large


@dataclass
class Recipe:
    """How a network is made again in plain Python, so that a card can say it.

    lines: Python whose last line binds `net`. stem: what was changed for small images, in words.
    padded_stem: conv1 stands for a larger kernel, which it is padded to with zeros when the weights are exported.
    """

    name: str
    lines: list[str] = field(default_factory=list)
    stem: str = "as published"
    padded_stem: bool = False


class Backbone(nn.Module):
    """A network (B, C, H, W) -> (B, width) with its measured width and the recipe to make it again.

    image_size, in_chans: of the images that it was made for. frames: of the clips (B, C, T, H, W) that it takes
    instead; None for images.
    """

    def __init__(
        self, net: nn.Module, recipe: Recipe, *, image_size: int, in_chans: int, frames: int | None = None
    ) -> None:
        super().__init__()
        self.net = net
        self.recipe = recipe
        self.image_size = image_size
        self.in_chans = in_chans
        self.frames = frames
        self.convolutional = _is_convolutional(net, nn.Conv2d if frames is None else nn.Conv3d)
        self.patch = net.patch_embed.patch_size[0] if self.is_vit else 1
        if self.convolutional:
            self.net.to(memory_format=self._layout)
        self.width = _measure(net, self.input_shape(), recipe.name)

    def forward(self, x: Tensor) -> Tensor:
        if self.convolutional:
            x = x.contiguous(memory_format=self._layout)
        return self.net(x)

    @property
    def _layout(self) -> torch.memory_format:
        return torch.channels_last if self.frames is None else torch.channels_last_3d

    def input_shape(self, size: int | None = None) -> tuple[int, ...]:
        """(C, S, S) of an image, (C, T, S, S) of a clip. size: S; None is image_size."""
        size = size or self.image_size
        return (self.in_chans, *([] if self.frames is None else [self.frames]), size, size)

    @property
    def is_vit(self) -> bool:
        """Whether the network is timm's VisionTransformer, of which objectives may use the parts."""
        from timm.models.vision_transformer import VisionTransformer

        return isinstance(self.net, VisionTransformer)

    def feature_map(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C, H, W) -> the last map of features (B, F, H', W') and the pooled ones (B, width).

        Raises UserError for a network without timm's `forward_features` and `forward_head`.
        """
        if not (hasattr(self.net, "forward_features") and hasattr(self.net, "forward_head")):
            instead = "take a timm model" if self.frames is None else "an objective on maps takes images, not clips"
            raise UserError(f"backbone {self.recipe.name} gives no feature map: {instead}")
        if self.convolutional:
            x = x.contiguous(memory_format=torch.channels_last)
        last = self.net.forward_features(x)
        pooled = self.net.forward_head(last)
        if last.dim() == 4 and getattr(self.net, "output_fmt", "NCHW") == "NHWC":
            last = last.permute(0, 3, 1, 2)
        if last.dim() == 3:  # (B, tokens, F) of a transformer
            side = x.shape[-2] // self.patch
            last = last[:, self.net.num_prefix_tokens :].transpose(1, 2).unflatten(2, (side, -1))
        return last, pooled

    def export(self) -> dict[str, Tensor]:
        """The state dict of the plain network: a 3x3 stem is a 7x7 one with a rim of zeros."""
        state = {k: v.detach().cpu().contiguous() for k, v in self.net.state_dict().items()}
        if self.recipe.padded_stem:
            state["conv1.weight"] = F.pad(state["conv1.weight"], (2, 2, 2, 2)).contiguous()
        return state


def build(backbone: str | nn.Module, *, image_size: int, in_chans: int, frames: int | None = None) -> Backbone:
    """A Backbone from a timm name, `narrow_resnet`, `narrow_vit`, `package.module:function` or an nn.Module.

    frames: of a clip, for a network of clips: one of `video_backbones.NAMES` (where None is 16), a function or a
    module. Up to 64 pixels the stem is changed to keep the resolution, and `recipe.stem` says how. A function is
    called without arguments and returns an nn.Module.
    Raises UserError for an unknown name, with the nearest one, and for a network of images where clips are meant.
    """
    if isinstance(backbone, Backbone):
        return backbone
    if isinstance(backbone, nn.Module):
        net, recipe = backbone, Recipe(type(backbone).__name__, stem="its own")
    elif ":" in backbone:
        net, recipe = _from_function(backbone)
    elif (clips := _frames_of(backbone, frames)) is not None:
        from sslkit.backbones import clips as video_backbones

        frames = clips
        net, recipe = video_backbones.build(backbone, image_size, in_chans)
    else:
        return _from_timm(backbone, image_size, in_chans)
    return Backbone(net, recipe, image_size=image_size, in_chans=in_chans, frames=frames)


def _frames_of(name: str, frames: int | None) -> int | None:
    """How many frames a network of this name sees, None for images. Raises UserError where it takes images only."""
    from sslkit.backbones import clips as video_backbones

    if name in video_backbones.NAMES:
        return frames or video_backbones.FRAMES
    if frames is not None:
        near = difflib.get_close_matches(name, video_backbones.NAMES, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"give one of {', '.join(video_backbones.NAMES)}"
        raise UserError(f"backbone: {name} takes images, and the data are clips: {hint}, or package.module:function")
    return None


def _from_function(name: str) -> tuple[nn.Module, Recipe]:
    module, _, function = name.partition(":")
    net = own_code.network(name, "backbone")
    return net, Recipe(name, [f"from {module} import {function}", f"net = {function}()"], "its own")


def _from_timm(name: str, image_size: int, in_chans: int) -> Backbone:
    """The network with the first of `_size_arguments` with which it takes the images. Raises UserError for none."""
    import timm

    timm_name, kwargs = NARROW.get(name, (name, {}))
    if not timm.is_model(timm_name):
        near = difflib.get_close_matches(name, [*NARROW, *timm.list_models()], n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "timm.list_models() has the names"
        raise UserError(f"backbone: timm knows no model {name!r}; {hint}")
    _check_tag(timm_name)
    faults: list[Exception] = []
    state = torch.get_rng_state()
    for sizes in _size_arguments(timm_name, image_size):
        try:
            net, recipe = _timm_network(name, timm_name, {"num_classes": 0, "in_chans": in_chans, **kwargs, **sizes})
            if image_size <= SMALL:
                _keep_resolution(net, recipe, wide_stride=name == "narrow_resnet")
            return Backbone(net, recipe, image_size=image_size, in_chans=in_chans)
        except Exception as error:  # each of timm's constructors raises its own
            faults.append(error)
            torch.set_rng_state(state)  # what was tried in vain leaves no trace in the weights
    first = next((fault for fault in faults if "keyword argument" not in str(fault)), faults[0])
    if isinstance(first, UserError):
        raise first
    shape = f"{in_chans} x {image_size} x {image_size}"
    raise UserError(f"backbone: timm cannot make {name} for images of {shape}: {_reason(first)}") from first


def _check_tag(timm_name: str) -> None:
    """Raises UserError for a tag of weights (`resnet18.TAG`) that timm does not know."""
    import timm

    try:
        timm.get_pretrained_cfg(timm_name)
    except RuntimeError as error:
        plain = timm_name.partition(".")[0]
        raise UserError(f"backbone: timm knows no weights {timm_name!r}; write {plain}: it starts at random") from error


def _timm_network(name: str, timm_name: str, arguments: dict[str, Any]) -> tuple[nn.Module, Recipe]:
    """Raises UserError for arguments that no card may hold, and whatever timm raises."""
    import timm

    if fault := timm_allowed.fault(timm_name, arguments):
        raise UserError(f"backbone {name}: {fault}")
    net = timm.create_model(timm_name, pretrained=False, **arguments)
    written = ", ".join(f"{k}={v!r}" for k, v in arguments.items())
    recipe = Recipe(name, ["import timm", f"net = timm.create_model({timm_name!r}, {written})"])
    if "patch_size" in arguments:
        recipe.stem = f"{arguments['patch_size']}-pixel patches, for images of {SMALL} pixels or less"
    return net, recipe


def _size_arguments(timm_name: str, image_size: int) -> list[dict[str, Any]]:
    """The size arguments that timm may be given, in the order in which they are tried.

    Transformers with a position for each patch must know the size, and small images want small patches. Which networks
    those are timm alone knows: those named so are told first, others only if they do not take the size as it is.
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
    if module in ("vision_transformer", "deit"):
        named = int((re.search(r"patch(\d+)", timm_name) or [0, 1])[1])
        plain = [
            image_size % sizes.get("patch_size", named) == 0 for sizes in tries
        ]  # else timm refuses the size itself
        tries = [sizes | ({"dynamic_img_size": True} if one else {}) for sizes, one in zip(tries, plain, strict=True)]
    return tries


def _keep_resolution(net: nn.Module, recipe: Recipe, *, wide_stride: bool) -> None:
    """A ResNet gets a 3x3 stem (a deep stem keeps its own) without pooling, other nets a first stride of 1."""
    if isinstance(getattr(net, "conv1", None), nn.Conv2d) and hasattr(net, "maxpool"):
        old = net.conv1
        stride = old.stride if wide_stride else (1, 1)
        net.conv1 = nn.Conv2d(old.in_channels, old.out_channels, 3, stride, 1, bias=False)
        nn.init.kaiming_normal_(net.conv1.weight, mode="fan_out", nonlinearity="relu")
        net.maxpool = nn.Identity()
        recipe.padded_stem = True
        recipe.stem = f"3x3 with stride {stride[0]} and no pooling, for images of {SMALL} pixels or less"
        recipe.lines += ["import torch", f"net.conv1.stride, net.maxpool = {stride}, torch.nn.Identity()"]
    elif isinstance(getattr(net, "conv1", None), nn.Sequential) and hasattr(net, "maxpool"):
        net.conv1[0].stride, net.maxpool = (1, 1), nn.Identity()
        recipe.stem = f"stride 1 and no pooling, for images of {SMALL} pixels or less"
        recipe.lines += ["import torch", "net.conv1[0].stride, net.maxpool = (1, 1), torch.nn.Identity()"]
    elif isinstance(getattr(net, "conv_stem", None), nn.Conv2d):
        net.conv_stem.stride = (1, 1)
        recipe.stem = f"stride 1, for images of {SMALL} pixels or less"
        recipe.lines += ["net.conv_stem.stride = (1, 1)"]


def _is_convolutional(net: nn.Module, convolution: type[nn.Module]) -> bool:
    kinds = [type(m) for m in net.modules()]
    return convolution in kinds and nn.MultiheadAttention not in kinds and not hasattr(net, "patch_embed")


def _reason(error: Exception) -> str:
    said = (str(error).strip() or "no message").splitlines()[0]
    return said if isinstance(error, RuntimeError) else f"{type(error).__name__}: {said}"


def _measure(net: nn.Module, one: tuple[int, ...], name: str) -> int:
    """The number of features. one: the shape of an image or a clip."""
    training = net.training
    net.eval()
    shape = (2 if len(one) == 3 else 1, *one)
    try:
        with torch.no_grad():
            out = net(torch.zeros(shape))
    except Exception as error:  # networks raise what they like for a size that they do not take
        kind = "images" if len(one) == 3 else "clips"
        raise UserError(f"backbone {name} cannot take {kind} of shape {shape}: {_reason(error)}") from error
    net.train(training)
    if not isinstance(out, Tensor) or out.dim() != 2:
        got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise UserError(f"backbone {name} must return one (B, width) tensor of pooled features, it returned {got}")
    return out.shape[1]
