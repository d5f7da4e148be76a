"""Weights that fit by name and shape and compute something else: what batch normalisation remembers contradicts images.

Running means and variances are those of the layers' inputs in training. Where pixels have another scale or order of
channels, or convolutions another padding or stride, the inputs are others. Each is tried, and that is named by which
real images fit much better. Images of another kind fit by none, so that nothing is said of them.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.data.items import IMAGE, Item
from sslkit.runtime.distributed import rank
from sslkit.terminal import say

IMAGES, LEAST = 32, 8  # that are looked at, at most and at least
_THROUGH = 16  # of these that go through the whole network, for padding and strides
_POSITIONS = 49  # of a layer's map, at least, for these: with fewer, as 2 x 2 of 64 pixels, chance decides
# The distance of a layer is the logarithm of its mean Kullback-Leibler divergence. Measured on photographs of PyPI's
# mvtb-data and scikit-image, drawings, clothes, letters, digits, fabric and solar cells, with two efficientnet wheels
# and 42 random networks of timm, whose statistics were estimated on other photographs (recipes/benchmarks/LOG.md).
_EARLY = 4  # layers by which pixels are told: later ones hide what the first has rescaled
_MOST = 20.0  # of a channel's divergence
# (gain, fit): by how much an alternative must be nearer, and how near it must be. Own weights gained at most 1.1 by
# another scale, on fabric that fitted by none (-1.3); the right one gains 2.4 or more on photographs (-2.8 to -5).
_OF_SCALE = (1.5, -2.0)
# The bluest quarter of the photographs gained 0.43 by blue for red; of all together the right order gains 0.63.
_OF_ORDER = (0.6, -3.0)
# Of all layers. Own weights gained at most 0.28 by another padding and 0.17 by another stride, on letters (-1.2), and
# lost on all photographs. Right ones gain 0.36 to 0.51 (lite0; 0.13 to 0.27 in lite1: not said) and 1.1 to 1.35
# on photographs (-3.3).
_OF_PADDING = (0.33, -2.5)
_OF_STRIDE = (0.4, -2.5)  # as the limits above, by the same networks
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # of ImageNet, as timm and torchvision have them
_CAFFE = (123.68, 116.78, 103.94)  # means of red, green and blue from 0 to 255
_Change = Callable[[nn.Conv2d, Tensor], Tensor]


class _Enough(Exception):
    """All layers that are asked for have seen the images."""


def has_statistics(net: nn.Module, item: Item = IMAGE) -> bool:
    """Return whether some batch normalisation has running statistics of a training on images. item: what is read."""
    return not item.axes and any(True for _ in _layers(net))


@torch.no_grad()
def contradiction(net: nn.Module, pixels: Tensor, mean: Sequence[float], std: Sequence[float]) -> str:
    """Return what the weights seem to expect instead of these images; "" where nothing contradicts.

    net: takes pixels (N, C, S, S), uint8 or in [0, 1], less `mean` and over `std`. It stays as it is, statistics, mode
    and device included. "" for fewer than `LEAST` images, and without batch normalisation.
    """
    if len(pixels) < LEAST or not has_statistics(net):
        return ""
    device = next(net.parameters(), pixels).device
    pixels = pixels.to(device).float() / (255 if pixels.dtype == torch.uint8 else 1)
    normal = _normal(pixels, mean, std)
    with _in_eval_mode(net):
        near = _mean(_distances(net, normal, _EARLY))
        for (gain, fit), tried in ((_OF_SCALE, _scales(pixels)), (_OF_ORDER, _orders(pixels, mean, std))):
            if finding := _best(
                near, gain, fit, {name: _mean(_distances(net, x, _EARLY)) for name, x in tried.items()}
            ):
                return finding
        changes = _changes(net) if near < _OF_SCALE[1] else {}  # images of another kind tell nothing
        normal = normal[:_THROUGH]
        near = _mean(_distances(net, normal, least=_POSITIONS)) if changes else 0.0
        for name, (limits, changed) in changes.items():
            with _replace(changed):
                if finding := _best(near, *limits, {name: _mean(_distances(net, normal, least=_POSITIONS))}):
                    return finding
    return ""


@torch.no_grad()
def distance(net: nn.Module, pixels: Tensor, mean: Sequence[float], std: Sequence[float]) -> float:
    """The mean distance of the layers' inputs from those of the training, as a logarithm; lower is nearer.

    Of efficientnet_lite0 -3.3 on photographs and -1.2 on letters. pixels, mean, std: as in `contradiction`.
    """
    with _in_eval_mode(net):
        return _mean(_distances(net, _normal(pixels.float() / (255 if pixels.dtype == torch.uint8 else 1), mean, std)))


def warn(owner: str, said: str) -> None:
    """Warn, on rank 0, of what `contradiction` returned, once for the same words. owner: of the weights."""
    if said and rank() == 0:
        say.warn(
            f"{owner}: its batch normalisation contradicts these images, which would fit much better with {said}: take "
            "the network and the preprocessing that these weights were trained with",
            stacklevel=1,
        )


def _best(near: float, gain: float, fit: float, tried: Mapping[str, float]) -> str:
    """The nearest of what was tried, "" unless it is by `gain` nearer than `near` and at most at `fit`."""
    name = min(tried, key=tried.__getitem__, default="")
    return name if name and tried[name] < min(near - gain, fit) else ""


def _scales(pixels: Tensor) -> dict[str, Tensor]:
    """Pixels (N, C, S, S) as networks expect them, by what a line says of it."""
    half = (0.5,) * pixels.shape[1]
    tried = {
        "values from 0 to 1 without mean and std": pixels,
        "values from 0 to 255 without mean and std": 255 * pixels,
        "mean and std of 0.5": _normal(pixels, half, half),
    }
    if pixels.shape[1] == 3:
        less = 255 * pixels - pixels.new_tensor(_CAFFE).view(-1, 1, 1)
        tried["ImageNet's mean and std"] = _normal(pixels, *_IMAGENET)
        tried["values from 0 to 255 less their means, as of Caffe"] = less
        tried["channels in the order blue, green, red, from 0 to 255 less their means, as of Caffe"] = less.flip(1)
    return tried


def _orders(pixels: Tensor, mean: Sequence[float], std: Sequence[float]) -> dict[str, Tensor]:
    """Pixels (N, C, S, S) with red and blue exchanged, by what a line says of it; none of gray ones."""
    turned = pixels.flip(1)
    if pixels.shape[1] != 3 or torch.equal(turned, pixels):
        return {}
    order = "channels in the order blue, green, red"
    same = _normal(turned, mean, std)
    other = _normal(pixels, mean, std).flip(1)
    return {order: other} if torch.allclose(same, other) else {order: other, f"{order}, but mean and std as here": same}


def _changes(net: nn.Module) -> dict[str, tuple[tuple[float, float], dict[nn.Conv2d, _Change]]]:
    """Limits, and the convolutions that compute something else, by what a line says of it."""
    from timm.layers import Conv2dSame

    wide = [conv for conv in net.modules() if isinstance(conv, nn.Conv2d) and _is_padded(conv)]
    same = {conv: _symmetric for conv in wide if isinstance(conv, Conv2dSame)}
    symmetric = {conv: _as_tensorflow for conv in wide if not isinstance(conv, Conv2dSame)}
    pairs = [pair for block in net.modules() if (pair := _pair_with_stride(block))]
    first = {
        conv: partial(_convolve, stride=2) for narrow, other in pairs for conv in (narrow,) if other.stride[0] == 2
    }
    second = {conv: partial(_convolve, stride=1) for narrow, conv in pairs if narrow in first}
    candidates = {
        "convolutions padded on both sides, not as TensorFlow pads (a network without tf_)": (_OF_PADDING, same),
        "convolutions padded as TensorFlow pads (a network of tf_)": (_OF_PADDING, symmetric),
        "strides in the blocks' first convolution, of one pixel, as of Caffe": (_OF_STRIDE, {**first, **second}),
    }
    return {name: (limits, changed) for name, (limits, changed) in candidates.items() if changed}


def _is_padded(conv: nn.Conv2d) -> bool:
    size = conv.kernel_size[0]
    usual = conv.padding in ((size // 2, size // 2), (0, 0))
    return conv.stride == (2, 2) and conv.kernel_size == (size, size) and size % 2 == 1 < size and usual


def _pair_with_stride(block: nn.Module) -> tuple[nn.Conv2d, nn.Conv2d] | None:
    """The convolutions of 1 and of 3 pixels of a residual block, if one has the stride."""
    narrow, other = getattr(block, "conv1", None), getattr(block, "conv2", None)
    if not isinstance(narrow, nn.Conv2d) or not isinstance(other, nn.Conv2d):
        return None
    is_block = narrow.kernel_size == (1, 1) and other.kernel_size == (3, 3) and narrow.stride == (1, 1)
    return (narrow, other) if is_block and other.stride == (2, 2) else None


def _symmetric(conv: nn.Conv2d, x: Tensor) -> Tensor:
    return F.conv2d(x, conv.weight, conv.bias, conv.stride, conv.kernel_size[0] // 2, conv.dilation, conv.groups)


def _as_tensorflow(conv: nn.Conv2d, x: Tensor) -> Tensor:
    from timm.layers import pad_same

    padded = pad_same(x, conv.kernel_size, conv.stride, conv.dilation)
    return F.conv2d(padded, conv.weight, conv.bias, conv.stride, 0, conv.dilation, conv.groups)


def _convolve(conv: nn.Conv2d, x: Tensor, stride: int) -> Tensor:
    return F.conv2d(x, conv.weight, conv.bias, stride, conv.padding, conv.dilation, conv.groups)


def _normal(pixels: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    mean, std = (pixels.new_tensor(value).view(-1, 1, 1) for value in (mean, std))
    return (pixels - mean) / std


def _layers(net: nn.Module) -> Iterator[nn.Module]:
    """The layers with running statistics that a training has changed."""
    for layer in net.modules():
        mean, variance = (getattr(layer, name, None) for name in ("running_mean", "running_var"))
        if isinstance(mean, Tensor) and isinstance(variance, Tensor) and (mean.any() or (variance != 1).any()):
            yield layer


def _distances(net: nn.Module, x: Tensor, most: int | None = None, least: int = 1) -> list[float]:
    """The distance of each layer whose map has `least` positions, or of the first `most`, which stop the network."""
    distances: list[float] = []

    def compare(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if inputs[0][0, 0].numel() < least:
            return
        distances.append(_distance(layer, inputs[0]))
        if len(distances) == most:
            raise _Enough

    with ExitStack() as stack:
        for layer in _layers(net):
            stack.callback(layer.register_forward_pre_hook(compare).remove)
        with suppress(_Enough):
            net(x)
    return distances


def _distance(layer: nn.Module, x: Tensor) -> float:
    """The logarithm of the mean over channels of KL(input || running statistics), both as normal distributions."""
    over = [0, *range(2, x.dim())]
    x = x.float()
    expected, variance = layer.running_var.float() + layer.eps, x.var(over, unbiased=False) + layer.eps
    moved = (x.mean(over) - layer.running_mean.float()) ** 2
    divergence = 0.5 * ((expected / variance).log() + (variance + moved) / expected - 1)
    return math.log(max(divergence.clamp(max=_MOST).nan_to_num(_MOST).mean().item(), 1e-6))


def _mean(distances: Sequence[float]) -> float:
    return sum(distances) / max(1, len(distances))


@contextmanager
def _in_eval_mode(net: nn.Module) -> Iterator[None]:
    modes = {module: module.training for module in net.modules()}
    net.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


@contextmanager
def _replace(changed: Mapping[nn.Conv2d, _Change]) -> Iterator[None]:
    """The convolutions computed otherwise."""
    with ExitStack() as stack:
        for conv, change in changed.items():
            hook = conv.register_forward_hook(lambda layer, inputs, _, change=change: change(layer, inputs[0]))
            stack.callback(hook.remove)
        yield
