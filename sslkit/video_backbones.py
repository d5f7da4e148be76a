"""The networks of `sslkit.backbones.clips`, under the module name that the cards of zoo entries import."""

from sslkit.backbones.clips import (
    FRAMES,
    MAKERS,
    NAMES,
    BasicBlock,
    Bottleneck,
    SlowResNet,
    build,
    default,
    narrow_slow,
    r3d_18,
    slow_r18,
    slow_r50,
)

__all__ = [
    "FRAMES",
    "MAKERS",
    "NAMES",
    "BasicBlock",
    "Bottleneck",
    "SlowResNet",
    "build",
    "default",
    "narrow_slow",
    "r3d_18",
    "slow_r18",
    "slow_r50",
]
