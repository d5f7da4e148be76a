"""Networks for clips, (B, 3, T, S, S) -> (B, width): SlowFast's Slow pathway on its own, and torchvision's r3d_18.

`slow_r50` is pretrained by Feichtenhofer et al. 2021 (arXiv 2104.14558): "R-50, Slow pathway" of Feichtenhofer et al.
2019 (arXiv 1812.03982, table 1), a 2D ResNet on every frame; only the blocks of res4 and res5 use the neighbouring
frames. Nothing strides along time, so any number of frames is accepted.
"""

from torch import Tensor, nn
from torchvision.models import video

from sslkit.backbones.base import Recipe
from sslkit.data.resizing import SMALL
from sslkit.errors import UserError

NAMES = ("slow_r18", "slow_r50", "r3d_18", "narrow_slow")
# The functions that make them, as named in cards.
MAKERS = frozenset({*(f"{__name__}:{name}" for name in NAMES if name != "r3d_18"), f"{video.__name__}:r3d_18"})
FRAMES = 16  # default length of a clip
_SMALL, _MEDIUM = 32, 128  # pixels


def default(image_size: int) -> str:
    """The default network for clips: slow_r18 up to 128 pixels, slow_r50 above, narrow_slow up to 32."""
    return "narrow_slow" if image_size <= _SMALL else "slow_r18" if image_size <= _MEDIUM else "slow_r50"


def build(name: str, image_size: int, in_chans: int) -> tuple[nn.Module, Recipe]:
    """The network of this name and its recipe. Up to 64 pixels the first stride is 1, without pooling.

    Raises UserError for other than three channels.
    """
    if in_chans != 3:
        raise UserError(f"backbone {name} takes clips in RGB, not of {in_chans} channels: set data.channels=3")
    if name == "r3d_18":
        return _build_r3d_18(image_size)
    net = {"slow_r18": slow_r18, "slow_r50": slow_r50, "narrow_slow": narrow_slow}[name]()
    recipe = Recipe(name, [f"from {__name__} import {name}", f"net = {name}()"])
    if image_size <= SMALL:
        net.conv1.stride, net.maxpool = (1, 1, 1), nn.Identity()
        recipe.lines += ["import torch", "net.conv1.stride, net.maxpool = (1, 1, 1), torch.nn.Identity()"]
        recipe.stem = f"stride 1 and no pooling, for clips of {SMALL} pixels or less"
    return net, recipe


def _build_r3d_18(image_size: int) -> tuple[nn.Module, Recipe]:
    """r3d_18 with lines that need only torchvision."""
    net = r3d_18()
    made = [f"from {video.__name__} import r3d_18", "net = r3d_18()", "import torch", "net.fc = torch.nn.Identity()"]
    recipe = Recipe("r3d_18", made)
    if image_size <= SMALL:
        net.stem[0].stride = (1, 1, 1)
        recipe.lines.append("net.stem[0].stride = (1, 1, 1)")
        recipe.stem = f"stride 1, for clips of {SMALL} pixels or less"
    return net, recipe


def slow_r50() -> nn.Module:
    """Slow pathway of 50 layers: 31.63 M parameters, 2048 features.

    With a head of 400 classes 32.45 M, the published count of SLOW_8x8_R50; with UCF101's of 101 it is the 31.8 M of
    "R3D-50" in DSA's table V.
    """
    return SlowResNet(Bottleneck, (3, 4, 6, 3))


def slow_r18() -> nn.Module:
    """Slow pathway of 18 layers in basic blocks, Tx3x3 and 1x3x3 as SlowFast has them: 20.02 M parameters.

    DSA's table V lists an "R3D-18" of 13.5 M, the same count for works of different networks. No definition at hand
    gives it: neither these blocks nor bottlenecks (17.9 M), nor torchvision's r3d_18 (33.2 M).
    """
    return SlowResNet(BasicBlock, (2, 2, 2, 2))


def narrow_slow() -> nn.Module:
    """slow_r18 with one block a stage and a quarter of the channels, for small clips: 0.49 M parameters."""
    return SlowResNet(BasicBlock, (1, 1, 1, 1), width=16)


def r3d_18() -> nn.Module:
    """torchvision's r3d_18 without its head: 33.17 M parameters (33.37 M with 400 classes), 512 features.

    3x3x3 kernels throughout and a temporal stride of 8 in all: not what DSA's table V calls R3D-18, see `slow_r18`.
    """
    net = video.r3d_18(weights=None)
    net.fc = nn.Identity()
    return net


class SlowResNet(nn.Module):
    """Clips (B, 3, T, S, S) -> (B, width * 8 * block.expansion), the mean over time and space.

    block: `BasicBlock` or `Bottleneck`. layers: blocks of res2 to res5. width: channels of the stem.
    Layers are named as in torchvision's 2D ResNet, whose weights fit once the temporal kernels are inflated.
    """

    def __init__(
        self, block: "type[BasicBlock] | type[Bottleneck]", layers: tuple[int, int, int, int], *, width: int = 64
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv3d(3, width, (1, 7, 7), (1, 2, 2), (0, 3, 3), bias=False)
        self.bn1 = nn.BatchNorm3d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool3d((1, 3, 3), (1, 2, 2), (0, 1, 1))
        channels = width
        for stage, count in enumerate(layers):
            out, temporal = width * 2**stage, 3 if stage >= 2 else 1
            strides = (1 if stage == 0 else 2, *(1,) * (count - 1))
            blocks = []
            for stride in strides:
                blocks.append(block(channels, out, temporal=temporal, stride=stride))
                channels = out * block.expansion
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool3d(1)
        for layer in self.modules():
            if isinstance(layer, nn.Conv3d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.avgpool(x).flatten(1)


class BasicBlock(nn.Module):
    """Tx3x3 and 1x3x3 convolutions. temporal: T. stride: in space, of the first."""

    expansion = 1

    def __init__(self, channels: int, planes: int, *, temporal: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv(channels, planes, (temporal, 3, 3), stride)
        self.bn1 = nn.BatchNorm3d(planes)
        self.conv2 = _conv(planes, planes, (1, 3, 3))
        self.bn2 = nn.BatchNorm3d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(channels, planes, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class Bottleneck(nn.Module):
    """Tx1x1, 1x3x3 and 1x1x1 convolutions. temporal: T. stride: in space, of the 1x3x3."""

    expansion = 4

    def __init__(self, channels: int, planes: int, *, temporal: int, stride: int) -> None:
        super().__init__()
        out = planes * self.expansion
        self.conv1 = _conv(channels, planes, (temporal, 1, 1))
        self.bn1 = nn.BatchNorm3d(planes)
        self.conv2 = _conv(planes, planes, (1, 3, 3), stride)
        self.bn2 = nn.BatchNorm3d(planes)
        self.conv3 = _conv(planes, out, (1, 1, 1))
        self.bn3 = nn.BatchNorm3d(out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(channels, out, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        return self.relu(self.bn3(self.conv3(y)) + self.downsample(x))


def _conv(channels: int, out: int, kernel: tuple[int, int, int], stride: int = 1) -> nn.Conv3d:
    """A convolution without bias, padded to keep the size; strides in space only."""
    padding = tuple(length // 2 for length in kernel)
    return nn.Conv3d(channels, out, kernel, (1, stride, stride), padding, bias=False)


def _shortcut(channels: int, out: int, stride: int) -> nn.Module:
    """Map a block's input to the shape of its output; the identity if they agree."""
    if channels == out and stride == 1:
        return nn.Identity()
    return nn.Sequential(_conv(channels, out, (1, 1, 1), stride), nn.BatchNorm3d(out))
