"""A network with its measured width and the recipe to rebuild it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from sslkit.data.items import IMAGE, Item
from sslkit.errors import UserError
from sslkit.layers.lora import load_merged, merge
from sslkit.layers.patch_convolution import use_products

CLASSIFIERS = ("fc", "classifier", "head", "heads")  # attributes of torchvision's and timm's networks
# By the number of an item's further axes. A backbone names no memory format itself, as torch.save cannot write one.
CONVOLUTIONS, LAYOUTS = (nn.Conv2d, nn.Conv3d), (torch.channels_last, torch.channels_last_3d)


@dataclass(frozen=True)
class Origin:
    """The weights that a network started from.

    source: the word that named them, such as `timm:resnet50:weights.safetensors`. sha256: of their file; of
    downloaded weights, of their tensors as a safetensors file. normalize: mean and std of the pixels in [0, 1] that
    they were trained on. notes: facts of the loading, such as a classification head that was left out.
    """

    source: str
    sha256: str
    normalize: tuple[tuple[float, ...], tuple[float, ...]]
    notes: tuple[str, ...] = ()


@dataclass
class Recipe:
    """Instructions of a card to rebuild a network in plain Python.

    lines: Python whose last line binds `net`. stem: description of the change for small images.
    origin: the weights that it started from; None: random ones.
    """

    name: str
    lines: list[str] = field(default_factory=list)
    stem: str = "as published"
    origin: Origin | None = None


class Backbone(nn.Module):
    """A network (B, C, H, W) -> (B, width) with its measured width and the recipe to rebuild it.

    net: the module, without a classifier. recipe: how a card rebuilds it.
    image_size, in_chans: of the expected images. item: what it takes, of clips (B, C, T, H, W).
    """

    def __init__(self, net: nn.Module, recipe: Recipe, *, image_size: int, in_chans: int, item: Item = IMAGE) -> None:
        super().__init__()
        self.net = net
        self.recipe = recipe
        self.image_size = image_size
        self.in_chans = in_chans
        self.item = item
        kinds, convolution = {type(layer) for layer in net.modules()}, CONVOLUTIONS[len(item.axes)]
        is_transformer = nn.MultiheadAttention in kinds or hasattr(net, "patch_embed")
        self.convolutional = convolution in kinds and not is_transformer
        self.patch = net.patch_embed.patch_size[0] if self.is_vit else 1
        if self.is_vit:
            use_products(net.patch_embed)
        self.kept_norms: frozenset[str] = frozenset()
        self.is_held = False
        self.tuned = ""  # what of given weights learns, in words
        self.width = _measure(net, self.input_shape(), item, recipe.name)  # a lazy layer has its weights from here on
        if self.convolutional:
            self._lay_out()

    def keep_norms(self, names: Iterable[str]) -> None:
        """Keep these batch norms, by their names, at their running means and variances, also in training."""
        self.kept_norms = frozenset(names)
        self.train(self.training)

    def batch_norms(self) -> dict[str, _BatchNorm]:
        """The layers of batch normalisation, by their names in `net`."""
        return {name: layer for name, layer in self.net.named_modules() if isinstance(layer, _BatchNorm)}

    def hold(self, is_held: bool) -> None:
        """Keep all batch norms at their means and variances while the network is not trained; else only kept_norms."""
        self.is_held = is_held
        self.train(self.training)

    def train(self, mode: bool = True) -> "Backbone":
        super().train(mode)
        for name, layer in self.batch_norms().items() if self.is_held or self.kept_norms else ():
            if self.is_held or name in self.kept_norms:
                layer.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Normalised images (B, C, H, W), or clips (B, C, T, H, W), to features (B, width)."""
        return self.net(self.laid_out(x))

    def laid_out(self, x: Tensor) -> Tensor:
        """The same pixels, channels last in memory for a convolutional network: as its kernels are fastest."""
        return x.contiguous(memory_format=self.layout) if self.convolutional else x

    @property
    def layout(self) -> torch.memory_format:
        """The order of a convolutional network's memory."""
        return LAYOUTS[len(self.item.axes)]

    def _lay_out(self) -> None:
        """Store the weights of the items' convolutions channels last; those of another rank stay as they are.

        `nn.Module.to(memory_format=...)` refuses a network that has both, such as kernels over time and over space.
        """
        rank = 1 + len(self.input_shape())
        for weight in (*self.net.parameters(), *self.net.buffers()):
            if weight.dim() == rank:
                # not `contiguous`, which leaves kernels of one pixel with strides that are not their gradients'
                weight.data = torch.empty_like(weight.data, memory_format=self.layout).copy_(weight.data)

    def input_shape(self, size: int | None = None) -> tuple[int, ...]:
        """(C, S, S) of an image, (C, T, S, S) of a clip. size: S; None is image_size."""
        return self.item.shape(self.in_chans, size or self.image_size)

    def check_images(self, objective: str) -> None:
        """Raises UserError unless it takes images. objective: "NAME takes images", for the message."""
        if self.item.axes:
            raise UserError(f"{objective} only, and backbone {self.recipe.name} takes {self.item.name}s")

    @property
    def is_vit(self) -> bool:
        """True for timm's VisionTransformer and Eva (EVA, DINOv3), whose parts objectives may use."""
        from timm.models.eva import Eva
        from timm.models.vision_transformer import VisionTransformer

        return isinstance(self.net, (VisionTransformer, Eva))

    @property
    def doubt(self) -> str:
        """A note on features that are a classifier's outputs, or on weights that are named and not loaded; or ""."""
        tag = self.recipe.name.partition(".")[2]
        if tag and ":" not in self.recipe.name and self.recipe.origin is None:
            return f"random weights: init=timm:{self.recipe.name} starts from those that .{tag} names"
        heads = {name: layer for name in CLASSIFIERS if (layer := getattr(self.net, name, None)) is not None}
        linear = {
            name: [child for child in layer.modules() if isinstance(child, nn.Linear)] for name, layer in heads.items()
        }
        last = next(
            (name for name, children in linear.items() if children and children[-1].out_features == self.width), None
        )
        if last is None:
            return ""
        return (
            f"the features are the {self.width} outputs of `{last}`, a classifier's; for those before it: "
            f"net.{last} = torch.nn.Identity()"
        )

    @property
    def unseen(self) -> str:
        """A note on the pixels at the right and lower edge that no patch covers; "" where the patches cover all."""
        from timm.layers import PatchEmbed

        sizes = {m.patch_size[0] for m in self.net.modules() if isinstance(m, PatchEmbed) and not m.dynamic_img_pad}
        patch = max(sizes, key=lambda size: self.image_size % size, default=1)
        left = self.image_size % patch
        if not left:
            return ""
        fits = [size for size in (self.image_size - left, self.image_size - left + patch) if size]
        return (
            f"patches of {patch} pixels do not divide {self.image_size}: the last {left} rows and columns of every "
            f"image are not seen; a size of {' or '.join(map(str, fits))} pixels has none such"
        )

    def feature_map(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C, H, W) -> the last feature map (B, F, H', W') and the pooled features (B, width).

        Raises UserError for a network of clips, and for one without timm's `forward_features` and `forward_head`.
        """
        if self.item.axes:
            raise UserError(
                f"backbone {self.recipe.name} gives no feature map: an objective on maps takes images, not "
                f"{self.item.name}s"
            )
        return feature_map(self.net, self.laid_out(x), f"backbone {self.recipe.name}")

    @torch.no_grad()
    def map_channels(self) -> int:
        """Channels of the last feature map, which may differ from those of the pooled features."""
        training = self.training
        weight = next(self.parameters())
        last, _ = self.eval().feature_map(torch.zeros(2, *self.input_shape()).to(weight))
        self.train(training)
        return last.shape[1]

    def load_exported(self, state: Mapping[str, Tensor]) -> None:
        """Load what `export` gives; updates of LoRA are zero then."""
        load_merged(self.net, state)

    def export(self) -> dict[str, Tensor]:
        """The state dict of the plain network, LoRA merged."""
        return {k: v.detach().cpu().contiguous() for k, v in merge(self.net).items()}


def feature_map(net: nn.Module, x: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """(B, C, H, W) -> a timm network's last feature map (B, F, H', W') and its pooled features (B, width).

    name: of the network, for messages. Raises UserError for one without `forward_features` and `forward_head`.
    """
    if not (hasattr(net, "forward_features") and hasattr(net, "forward_head")):
        raise UserError(f"{name} gives no feature map: take a timm model")
    last = net.forward_features(x)
    pooled = net.forward_head(last)
    if last.dim() == 4 and getattr(net, "output_fmt", "NCHW") == "NHWC":
        last = last.permute(0, 3, 1, 2)
    if last.dim() == 3:  # (B, tokens, F) of a transformer
        side = x.shape[-2] // net.patch_embed.patch_size[0]
        last = last[:, net.num_prefix_tokens :].transpose(1, 2).unflatten(2, (side, -1))
    return last, pooled


def reason(error: Exception) -> str:
    """The first line of a network's own error."""
    message = (str(error).strip() or "no message").splitlines()[0]
    return message if isinstance(error, RuntimeError) else f"{type(error).__name__}: {message}"


def _measure(net: nn.Module, one: tuple[int, ...], item: Item, name: str) -> int:
    """The number of features. one: the shape of an item."""
    training = net.training
    net.eval()
    shape = (1 if item.axes else 2, *one)
    try:
        with torch.no_grad():
            out = net(torch.zeros(shape))
    except Exception as error:  # networks raise any class for an unsupported size
        raise UserError(f"backbone {name} cannot take {item.name}s of shape {shape}: {reason(error)}") from error
    net.train(training)
    if not isinstance(out, Tensor) or out.dim() != 2:
        got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise UserError(f"backbone {name} must return one (B, width) tensor of pooled features, it returned {got}")
    if others := [key for key, value in net.state_dict().items() if not isinstance(value, Tensor)]:
        raise UserError(
            f"backbone {name} has {others[0]} in its state, which is no tensor and so no part of a file of weights: "
            "return a tensor from get_extra_state"
        )
    return out.shape[1]
